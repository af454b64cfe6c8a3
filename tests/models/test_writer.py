"""The writer: its adapters as they ship, merged into a model; and answers steered to their phrases."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import pytest
import torch
from local_fixtures import make_llama, random_adapters, shipped_with
from safetensors.torch import load
from test_local import answers
from transformers import AutoModelForCausalLM, AutoTokenizer

from understudy.models import local, writer
from understudy.models.local import BEGIN, CONTINUE, MOST, LocalChat, Steering, lengthening
from understudy.models.types import ChatRequest
from understudy.text.prompts.writer import Brief


@pytest.fixture
def shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, torch.Tensor]]:
    folder = make_llama(tmp_path / "tiny")
    matrices = random_adapters(folder)
    monkeypatch.setattr(writer, "_content", lambda: shipped_with(matrices))
    writer.fingerprint.cache_clear()
    return folder, matrices


def test_merging_adds_a_part_of_scale_times_up_times_down_to_every_layer(
    shipped: tuple[Path, dict[str, torch.Tensor]],
) -> None:
    folder, matrices = shipped
    plain, merged = (AutoModelForCausalLM.from_pretrained(folder) for _ in range(2))
    writer.merge(merged)
    for number, layer in enumerate(plain.model.layers):
        for name in writer.LINEAR:
            change = writer.KEPT * writer.SCALE * matrices[f"{number}.{name}.up"] @ matrices[f"{number}.{name}.down"]
            found = merged.model.layers[number].get_submodule(name).weight - layer.get_submodule(name).weight
            assert float(((found - change).norm() / change.norm()).detach()) < 0.02  # eight bits


def test_matrices_come_back_from_eight_bits_within_half_a_step() -> None:
    matrix = torch.randn(5, 40) * torch.tensor([1e-6, 0.1, 1, 10, 1e4])[:, None]
    made = writer.quantised({"m": matrix, "zero": torch.zeros(2, 3)})
    back = made["m"].float() * made["m.scales"][:, None]
    assert made["m"].dtype == torch.int8
    assert bool(((back - matrix).abs() <= matrix.abs().amax(1, keepdim=True) / 127 / 2 * 1.001).all())
    assert not made["zero"].any()


def test_the_writer_has_a_name_of_its_own_so_that_answers_of_the_plain_model_are_not_taken_for_its(
    shipped: tuple[Path, dict[str, torch.Tensor]],
) -> None:
    plain = LocalChat(shipped[0], name="tiny", device="cpu", dtype="float32")
    trained = LocalChat(shipped[0], name="tiny", device="cpu", dtype="float32", writer=True)
    assert trained.model_id.startswith("tiny+writer@")
    assert plain.model_id.startswith("tiny@")
    request = ChatRequest(Brief("note", phrases=("knee",)).messages, max_tokens=12)
    assert answers(plain, [request]) != answers(trained, [request])


def test_phrases_steer_the_writer_and_nobody_else(shipped: tuple[Path, dict[str, torch.Tensor]]) -> None:
    plain = LocalChat(shipped[0], name="tiny", device="cpu", dtype="float32")
    asked = [ChatRequest(Brief("note").messages, max_tokens=12, phrases=each) for each in ((), ("knee",))]
    first, second = answers(plain, asked)
    assert first.text != second.text  # another request, with randomness of its own
    assert asked[0].key("m") != asked[1].key("m")


def test_an_answer_of_the_writer_is_judged_by_the_mean_vote_of_its_tokens(
    shipped: tuple[Path, dict[str, torch.Tensor]], monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = LocalChat(shipped[0], name="tiny", device="cpu", dtype="float32", writer=True)
    tokens, take = list[int](), local._Row.take
    monkeypatch.setattr(local._Row, "take", lambda row, token, *rest: (tokens.append(token), take(row, token, *rest)))
    request = ChatRequest(Brief("note").messages, max_tokens=12, phrases=("knee", "pain"))
    (answer,) = answers(chat, [request])
    prompt, said, judge = chat._tokens(request.messages), tokens[:11], writer.Judge.shipped("cpu")
    with torch.inference_mode():
        found = chat._decoder._model(torch.tensor([prompt + said]), output_hidden_states=True).hidden_states
    odds = (found[1][0, len(prompt) :] @ judge.weights).mean() + judge.bias
    assert answer.sense == pytest.approx(float(odds), abs=1e-3)
    plain = LocalChat(shipped[0], name="tiny", device="cpu", dtype="float32")
    assert answers(plain, [request])[0].sense is None


def test_an_answer_is_judged_alike_alone_and_in_a_batch(shipped: tuple[Path, dict[str, torch.Tensor]]) -> None:
    chat = LocalChat(shipped[0], name="tiny", device="cpu", dtype="float32", writer=True)
    asked = [ChatRequest(Brief("note").messages, max_tokens=most, phrases=("knee",), sample=most) for most in (3, 5, 9)]
    asked += [ChatRequest(Brief("longer letter, of a doctor").messages, max_tokens=7, phrases=("knee", "pain"))]
    alone = [answers(chat, [each])[0].sense for each in asked]
    assert [each.sense for each in answers(chat, asked)] == pytest.approx(alone, abs=1e-3)


@pytest.fixture(scope="module")
def tokenizer(llama: Path) -> object:
    return AutoTokenizer.from_pretrained(llama)


def steered(tokenizer: object, text: str, phrases: tuple[str, ...], *, most: int = 200) -> torch.Tensor:
    """What is added to the logits behind ``text``."""
    logits = torch.zeros(len(tokenizer))  # type: ignore[arg-type]
    Steering(phrases, tokenizer, most=most).steer(logits, tokenizer(text)["input_ids"])  # type: ignore[operator]
    return logits


def token(tokenizer: object, letter: str) -> int:
    return int(tokenizer(letter)["input_ids"][0])  # type: ignore[operator]


def test_a_phrase_is_sought_until_it_is_there_as_a_word(tokenizer: object) -> None:
    for text in ("the knee", "the kneecap, no pain"):
        assert steered(tokenizer, text, ("knee", "pain")).any()
    for text, phrases in (("the knee is a kneecap, no pain", ("knee", "pain")), ("Knee PAIN", ("knee", "pain"))):
        assert not steered(tokenizer, text, phrases).any()
    assert not steered(tokenizer, "x-ray", ("x ray",)).any()


def test_a_text_may_end_before_its_phrases_are_there(tokenizer: object) -> None:
    """A phrase that fits nowhere would become a sentence of its own; another answer is kept instead."""
    assert steered(tokenizer, "the knee is better.", ("knee", "pain"))[2] == 0


def test_a_phrase_that_has_begun_goes_on_and_one_that_is_missing_may_begin(tokenizer: object) -> None:
    logits = steered(tokenizer, "the kn", ("knee",))
    assert logits[token(tokenizer, "e")] == CONTINUE
    begins = steered(tokenizer, "the", ("knee",))
    assert begins[token(tokenizer, " ")] == 2 * BEGIN  # of both forms: as it is, and with a capital
    late = steered(tokenizer, "the" + "x" * 40, ("knee",))
    assert begins[token(tokenizer, " ")] < late[token(tokenizer, " ")] == 2 * MOST


def test_a_phrase_is_not_lengthened_to_another_word(tokenizer: object) -> None:
    logits = torch.zeros(len(tokenizer))  # type: ignore[arg-type]
    answer = tokenizer("a knee")["input_ids"]  # type: ignore[operator]
    Steering(("knee",), tokenizer, most=200, longer=lengthening(tokenizer)).steer(logits, answer)
    banned = {letter for letter in "cZ9 .,'" if logits[token(tokenizer, letter)] == float("-inf")}
    assert banned == set("cZ9")


def test_a_phrase_is_lengthened_to_another_one_that_is_missing(tokenizer: object) -> None:
    for phrases, text in ((("knee", "kneecaps"), "a knee"), (("pay", "payment", "payee"), "to pay")):
        logits = torch.zeros(len(tokenizer))  # type: ignore[arg-type]
        answer = tokenizer(text)["input_ids"]  # type: ignore[operator]
        Steering(phrases, tokenizer, most=200, longer=lengthening(tokenizer)).steer(logits, answer)
        following = {longer[len(phrases[0])] for longer in phrases[1:]}
        assert all(logits[token(tokenizer, letter)] >= CONTINUE for letter in following)
        assert logits[token(tokenizer, "z")] == float("-inf")


def test_an_answer_near_its_longest_may_end_without(tokenizer: object) -> None:
    assert not steered(tokenizer, "abcdefghijklmnopq", ("knee",), most=20).any()


def test_no_four_tokens_come_twice(tokenizer: object) -> None:
    logits = steered(tokenizer, "knee abc abd ab", ("knee",))
    banned = [number for number, value in enumerate(logits.tolist()) if value]
    assert banned == sorted(token(tokenizer, letter) for letter in "cd")


def test_behind_a_sentence_a_phrase_begins_with_a_capital(llama: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(llama)
    words = {"knee": 7, " knee": 8, " Knee": 9}
    steering = Steering(("knee",), lambda text, **_: {"input_ids": [words[text]]}, most=200)
    steering._tokenizer = tokenizer
    logits = torch.zeros(20)
    steering.steer(logits, tokenizer("It hurts.")["input_ids"])
    assert logits[8] == 0 < logits[9]


def test_what_is_asked_has_the_form_of_the_training() -> None:
    asked = Brief("letter", label="rent", words=40, phrases=("key", "deposit"), details="city: Rome")
    assert asked.prompt == "letter about rent, 40 words\ncity: Rome\nWords: key, deposit"
    (turn,) = asked.messages
    assert (turn.role, turn.content) == ("system", asked.prompt)


def test_the_shipped_file_is_small_and_made_of_bytes() -> None:
    content = resources.files("understudy.models").joinpath(writer.FILE).read_bytes()
    matrices = load(content)
    assert len(content) < 6_000_000
    assert {matrix.dtype for name, matrix in matrices.items() if name + ".scales" in matrices} == {torch.int8}
    assert sum(not name.startswith("judge.") for name in matrices) == 2 * 2 * len(writer.LINEAR) * 30
