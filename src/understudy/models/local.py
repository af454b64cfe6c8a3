"""Chat with a causal language model whose weights are on this machine.

Rows are padded on the left; masks and positions exclude the padding, so a row's answer does not depend on its
neighbours beyond the float noise of a different batch shape. The common beginning of all prompts is computed once.
Rows that have finished leave the batch.
"""

from __future__ import annotations

import asyncio
import ctypes
import hashlib
import math
import re
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.lazy import torch
from understudy.models.bare import without_thoughts, without_wrapping
from understudy.models.machine import best_device, require_local, worker_count, worker_pool
from understudy.models.shared_prefix import Block, prefilled
from understudy.models.types import ChatRequest, Completion, FinishReason, Message
from understudy.models.weights import end_tokens, load_weights, model_window, render
from understudy.models.writer import Judge, fingerprint, merge

BEGIN, GROWS, MOST, CONTINUE = 1.5, 0.4, 4.0, 6.0
"""Added to logits: BEGIN to a phrase's first token, and GROWS for each token that it is late, but at most MOST in all;
CONTINUE to each of its next tokens."""
PATIENCE = 5  # tokens for each phrase, after which it is late
_REPEAT = 4
_MARKS = (".", "!", "?", ":")


class Steering:
    """Steers the sampling of one answer towards its phrases; it may end without one, where a forced one fits nowhere.

    Args:
        most: its longest length in tokens; the last sixth is not steered.
        longer: the tokens that lengthen a word, from :func:`lengthening`; None if unknown.
    """

    def __init__(self, phrases: Sequence[str], tokenizer: Any, *, most: int, longer: Any = None) -> None:
        self._tokenizer = tokenizer
        self._longer = longer
        self._forms = {_there(phrase): _forms(tokenizer, phrase) for phrase in phrases}
        self._most = most * 5 // 6

    def steer(self, logits: Any, answer: list[int]) -> None:
        """Change a row's ``logits``, ``Float[V]``, in place, given the tokens of the ``answer`` so far."""
        logits[_repeating(answer)] = float("-inf")
        text = self._tokenizer.decode(answer, skip_special_tokens=True)
        missing = [forms for there, forms in self._forms.items() if not there.search(text)]
        if self._longer is not None and any(
            answer[-len(form) :] == form for forms in self._forms.values() for form in forms
        ):
            # "withdraw" is not lengthened, except to a phrase that is still missing ("withdrawals")
            going_on = [form[begun] for forms in missing for form in forms if (begun := _begun(form, answer))]
            kept = logits[going_on].clone()
            logits[self._longer] = float("-inf")
            logits[going_on] = kept
        if not missing or not answer or len(answer) >= self._most:
            return
        late = max(0, len(answer) - PATIENCE * (len(self._forms) - len(missing) + 1))
        gain = min(BEGIN + GROWS * late, MOST)
        capital = text.rstrip().endswith(_MARKS)
        for forms in missing:
            for form in forms[:1] if capital else forms:
                begun = _begun(form, answer)
                logits[form[begun]] += CONTINUE if begun else gain


def lengthening(tokenizer: Any) -> Any:
    """Return the tokens of a byte-level tokenizer that continue a word (letters and digits, no blank): ``Int64[n]``."""
    names = tokenizer.convert_ids_to_tokens(range(len(tokenizer)))
    return torch.tensor(
        [number for number, name in enumerate(names) if name[:1].isalnum() and not name.startswith("Ġ")]
    )


def _there(phrase: str) -> re.Pattern[str]:
    """Return a pattern for the phrase's words in a row, in either case."""
    words = r"\W+".join(re.escape(word) for word in re.findall(r"\w+", phrase))
    return re.compile(rf"(?<!\w){words}(?!\w)", re.IGNORECASE)


def _forms(tokenizer: Any, phrase: str) -> list[list[int]]:
    """Return the phrase in tokens, as it occurs inside a text: with a capital letter and, if that differs,
    unchanged."""
    written = dict.fromkeys((f" {phrase[:1].upper()}{phrase[1:]}", f" {phrase}"))
    return [list(tokenizer(each, add_special_tokens=False)["input_ids"]) for each in written]


def _begun(form: list[int], answer: list[int]) -> int:
    """Return how many of the form's first tokens, and not all, the answer ends with."""
    for count in range(min(len(form) - 1, len(answer)), 0, -1):
        if answer[-count:] == form[:count]:
            return count
    return 0


