"""A language model shown a few labelled texts, against direct computations on tiny models."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from local_fixtures import make_llama
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM

from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility import language
from understudy.evaluate.metrics.utility.language import (
    Questions,
    _choose,
    answer_scores,
    calibrated,
    measure_in_context,
)
from understudy.models.catalog import load_causal
from understudy.models.causal import CausalModel

LABELS = ("ham", "sp", "spam")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("llama"), window=384)


@pytest.fixture(scope="module")
def model(folder: Path) -> CausalModel:
    return load_causal(f"hf:{folder}", device="cpu", dtype="float32")


def directly(folder: Path, prompt: list[int], answer: list[int]) -> float:
    """What transformers says of one prompt with one answer, in one pass without a cache."""
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        chances = network(input_ids=torch.tensor([[*prompt, *answer]])).logits[0].double().log_softmax(-1)
    return sum(float(chances[len(prompt) - 1 + place, token]) for place, token in enumerate(answer))


def test_an_answers_score_is_the_probability_of_all_its_tokens(folder: Path, model: CausalModel) -> None:
    questions = [[5, 9, 30], [7], [40, 41, 42, 43, 44, 45], [200, 3]]
    answers = [[60], [60, 61], [70, 71, 72]]  # one begins another
    for shots in ([50, 51, 52, 53], [50]):
        found = answer_scores(model, shots, questions, answers)
        for row, question in enumerate(questions):
            for column, answer in enumerate(answers):
                expected = directly(folder, [*shots, *question], answer)
                assert found[row, column] == pytest.approx(expected, rel=1e-4)


def test_a_prompt_names_the_labels_shows_the_texts_and_asks(model: CausalModel) -> None:
    frame = Questions(model, LABELS, tokens=9)
    prompt = [*frame.shots(("win\n money", "hello"), ("spam", "ham")), *frame.question("a text too long")]
    assert model.decode(prompt) == (
        "Each text is one of: ham, sp, spam.\n\nText: win money\nLabel: spam\n\nText: hello\nLabel: ham\n\n"
        "Text: a text to\nLabel:"
    )


def test_no_answer_begins_another(model: CausalModel) -> None:
    frame = Questions(model, LABELS, tokens=9)
    short, long = frame.answer("sp"), frame.answer("spam")
    assert long[: len(short)] != short
    assert len(long) > len(short) > 1  # labels of several tokens


def test_calibration_is_the_papers_formula() -> None:
    generator = np.random.default_rng(0)
    scores, content_free = generator.normal(-9, 3, (6, 4)), generator.normal(-9, 3, (3, 4))
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    p_cf = (np.exp(content_free) / np.exp(content_free).sum(axis=1, keepdims=True)).mean(axis=0)
    expected = p @ np.diag(1 / p_cf)
    found = calibrated(scores, content_free)
    assert found == pytest.approx(expected / expected.sum(axis=1, keepdims=True))
    assert found.sum(axis=1) == pytest.approx(1)


def test_calibration_bears_answers_of_any_length() -> None:
    """Long answers have probabilities that no float holds."""
    scores = np.array([[-2000.0, -3000.0], [-2010.0, -2990.0]])
    assert calibrated(scores, np.array([[-2005.0, -2995.0]])).argmax(axis=1).tolist() == [0, 1]


class Parrot:
    """Scores as a model has them that leans towards the first label by more than what the texts tell it."""

    def __init__(self, lean: float) -> None:
        self._lean = lean

    def __call__(
        self, model: CausalModel, shots: list[int], questions: list[list[int]], answers: list[list[int]]
    ) -> NDArray[np.float64]:
        texts = [model.decode(question) for question in questions]
        told = [[1.0 if model.decode(answer).strip() in text else 0.0 for answer in answers] for text in texts]
        return np.array(told) + np.array([self._lean, *[0.0] * (len(answers) - 1)]) - 20


TEST = Sample(tuple(f"it is {label} {n}" for n in range(10) for label in "ABCD"), tuple("ABCD" * 10))


def run(folder: Path, **options: Any) -> dict[tuple[str, Any], Any]:
    settings = {"label_names": tuple("ABCD"), "model": f"hf:{folder}", "device": "cpu", "shots": (0, 4), **options}
    values = measure_in_context(TEST, settings.pop("pools", {"synthetic": TEST, "real": TEST}), **settings)
    return {(measured.of, measured.settings["shots"]): measured for measured in values}


def test_a_lean_towards_one_label_is_calibrated_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "answer_scores", Parrot(lean=5.0))
    assert run(folder, repetitions=2)["synthetic", 4].value == 1.0
    monkeypatch.setattr(language, "calibrated", lambda scores, content_free: scores)
    assert run(folder, repetitions=2)["synthetic", 4].value == 0.25  # the broken twin always says A


def test_every_pool_and_number_of_shots_has_a_figure_and_no_shots_have_one(folder: Path) -> None:
    found = run(folder, shots=(4, 0, 2, 4), repetitions=2, test_texts=8)
    assert list(found) == [("no shots", 0), ("synthetic", 2), ("real", 2), ("synthetic", 4), ("real", 4)]
    for measured in found.values():
        assert 0 <= measured.interval.low <= measured.value <= measured.interval.high <= 1
        assert measured.reads_private
    assert "shots" in found["real", 4].interval.method
    assert "shots" not in found["no shots", 0].interval.method


def test_the_model_tells_texts_apart_by_their_shots_alone(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in model that answers with the labels in its prompt: good shots score high, wrong ones low."""

    def copies(
        model: CausalModel, shots: list[int], questions: list[list[int]], answers: list[list[int]]
    ) -> NDArray[np.float64]:
        shown = [each.split("\nLabel: ") for each in model.decode(shots).split("Text: ")[1:]]
        told = {text.split()[2]: label.strip() for text, label in shown}
        texts = [[*model.decode(question).split("\n")[0].split(), "", "", ""][3] for question in questions]
        names = [model.decode(answer).strip() for answer in answers]
        return np.array([[float(told.get(text) == name) for name in names] for text in texts])

    monkeypatch.setattr(language, "answer_scores", copies)
    wrong = Sample(TEST.texts, tuple("BCDA" * 10))
    found = run(folder, pools={"good": TEST, "wrong": wrong}, repetitions=3)
    assert found["good", 4].value == 1.0
    assert found["wrong", 4].value == 0.0


