"""Local chat: batches, stop strings, windows, seeds."""

from __future__ import annotations

import asyncio
import platform
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from local_fixtures import WINDOW, make_llama

from understudy.base.errors import ModelError
from understudy.models import local, machine
from understudy.models.local import Decoder, LocalChat, choose_tokens, request_uniforms
from understudy.models.types import ChatRequest, Completion, Message

SYSTEM = "You write short notes about invented patients."


@pytest.fixture(scope="module")
def chat(llama: Path) -> LocalChat:
    return LocalChat(llama, name="tiny", device="cpu", dtype="float32")


def ask(text: str, *, system: str | None = None, **options: Any) -> ChatRequest:
    before = (Message("system", system),) if system else ()
    return ChatRequest((*before, Message("user", text)), **{"max_tokens": 24, "temperature": 0.0, **options})


def answers(chat: LocalChat, requests: Sequence[ChatRequest]) -> list[Completion]:
    async def collect() -> dict[int, Completion]:
        return {index: completion async for index, completion in chat.complete(requests)}

    found = asyncio.run(collect())
    assert sorted(found) == list(range(len(requests)))
    return [found[index] for index in range(len(requests))]


def greedy_tokens(folder: Path, prompt: str) -> list[int]:
    """What transformers' own ``generate`` answers."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    turns = [{"role": "user", "content": prompt}]
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    tokens = tokenizer(text, return_tensors="pt")
    made = model.generate(**tokens, max_new_tokens=24, do_sample=False, pad_token_id=0)[0]
    found: list[int] = made[tokens["input_ids"].shape[1] :].tolist()
    return found


PROMPTS = ["hi", "a much longer question than the others, to be padded against", "knee", "what now?", "x" * 90]


def test_a_batch_of_many_answers_like_batches_of_one(chat: LocalChat) -> None:
    requests = [ask(prompt) for prompt in PROMPTS]
    assert answers(chat, requests) == [answers(chat, [request])[0] for request in requests]
    assert len({completion.text for completion in answers(chat, requests)}) == len(PROMPTS)


def test_greedy_answers_are_those_of_generate(chat: LocalChat, llama: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(llama)
    for prompt, completion in zip(PROMPTS, answers(chat, [ask(prompt) for prompt in PROMPTS]), strict=True):
        assert completion.text == tokenizer.decode(greedy_tokens(llama, prompt), skip_special_tokens=True)


def test_a_prefix_that_all_prompts_share_is_computed_once_and_changes_nothing(
    chat: LocalChat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.models.local.worker_count", lambda device: 1)
    requests = [ask(prompt, system=SYSTEM) for prompt in PROMPTS]
    alone = [answers(chat, [request])[0] for request in requests]
    shapes = _record_shapes(chat, monkeypatch)
    assert answers(chat, requests) == alone
    assert shapes[0][0] == 1
    assert shapes[0][1] > len(SYSTEM)


def test_answers_to_one_prompt_share_its_states_and_differ(chat: LocalChat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.models.local.worker_count", lambda device: 1)
    requests = [ask(prompt, temperature=1.0, sample=sample) for sample in range(3) for prompt in ("hi", "what now?")]
    alone = [answers(chat, [request])[0] for request in requests]
    shapes = _record_shapes(chat, monkeypatch)
    assert answers(chat, requests) == alone
    assert len({each.text for each in alone}) == 6
    assert [rows for rows, _ in shapes[:2]] == [2, 6]


def test_draws_belong_to_the_request_whatever_the_batch(chat: LocalChat) -> None:
    requests = [ask(prompt, temperature=0.9, top_p=0.95) for prompt in PROMPTS]
    together = answers(chat, requests)
    assert answers(chat, requests[::-1])[::-1] == together
    assert [answers(chat, [request])[0] for request in requests] == together


def test_another_seed_and_another_sample_give_other_answers(llama: Path, chat: LocalChat) -> None:
    other = LocalChat(llama, name="tiny", seed=1, device="cpu", dtype="float32")
    assert other.model_id == chat.model_id
    requests = [ask("hi", temperature=1.0, sample=sample) for sample in range(3)]
    assert len({each.text for model in (chat, other) for each in answers(model, requests)}) == 6


def test_an_answer_ends_at_max_tokens(chat: LocalChat) -> None:
    short, long = answers(chat, [ask("hi", max_tokens=3), ask("hi", max_tokens=9)])
    assert (short.finish_reason, short.completion_tokens) == ("length", 3)
    assert (long.finish_reason, long.completion_tokens) == ("length", 9)
    assert long.text.startswith(short.text.rstrip("\ufffd"))


def test_a_stop_string_ends_the_answer_and_is_cut(chat: LocalChat) -> None:
    whole = answers(chat, [ask("knee", max_tokens=40)])[0].text
    stop = whole[10:13]
    cut = answers(chat, [ask("knee", max_tokens=40, stop=("never there", stop))])[0]
    assert cut.finish_reason == "stop"
    assert cut.text == whole[: whole.index(stop)]
    assert cut.completion_tokens < 40


def test_the_end_token_ends_the_answer(llama: Path, tmp_path: Path) -> None:
    tokens = greedy_tokens(llama, "knee")
    place = next(n for n in range(3, len(tokens)) if tokens[n] not in tokens[:n])
    ended = LocalChat(make_llama(tmp_path, eos=tokens[place]), name="tiny", device="cpu", dtype="float32")
    completion = answers(ended, [ask("knee")])[0]
    assert completion.finish_reason == "stop"
    assert completion.completion_tokens == place + 1


def test_an_answer_without_text_is_empty(chat: LocalChat) -> None:
    first = answers(chat, [ask("knee")])[0].text[0]
    completion = answers(chat, [ask("knee", stop=(first,))])[0]
    assert (completion.text, completion.finish_reason) == ("", "empty")


def test_a_prompt_longer_than_the_window_fails_alone_and_is_not_quoted(chat: LocalChat) -> None:
    fine, long = answers(chat, [ask("hi"), ask("secret " * WINDOW)])
    assert fine.finish_reason == "length"
    assert (long.finish_reason, long.text) == ("failed", "")
    assert str(WINDOW) in (long.error or "")
    assert "secret" not in (long.error or "")


def test_an_answer_is_cut_where_the_window_ends(chat: LocalChat) -> None:
    completion = answers(chat, [ask("x" * 200, max_tokens=500)])[0]
    assert completion.finish_reason == "length"
    assert completion.prompt_tokens + completion.completion_tokens == WINDOW


REFUSING = "{% if messages[0]['role'] == 'system' %}{{ raise_exception('no') }}{% endif %}{{ messages[0]['content'] }}"


@pytest.mark.parametrize(
    ("template", "prompt"), [(None, "system: be kind\nuser: hi\nassistant:"), (REFUSING, "be kind\n\nhi")]
)
def test_a_model_without_a_template_or_without_system_turns_gets_its_own_form(
    tmp_path: Path, template: str | None, prompt: str
) -> None:
    base = LocalChat(make_llama(tmp_path, template=template), name="base", device="cpu", dtype="float32")
    completion = answers(base, [ask("hi", system="be kind")])[0]
    assert completion.prompt_tokens == len(prompt)
    assert completion.text


def test_batches_hold_prompts_of_like_length_in_the_budget(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(local._BATCH_TOKENS, "cpu", 400)
    chat = LocalChat(llama, name="tiny", device="cpu", dtype="float32")
    batches: list[list[int]] = []

    def record(self: Decoder, prompts: Sequence[Any], **_: Any) -> list[Completion]:
        batches.append([len(prompt.tokens) for prompt in prompts])
        return [Completion("x", "stop")] * len(prompts)

    monkeypatch.setattr(Decoder, "answer", record)
    monkeypatch.setattr("understudy.models.local.worker_count", lambda device: 1)
    answers(chat, [ask("y" * (7 * number % 50), max_tokens=10) for number in range(40)])
    lengths = sorted((length for batch in batches for length in batch), reverse=True)
    batches.sort(reverse=True)
    assert [length for batch in batches for length in batch] == lengths
    assert all(len(batch) * (batch[0] + 10) <= 400 for batch in batches)
    assert len(batches) < 12


def test_leaving_early_stops_the_work_under_way(chat: LocalChat, monkeypatch: pytest.MonkeyPatch) -> None:
    flags: list[threading.Event] = []

    def wait(self: Decoder, prompts: Sequence[Any], *, cancelled: threading.Event, **_: Any) -> list[Completion]:
        flags.append(cancelled)
        if len(prompts[0].tokens) > 60:
            return [Completion("x", "stop")] * len(prompts)
        assert cancelled.wait(300)
        return []

    monkeypatch.setattr(Decoder, "answer", wait)
    monkeypatch.setattr("understudy.models.local.worker_count", lambda device: 2)
    monkeypatch.setattr(machine, "worker_count", lambda device: 2)

    async def first_only() -> None:
        stream = chat.complete([ask("hi"), ask("y" * 90)])
        index, _ = await anext(stream)
        assert index == 1
        await stream.aclose()  # type: ignore[attr-defined]

    asyncio.run(first_only())
    assert all(flag.is_set() for flag in flags)


def test_a_cancelled_batch_gives_no_answers(chat: LocalChat) -> None:
    flag = threading.Event()
    flag.set()
    prompt = chat._prompt(ask("hi"))
    assert prompt is not None
    assert chat._decoder.answer([prompt], cancelled=flag) == []


def resident_megabytes() -> float:
    """Of this process, without mapped files."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) / 1024


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library gives memory back by itself")
def test_freed_memory_goes_back_to_the_system() -> None:
    blocks = [np.ones(100_000, dtype=np.uint8) for _ in range(2_000)]  # too small to be mapped one by one
    full, last = resident_megabytes(), blocks[-1]  # the last block holds the heap's end in its place
    del blocks
    kept = resident_megabytes()
    local.give_back_memory()
    if kept < full - 50:
        pytest.skip("the allocator gave it back unasked, or the system took it: the test shows nothing")
    assert resident_megabytes() < full - 150
    assert len(last)