def _repeating(answer: list[int]) -> list[int]:
    """Return the tokens that must not come next, because the answer would then repeat a sequence that it contains."""
    before = answer[1 - _REPEAT :]
    return [
        answer[start + _REPEAT - 1]
        for start in range(len(answer) - _REPEAT + 1)
        if answer[start : start + _REPEAT - 1] == before
    ]


_BATCH_TOKENS = {"cpu": 20_480, "cuda": 131_072}
"""Most rows times tokens (prompt, answer) in a batch: on a CPU 128 rows of 160, at most 1 GB for the built-in model."""
_TURN = "\nuser:"


class LocalChat:
    """A chat model (:class:`~understudy.models.types.ChatModel`): a transformers causal model in a local folder.

    Requests are sorted by length and answered in batches, several at once on a CPU with several cores, outside the
    event loop. Sampling depends only on ``seed`` and the request, so a resumed run or a different order samples the
    same tokens, as far as the float noise of a different batch shape allows. It runs in bfloat16 if the processor
    supports it, else in float32. A base model (no chat template) sees lines ``role: content`` and completes the
    assistant's.

    Arguments as for :class:`understudy.models.causal.CausalModel`; ``seed`` is for sampling, and ``writer`` adds the
    shipped adapters, which write around the ``phrases`` of a request (:mod:`understudy.models.writer`). ``paced`` is
    called after some seconds, and now and then, with an estimate of the seconds per answer and the number of answers.

    Raises ModelError if the extra ``local`` is missing, or the folder does not contain such a model.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        seed: int = 0,
        device: str | None = None,
        dtype: str | None = None,
        writer: bool = False,
        paced: Callable[[float, int], None] = lambda _seconds, _answers: None,
    ) -> None:
        require_local()
        self._device = device or best_device()
        self._paced = paced
        self._seed = seed
        model, self._tokenizer, weights = load_weights(folder, name=name, device=self._device, dtype=dtype)
        self._decoder = Decoder(model, self._tokenizer, Judge.shipped(self._device) if writer else None)
        self._window = model_window(model)
        self.model_id = f"{name}@{weights[:12]}"
        self._writer = writer
        if writer:
            merge(model)
            self.model_id = f"{name}+writer@{weights[:6]}{fingerprint()[:6]}"

    async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        """Yield ``(index into requests, Completion)`` as batches end; ``failed`` if a prompt fills the window."""
        loop = asyncio.get_running_loop()
        prompts = await asyncio.to_thread(lambda: [self._prompt(request) for request in requests])
        for index, prompt in enumerate(prompts):
            if prompt is None:
                reason = f"the prompt fills the model's window of {self._window} tokens"
                yield index, Completion(text="", finish_reason="failed", error=reason)
        cancelled, pace = threading.Event(), Pace(self._paced, len(prompts))
        pool = worker_pool(self._device)
        try:
            running = [
                loop.run_in_executor(pool, self._answer, batch, cancelled, pace)
                for batch in batches(prompts, self._device)
            ]
            for batch in asyncio.as_completed(running):
                for answered in await batch:
                    yield answered
        finally:
            cancelled.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _answer(
        self, batch: list[tuple[int, Prompt]], cancelled: threading.Event, pace: Pace
    ) -> list[tuple[int, Completion]]:
        pace.begin(len(batch))
        completions = self._decoder.answer([prompt for _, prompt in batch], cancelled=cancelled, stepped=pace.step)
        give_back_memory()
        return [(index, completion) for (index, _), completion in zip(batch, completions, strict=False)]

    def room(self, messages: Sequence[Message]) -> int:
        """Return the tokens that a prompt leaves in the window for its answer; below 1 there is no room."""
        return self._window - len(self._tokens(messages))

    def _tokens(self, messages: Sequence[Message]) -> list[int]:
        base = self._tokenizer.chat_template is None
        return list(self._tokenizer(render(self._tokenizer, messages), add_special_tokens=base)["input_ids"])

    def _prompt(self, request: ChatRequest) -> Prompt | None:
        """Return the request in tokens, or None if it leaves no room for an answer."""
        tokens = self._tokens(request.messages)
        room = min(request.max_tokens, self._window - len(tokens))
        if room < 1:
            return None
        chats = self._tokenizer.chat_template is not None
        return Prompt(
            tokens=tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            stop=request.stop if chats else (*request.stop, _TURN),
            uniforms=request_uniforms(self._seed, request.key(self.model_id), count=room),
            phrases=request.phrases if self._writer else (),
            chats=chats and not self._writer,
        )


_TYPICAL, _MORE = 30, 20  # tokens of an answer (the last of a batch are slow), and of the rest of an unfinished one
_FIRST_SECONDS = 5.0


class Pace:
    """Estimates the seconds per answer from the tokens so far, of all batches."""

    def __init__(self, paced: Callable[[float, int], None], answers: int) -> None:
        self._paced, self._answers = paced, answers
        self._begun, self._next = math.inf, _FIRST_SECONDS
        self._rows = self._tokens = 0
        self._going: dict[int, int] = {}  # unfinished rows of each thread

    def begin(self, rows: int) -> None:
        """Count the rows of a batch."""
        self._rows += rows

    def step(self, rows: int) -> None:
        """Record that each of ``rows`` unfinished answers got a token. Time is taken from the first call on, because
        reading prompts is much faster."""
        self._begun = min(self._begun, now := time.monotonic())
        self._going[threading.get_ident()] = rows
        took = now - self._begun
        self._tokens += rows if took else 0
        if took >= self._next:
            self._next = 1.5 * took
            each = max(_TYPICAL, (self._tokens + _MORE * sum(self._going.values())) / self._rows)
            self._paced(took * each / self._tokens, self._answers)


def give_back_memory() -> None:
    """Return the memory of freed tensors, which glibc's allocator keeps, to the system; no effect without glibc.

    Batches have different shapes. Freed tensors leave holes in the worker's heap that the next batch's do not fit,
    and a process that keeps all holes grows with the number of prompts to several times its need.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