def test_shots_are_choosen_evenly_over_the_labels_and_each_at_most_once() -> None:
    pool = Sample(tuple(map(str, range(20))), ("a",) * 15 + ("b",) * 4 + ("c",))
    for count, labels in ((3, "abc"), (6, "aabbc"), (9, "aaaabbbbc"), (20, "a" * 15 + "bbbbc")):
        drawn = _choose(pool, count, seed=(1, 2))
        assert len(set(drawn.texts)) == count
        assert Counter(drawn.labels) >= Counter(labels)
        assert all(pool.labels[int(text)] == label for text, label in zip(drawn.texts, drawn.labels or (), strict=True))  # type: ignore[index]
    assert len(set(_choose(pool, 2, seed=(1, 2)).labels or ())) == 2
    assert (
        _choose(pool, 5, seed=(1, 2)).texts
        == _choose(pool, 5, seed=(1, 2)).texts
        != _choose(pool, 5, seed=(1, 3)).texts
    )


@pytest.mark.parametrize(("letters", "fits"), [(306, True), (307, True), (308, False)])
def test_the_whole_window_is_used(folder: Path, letters: int, fits: bool) -> None:
    """34 tokens name the labels, 13 and 4 stand around a shot, 22 are a question and 4 an answer: 384 in all."""
    pools = {"synthetic": Sample(("x" * letters,), ("A",))}
    found = run(folder, pools=pools, shots=(1,), repetitions=1, test_texts=1, tokens=400)["synthetic", 1]
    assert (found.value is not None) == fits
    assert fits or "do not fit the model's window of 384 tokens" in found.note


@pytest.mark.parametrize(
    ("pool", "note"),
    [
        (Sample(TEST.texts), "fewer than 4"),
        (Sample((), ()), "fewer than 4"),
        (TEST.take([0, 1, 2]), "fewer than 4"),
        (Sample(TEST.texts, ("other",) * 40), "fewer than 4"),
    ],
    ids=["no labels", "no texts", "too few", "unknown labels"],
)
def test_a_pool_that_has_not_enough_shots_has_no_figure(folder: Path, pool: Sample, note: str) -> None:
    found = run(folder, pools={"synthetic": pool}, shots=(4,))
    assert found["synthetic", 4].value is None
    assert found["synthetic", 4].settings == {"shots": 4, "model": f"hf:{folder}"}
    assert note in found["synthetic", 4].note


@pytest.mark.parametrize(
    ("test", "labels"),
    [(Sample(("a", "b")), "ABCD"), (Sample((), ()), "ABCD"), (Sample(("a",), ("A",)), "A")],
    ids=["no labels", "no texts", "one label"],
)
def test_where_there_is_nothing_to_tell_apart_there_is_no_figure(folder: Path, test: Sample, labels: str) -> None:
    values = measure_in_context(test, {"synthetic": TEST}, label_names=tuple(labels), model=f"hf:{folder}")
    assert [measured.value for measured in values] == [None] * 3
    assert all("two labels" in measured.note for measured in values)


def test_a_score_does_not_hang_on_the_questions_beside_it(model: CausalModel) -> None:
    questions = [[5 + number, *range(20, 20 + number % 9)] for number in range(70)]  # three blocks
    answers = [[60, 61], [70]]
    together = answer_scores(model, [50], questions, answers)
    for number in (0, 31, 32, 69):
        alone = answer_scores(model, [50], [questions[number]], answers)
        assert together[number] == pytest.approx(alone[0], rel=1e-4)