def test_grouped_attention_gives_what_torchs_own_gives(llama: Path) -> None:
    from transformers import AutoModelForCausalLM, DynamicCache

    from understudy.models.weights import use_grouped_attention

    models = [AutoModelForCausalLM.from_pretrained(llama).eval() for _ in range(2)]
    use_grouped_attention(models[1])
    assert models[0].config._attn_implementation == "sdpa"
    assert models[1].config._attn_implementation != "sdpa"
    tokens = torch.arange(3, 33).reshape(3, 10)
    mask = torch.ones_like(tokens)
    mask[0, :4] = 0
    logits = []
    for model in models:
        cache = DynamicCache(config=model.config)
        with torch.inference_mode():
            model(input_ids=tokens[:, :9], attention_mask=mask[:, :9], past_key_values=cache)
            logits.append(model(input_ids=tokens[:, 9:], attention_mask=mask, past_key_values=cache).logits)
    assert torch.allclose(logits[0], logits[1], atol=1e-4)


def test_a_folder_without_a_model_and_pickled_weights_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="contains no causal language model"):
        LocalChat(tmp_path, name="hf:./nothing")
    folder = make_llama(tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match="safetensors"):
        LocalChat(folder, name="hf:./pickled")


def _record_shapes(chat: LocalChat, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The shapes of the tokens in every pass of the model from now on."""
    shapes: list[tuple[int, int]] = []
    decoder = chat._decoder._model.get_decoder()
    original = decoder.forward

    def record(*args: Any, input_ids: Any, **named: Any) -> Any:
        shapes.append(tuple(input_ids.shape))
        return original(*args, input_ids=input_ids, **named)

    monkeypatch.setattr(decoder, "forward", record)
    return shapes


MASSES = torch.tensor([0.1, 0.4, 0.0, 0.3, 0.2])


def choose(
    logits: torch.Tensor, uniform: torch.Tensor, *, temperature: float = 1.0, top_p: float = 1.0
) -> torch.Tensor:
    rows = len(uniform)
    found: torch.Tensor = choose_tokens(
        logits.expand(rows, -1),
        temperature=torch.full((rows,), temperature),
        top_p=torch.full((rows,), top_p),
        uniform=uniform,
    )
    return found


def shares(tokens: torch.Tensor, size: int = 5) -> torch.Tensor:
    return torch.bincount(tokens, minlength=size) / len(tokens)


def test_tokens_come_with_their_probabilities_sharpened_by_the_temperature() -> None:
    for temperature in (1.0, 0.5):
        found = shares(choose(MASSES.log(), torch.linspace(0, 1, 10_001)[:-1], temperature=temperature))
        expected = MASSES ** (1 / temperature)
        assert torch.allclose(found, expected / expected.sum(), atol=1e-3)
    assert choose(MASSES.log(), torch.rand(50), temperature=0.0).unique().tolist() == [1]


@pytest.mark.parametrize(("top_p", "kept"), [(0.3, [1]), (0.5, [1, 3]), (0.75, [1, 3, 4]), (0.95, [0, 1, 3, 4])])
def test_top_p_draws_from_the_smallest_set_with_that_mass(top_p: float, kept: list[int]) -> None:
    found = shares(choose(MASSES.log(), torch.linspace(0, 1, 10_001)[:-1], top_p=top_p))
    expected = torch.zeros(5)
    expected[kept] = MASSES[kept] / MASSES[kept].sum()
    assert torch.allclose(found, expected, atol=1e-3)


@pytest.mark.parametrize("size", [30, 200])
def test_a_nucleus_of_very_many_tokens_is_whole(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.models.local._NUCLEI", (8, 64))
    found = choose(torch.zeros(size), torch.linspace(0, 1, 2_001)[:-1], top_p=0.9)
    assert abs(len(found.unique()) - 0.9 * size) <= 1


def test_rows_of_one_batch_are_drawn_each_in_its_own_way() -> None:
    tokens = choose_tokens(
        MASSES.log().expand(3, -1),
        temperature=torch.tensor([0.0, 1.0, 1.0]),
        top_p=torch.tensor([1.0, 1.0, 0.3]),
        uniform=torch.tensor([0.99, 0.99, 0.99]),
    )
    assert tokens.tolist() == [1, 4, 1]


def test_a_uniform_that_rounds_to_one_never_takes_an_impossible_token() -> None:
    logits = torch.tensor([0.0, 0.0, -1e9, -1e9])
    assert choose(logits, torch.tensor([1.0, 0.0])).tolist() == [1, 0]


def test_uniforms_depend_on_seed_and_request_only() -> None:
    first = request_uniforms(1, "key", count=8)
    assert np.array_equal(first, request_uniforms(1, "key", count=8))
    assert np.array_equal(first[:4], request_uniforms(1, "key", count=4))
    assert not np.array_equal(first, request_uniforms(2, "key", count=8))
    assert not np.array_equal(first, request_uniforms(1, "other", count=8))
    assert ((first >= 0) & (first < 1)).all()


def test_the_model_id_names_the_weights(chat: LocalChat, tmp_path: Path) -> None:
    other = LocalChat(make_llama(tmp_path, seed=1), name="tiny", device="cpu", dtype="float32")
    assert chat.model_id.startswith("tiny@")
    assert len(chat.model_id) == len("tiny@") + 12
    assert other.model_id != chat.model_id


def test_rows_that_have_finished_leave_the_batch(chat: LocalChat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.models.local.worker_count", lambda device: 1)
    shapes = _record_shapes(chat, monkeypatch)
    answers(chat, [ask(f"q{number}", max_tokens=number + 1) for number in range(8)])
    rows = [shape[0] for shape in shapes]
    assert rows == [8, 7, 6, 5, 4, 3, 2, 1]


def test_all_workers_have_work_and_the_event_loop_has_none(chat: LocalChat, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original: Callable[..., list[Completion]] = Decoder.answer

    def record(self: Decoder, prompts: Sequence[Any], **told: Any) -> list[Completion]:
        assert threading.current_thread() is not threading.main_thread()
        sizes.append(len(prompts))
        return original(self, prompts, **told)

    monkeypatch.setattr(Decoder, "answer", record)
    monkeypatch.setattr("understudy.models.local.worker_count", lambda device: 4)
    answers(chat, [ask("hi", sample=sample, max_tokens=2) for sample in range(10)])
    assert sorted(sizes) == [1, 3, 3, 3]


def test_memory_is_given_back_after_each_batch(chat: LocalChat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(local._BATCH_TOKENS, "cpu", 1)  # every prompt is a batch
    given: list[None] = []
    monkeypatch.setattr(local, "give_back_memory", lambda: given.append(None))
    answers(chat, [ask("hi"), ask("knee"), ask("what now?")])
    assert len(given) == 3


def test_the_seconds_per_answer_are_estimated_from_the_tokens_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(local.time, "monotonic", lambda: now)
    told: list[tuple[float, int]] = []
    pace = local.Pace(lambda *each: told.append(each), 30)
    pace.begin(30)
    for _ in range(81):  # a second for each token of 30 rows
        now += 1
        pace.step(30)
    assert told[0] == (1, 30)  # a short answer has 30 tokens
    assert told[-1] == pytest.approx((82 / 30, 30))  # after 62 tokens, with 20 more