_SHARED_AT_LEAST = 16  # fewer common tokens are not worth a separate pass


@dataclass(frozen=True)
class Prompt:
    """One row of a batch: the tokens of its prompt, how to sample, and uniform random numbers (one per token)."""

    tokens: list[int]
    temperature: float
    top_p: float
    stop: tuple[str, ...]
    uniforms: NDArray[np.float64]
    phrases: tuple[str, ...] = ()  # which the answer is steered to
    chats: bool = False  # the model may think, or speak to the user


def batches(prompts: Sequence[Prompt | None], device: str) -> Iterator[list[tuple[int, Prompt]]]:
    """Group the prompts (with their numbers) into batches: similar lengths together, the longest first, with work for
    every worker."""
    waiting = [(index, prompt) for index, prompt in enumerate(prompts) if prompt is not None]
    waiting.sort(key=lambda item: len(item[1].tokens), reverse=True)
    most_rows = max(1, math.ceil(len(waiting) / worker_count(device)))
    while waiting:
        prompt_tokens, answer_tokens, rows = len(waiting[0][1].tokens), 0, 0
        for _, prompt in waiting[:most_rows]:
            answer_tokens = max(answer_tokens, len(prompt.uniforms))
            if rows and (rows + 1) * (prompt_tokens + answer_tokens) > _BATCH_TOKENS[device]:
                break
            rows += 1
        yield waiting[:rows]
        waiting = waiting[rows:]


@dataclass
class _Row:
    prompt: Prompt
    steering: Steering | None = None
    answer: list[int] = field(default_factory=list)
    reason: FinishReason | None = None
    votes: list[float] = field(default_factory=list)  # of the tokens so far: is the answer sensible?

    def take(self, token: int, vote: float | None, tokenizer: Any, ends: frozenset[int]) -> None:
        """Record the sampled token, the judge's vote at the token before it, and whether the answer ends with it."""
        if vote is not None:
            self.votes.append(vote)
        if token in ends:
            self.reason = "stop"
            return
        self.answer.append(token)
        # a token holds one byte at least, so that few need a look
        tails = ((stop, self.answer[-len(stop.encode()) - 4 :]) for stop in self.prompt.stop)
        stopped = any(stop in tokenizer.decode(tail, skip_special_tokens=True) for stop, tail in tails)
        if stopped and self._text(tokenizer):
            self.reason = "stop"
        elif len(self.answer) == len(self.prompt.uniforms):
            self.reason = "length"

    def _text(self, tokenizer: Any) -> str:
        """Return the answer so far; for a chat only its text, so that it is empty while the model thinks."""
        text: str = tokenizer.decode(self.answer, skip_special_tokens=True)
        return without_wrapping(without_thoughts(text)[0])[0] if self.prompt.chats else text

    def completion(self, tokenizer: Any) -> Completion:
        text = self._text(tokenizer)
        cuts = [text.index(stop) for stop in self.prompt.stop if stop in text]
        text = text[: min(cuts)] if cuts else text
        reason = self.reason or "length"
        return Completion(
            text=text,
            finish_reason=reason if text.strip() else "empty",
            prompt_tokens=len(self.prompt.tokens),
            completion_tokens=len(self.answer) + (reason == "stop" and not cuts),
            sense=fmean(self.votes) if self.votes else None,
        )


