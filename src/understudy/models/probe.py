"""What a chat model can do, found out with half a dozen small questions (``understudy models check``)."""

from __future__ import annotations

import time
from dataclasses import dataclass

from understudy.base.errors import ModelError
from understudy.models.collect import collect, run_to_end
from understudy.models.endpoint import EndpointChat
from understudy.models.limits import Unreachable
from understudy.models.types import ChatModel, ChatRequest, Completion, Message

FEW_TOKENS = 8
_CURE = "Check the model's name and the server's log."


@dataclass(frozen=True)
class ProbeReport:
    """What was found, in the order of its questions. None stands for "could not be told".

    ``problem`` says why it does not answer, ``cure`` what to do about it, ``seconds`` how long its first answer took,
    ``listed`` whether the endpoint lists the model, ``repeatable`` whether temperature 0 gives the same answer twice,
    ``reasons`` whether it thinks before it answers, ``left_out`` which parameters it refused, so that they are no
    longer sent.
    """

    model_id: str
    reachable: bool
    answers: bool
    problem: str | None = None
    cure: str | None = None
    seconds: float | None = None
    listed: bool | None = None
    honours_max_tokens: bool | None = None
    honours_stop: bool | None = None
    repeatable: bool | None = None
    takes_system_message: bool | None = None
    reports_usage: bool | None = None
    reasons: bool | None = None
    left_out: tuple[str, ...] = ()


def probe(model: ChatModel) -> ProbeReport:
    """Ask ``model`` six small questions; a model that does not work is reported, not raised."""
    listed = _is_listed(model)
    start = time.monotonic()
    try:
        hello = collect(model, [_request("Say hello in one short sentence.", max_tokens=64)])[0]
        seconds = time.monotonic() - start
        if hello.finish_reason == "failed":
            problem = f"A plain question failed because {hello.error}."
            return ProbeReport(
                model.model_id, reachable=True, answers=False, problem=problem, cure=_CURE, listed=listed
            )
        few, stopped, first, second, system = collect(
            model,
            [
                _request("Write the numbers from 1 to 100, separated by spaces.", max_tokens=FEW_TOKENS),
                _request("Write the numbers from 1 to 20, separated by spaces.", stop=("7",)),
                _request("Name three colours.", max_tokens=32),
                _request("Name three colours.", max_tokens=32, sample=1),
                _request("What is your job?", system="You are a gardener. Answer in one sentence."),
            ],
        )
    except ModelError as error:
        reachable = not isinstance(error, Unreachable)
        problem, cure = error.problem, error.cure
        return ProbeReport(model.model_id, reachable, answers=False, problem=problem, cure=cure, listed=listed)
    dialect = model.dialect if isinstance(model, EndpointChat) else None
    return ProbeReport(
        model.model_id,
        reachable=True,
        answers=hello.text != "",
        problem=None if hello.text else "It answers without text.",
        cure=None if hello.text else "A reasoning model may need more tokens.",
        seconds=seconds,
        listed=listed,
        honours_max_tokens=_ends_in_time(few),
        honours_stop=False if dialect and dialect.ignores_stop else _stops_before_seven(stopped),
        repeatable=first.text == second.text if first.text and second.text else None,
        takes_system_message=system.finish_reason != "failed",
        reports_usage=hello.prompt_tokens + hello.completion_tokens > 0,
        reasons=dialect.reasons if dialect else None,
        left_out=tuple(sorted(dialect.left_out)) if dialect else (),
    )


def _request(
    question: str, *, system: str = "", max_tokens: int = 64, stop: tuple[str, ...] = (), sample: int = 0
) -> ChatRequest:
    instruction = (Message("system", system),) if system else ()
    return ChatRequest(
        (*instruction, Message("user", question)), max_tokens=max_tokens, temperature=0.0, stop=stop, sample=sample
    )


def _is_listed(model: ChatModel) -> bool | None:
    if not isinstance(model, EndpointChat):
        return None
    names = run_to_end(model.list_models)
    return None if names is None else model.name in names


def _ends_in_time(completion: Completion) -> bool | None:
    if not completion.text:
        return None
    if completion.finish_reason == "length":
        return True
    return (completion.completion_tokens or len(completion.text.split())) <= FEW_TOKENS


def _stops_before_seven(completion: Completion) -> bool | None:
    if "7" in completion.text:
        return False
    return True if "6" in completion.text else None