class Decoder:
    """A causal model with its tokenizer, ready to answer batches; may be used by several threads at once."""

    def __init__(self, model: Any, tokenizer: Any, judge: Judge | None = None) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._judge = judge
        self._ends = end_tokens(model, tokenizer)

    def answer(
        self,
        prompts: Sequence[Prompt],
        *,
        cancelled: threading.Event,
        stepped: Callable[[int], None] = lambda _rows: None,
    ) -> list[Completion]:
        """Return one completion per prompt, in order; empty once ``cancelled`` is set. ``stepped`` is called with the
        number of unfinished rows at each token."""
        rows = [_Row(prompt, self._steering(prompt)) for prompt in prompts]
        with torch.inference_mode():
            self._decode(rows, cancelled, stepped)
        return [] if cancelled.is_set() else [row.completion(self._tokenizer) for row in rows]

    def _steering(self, prompt: Prompt) -> Steering | None:
        if not prompt.phrases:
            return None
        most = len(prompt.uniforms)
        return Steering(prompt.phrases, self._tokenizer, most=most, longer=self._longer)

    @cached_property
    def _longer(self) -> Any:
        return lengthening(self._tokenizer)

    def _decode(self, rows: list[_Row], cancelled: threading.Event, stepped: Callable[[int], None]) -> None:
        """Run the model until every row has ended."""
        longest = max(len(row.prompt.uniforms) for row in rows)
        asked = [tuple(row.prompt.tokens) for row in rows]
        distinct = list(dict.fromkeys(asked))  # several answers to one prompt share its states
        block = self._prefill(distinct, room=longest)
        device = block.last.device
        temperature = torch.tensor([row.prompt.temperature for row in rows], device=device)
        top_p = torch.tensor([row.prompt.top_p for row in rows], device=device)
        padded = [np.pad(row.prompt.uniforms, (0, longest - len(row.prompt.uniforms))) for row in rows]
        uniforms = torch.tensor(np.array(padded, dtype=np.float32), device=device)
        for step in range(longest):
            said = self._model(**block.inputs(), logits_to_keep=1, output_hidden_states=self._judge is not None)
            logits = said.logits[:, -1]
            votes = [None] * len(rows) if self._judge is None or step == 0 else self._judge.votes(said.hidden_states)
            if step == 0 and len(distinct) < len(rows):
                own = torch.tensor([distinct.index(prompt) for prompt in asked], device=device)
                block.select(own)
                logits = logits[own]
            if any(row.steering is not None for row in rows):
                near = logits.to("cpu", copy=True)  # one copy: steering looks at single numbers
                for number, row in enumerate(rows):
                    if row.steering is not None and row.reason is None:
                        row.steering.steer(near[number], row.answer)
                logits = near.to(device)
            tokens = choose_tokens(logits, temperature=temperature, top_p=top_p, uniform=uniforms[:, step])
            for row, token, vote in zip(rows, tokens.tolist(), votes, strict=True):
                if row.reason is None:
                    row.take(token, vote, self._tokenizer, self._ends)
            going = [number for number, row in enumerate(rows) if row.reason is None]
            stepped(len(going))
            if not going or cancelled.is_set():
                return
            if len(going) <= len(rows) * 7 // 8:  # not at every end: each time copies the cache
                kept = torch.tensor(going, device=device)
                rows = [rows[number] for number in going]
                block.select(kept)
                tokens, temperature, top_p, uniforms = tokens[kept], temperature[kept], top_p[kept], uniforms[kept]
            block.append(tokens[:, None])

    def _prefill(self, prompts: Sequence[Sequence[int]], *, room: int) -> Block:
        """Prefill the prompts, their common beginning once, with ``room`` for later tokens."""
        shared, longest = _shared_prefix(prompts), max(map(len, prompts))
        cache = prefilled(self._model, prompts[0][:shared])
        if shared:
            cache.batch_repeat_interleave(len(prompts))
        rows = [prompt[shared:] for prompt in prompts]
        sizes = {"prefix": shared, "width": longest - shared, "capacity": longest + room}
        return Block(rows, cache=cache, device=self._model.device, **sizes)


def _shared_prefix(prompts: Sequence[Sequence[int]]) -> int:
    """Return how many first tokens all prompts share, leaving at least one to each; 0 if sharing saves nothing."""
    if len(prompts) == 1:
        return 0
    most = min(map(len, prompts)) - 1
    columns = zip(*(prompt[:most] for prompt in prompts), strict=True)
    shared = next((place for place, column in enumerate(columns) if len(set(column)) > 1), most)
    return shared if shared >= _SHARED_AT_LEAST else 0


_NUCLEI = (256, 4096)  # how many tokens are sorted at first; a flatter distribution has all of them sorted


def request_uniforms(seed: int, key: str, *, count: int) -> NDArray[np.float64]:
    """Return the uniform random numbers of one request, ``Float64[count]`` in [0, 1), from ``seed`` and its ``key``;
    independent of the batch.

    They are for public sampling only: no privacy noise comes from this function.
    """
    digest = hashlib.sha256(f"{seed}:{key}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest, "big")).random(count)


def choose_tokens(logits: Any, *, temperature: Any, top_p: Any, uniform: Any) -> Any:
    """Return the next token ``Int64[B]`` of each row, by inverting the cumulative distribution at ``uniform``.

    Args:
        logits: ``Float[B, V]``.
        temperature: ``Float32[B]``; 0 takes the likeliest token.
        top_p: ``Float32[B]`` in (0, 1]: sample from the smallest set of likeliest tokens with this much mass.
        uniform: ``Float32[B]`` in [0, 1].
    """
    tokens = torch.empty(len(logits), dtype=torch.long, device=logits.device)
    greedy = temperature == 0
    if bool(greedy.any()):
        tokens[greedy] = logits[greedy].argmax(-1)
    whole = ~greedy & (top_p >= 1)
    if bool(whole.any()):
        tokens[whole] = _invert(_masses(logits[whole], temperature[whole]), uniform[whole])
    nucleus = ~greedy & (top_p < 1)
    if bool(nucleus.any()):
        masses = _masses(logits[nucleus], temperature[nucleus])
        tokens[nucleus] = _from_nucleus(masses, top_p[nucleus], uniform[nucleus])
    return tokens


def _masses(logits: Any, temperature: Any) -> Any:
    return (logits.float() / temperature.clamp(min=1e-4)[:, None]).softmax(-1)


def _from_nucleus(masses: Any, top_p: Any, uniform: Any) -> Any:
    """Return a token of each row's nucleus. Most nuclei are small, so few rows need many tokens sorted."""
    chosen = torch.empty(len(masses), dtype=torch.long, device=masses.device)
    rows = torch.arange(len(masses), device=masses.device)
    for width in (*_NUCLEI, masses.shape[-1]):
        ordered, tokens = masses[rows].topk(min(width, masses.shape[-1]))
        within = ordered.cumsum(-1) - ordered < top_p[rows, None]
        places = _invert(ordered.where(within, 0), uniform[rows])
        chosen[rows] = tokens.gather(1, places[:, None])[:, 0]
        rows = rows[ordered.sum(-1) < top_p[rows]]
        if len(rows) == 0:
            break
    return chosen


def _invert(masses: Any, uniform: Any) -> Any:
    """Return the index at which each row's cumulative mass first exceeds the share ``uniform`` of its total; never an
    index without mass."""
    cumulated = masses.cumsum(-1)
    total = cumulated[:, -1]
    target = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    found = torch.searchsorted(cumulated, target[:, None], right=True)[:, 0]
    return found.clamp(max=masses.shape[-1] - 1)  # for masses that are not numbers
