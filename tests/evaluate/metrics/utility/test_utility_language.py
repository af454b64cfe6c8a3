"""A language model tuned on synthetic texts, against direct computations on tiny models."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
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
from understudy.evaluate.metrics.utility import language as lm
from understudy.evaluate.metrics.value import MetricValue
from understudy.models.catalog import load_causal
from understudy.models.causal import CausalModel
from understudy.models.training import LoRA, TokenRow, Trainable, Weights

TEXTS = ["A cat sat.", "dogs", "", "The sea is calm tonight, the tide is full.", "x"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("llama"), window=384)


@pytest.fixture(scope="module")
def spec(folder: Path) -> str:
    return f"hf:{folder}"


@pytest.fixture(scope="module")
def model(spec: str) -> CausalModel:
    return plain(spec)


def plain(spec: str) -> CausalModel:
    return load_causal(spec, device="cpu", dtype="float32")


def tuned(model: CausalModel, rows: Sequence[TokenRow], recipe: lm.Recipe) -> torch.nn.Module:
    weights = Weights(model, blocks=recipe.blocks)
    lm.tune(weights, rows, recipe, seed=0)
    return weights.network


def whole(row: TokenRow) -> list[int]:
    return [*row.prompt, *row.target.tolist()]


def directly(folder: Path, row: list[int]) -> tuple[float, int]:
    """What transformers makes of one row alone: surprise in nats, and how often the likeliest token was right."""
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        chances = network(input_ids=torch.tensor([row])).logits[0, :-1].double().log_softmax(-1)
    surprise = -sum(float(chances[place, token]) for place, token in enumerate(row[1:]))
    return surprise, sum(int(chances[place].argmax()) == token for place, token in enumerate(row[1:]))


def by_name(values: tuple[MetricValue, ...]) -> dict[tuple[str, str], MetricValue]:
    return {(measured.metric.name.removeprefix("language_model_"), measured.of): measured for measured in values}


def value(measured: MetricValue) -> float:
    assert measured.value is not None
    return measured.value


def test_a_score_is_what_transformers_says_of_each_text_alone(folder: Path, model: CausalModel) -> None:
    rows = lm.rows_of(model, TEXTS, tokens=20)
    found = lm.score(model, model.network, rows)
    assert len(rows) == 4  # the empty text has nothing to predict
    for number, row in enumerate(map(whole, rows)):
        surprise, right = directly(folder, row)
        assert found.surprise[number] == pytest.approx(surprise, rel=1e-4)
        assert found.right[number] == right
        assert found.tokens[number] == len(row) - 1


def test_texts_are_cut_and_begin_with_a_token_of_the_tokenizers(model: CausalModel) -> None:
    rows = lm.rows_of(model, TEXTS, tokens=7)
    assert {tuple(row.prompt) for row in rows} == {(2,)}  # no beginning token, so the one that ends a text
    assert [len(row.target) for row in rows] == [7, 4, 7, 1]
    assert rows[0].target.tolist() == model.encode("A cat s")


def test_without_a_token_to_begin_with_the_first_one_is_not_predicted(
    folder: Path, model: CausalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CausalModel, "begin", [])
    monkeypatch.setattr(model, "ends", frozenset())
    rows = lm.rows_of(model, ["cat", "x", "go"], tokens=20)
    found = lm.score(model, model.network, rows)
    assert found.tokens.tolist() == [2, 1]  # of one token nothing is left
    assert found.surprise[0] == pytest.approx(directly(folder, model.encode("cat"))[0], rel=1e-4)


def test_figures_are_sums_over_all_tokens(folder: Path, spec: str) -> None:
    found = by_name(lm.measure_language_model(None, Sample(tuple(TEXTS)), {}, model=spec, device="cpu"))
    rows = [[2, *plain(spec).encode(text)] for text in TEXTS if text]
    surprises, rights = zip(*(directly(folder, row) for row in rows), strict=True)
    tokens = sum(len(row) - 1 for row in rows)
    near = 0.02  # the model may compute in bfloat16 here
    assert value(found["perplexity", "untuned"]) == pytest.approx(math.exp(sum(surprises) / tokens), rel=5 * near)
    assert value(found["accuracy", "untuned"]) == pytest.approx(sum(rights) / tokens, abs=near)
    assert value(found["bits", "untuned"]) == pytest.approx(sum(surprises) / math.log(2) / tokens, rel=near)


NURSERY = tuple(f"{name} had a little {pet}" for name in ("Mary", "Tom", "Ann", "Joe") for pet in ("lamb", "goat"))
QUICK = lm.Recipe(texts=8, tokens=24, epochs=8, blocks=2, batch=4, rate=0.02)


def test_a_model_tuned_in_the_domain_beats_the_untuned_and_one_tuned_elsewhere(spec: str) -> None:
    found = by_name(
        lm.measure_language_model(
            Sample(NURSERY[:4]),
            Sample(NURSERY[4:]),
            {"near": Sample(NURSERY[2:6]), "far": Sample(("17 + 25 = 42", "9 - 3 = 6", "8 * 8 = 64", "1 / 2"))},
            model=spec,
            device="cpu",
            recipe=QUICK,
        )
    )
    perplexity = {of: value(found["perplexity", of]) for of in ("untuned", "near", "far", "real")}
    assert perplexity["near"] < perplexity["untuned"] / 2
    assert perplexity["real"] < perplexity["untuned"] / 2
    assert perplexity["near"] < perplexity["far"] / 2
    assert value(found["accuracy", "near"]) > value(found["accuracy", "untuned"]) + 0.2
    assert value(found["bits", "near"]) < value(found["bits", "untuned"])
    for measured in found.values():
        assert measured.interval is not None
        assert measured.interval.low <= value(measured) <= measured.interval.high
        assert measured.reads_private


def test_as_many_real_texts_are_taken_as_the_largest_synthetic_table_has(spec: str) -> None:
    found = by_name(
        lm.measure_language_model(
            Sample(NURSERY), Sample(NURSERY), {"a": Sample(NURSERY[:2]), "b": Sample(NURSERY[:3])},
            model=spec, device="cpu", recipe=lm.Recipe(epochs=1),
        )
    )  # fmt: skip
    notes = {of: found["perplexity", of].note for of in ("untuned", "a", "b", "real")}
    assert notes["untuned"] == "not tuned"
    assert [notes[of].split(" texts")[0] for of in ("a", "b", "real")] == ["tuned on 2", "tuned on 3", "tuned on 3"]


def test_the_outcome_is_the_seeds(spec: str) -> None:
    def run(seed: int) -> list[float | None]:
        tables = {"near": Sample(NURSERY)}
        values = lm.measure_language_model(
            None, Sample(NURSERY), tables, model=spec, device="cpu", recipe=QUICK, test_texts=3, seed=seed
        )
        return [measured.value for measured in values]

    assert run(1) == run(1) != run(2)


def test_tables_tuned_at_the_same_time_are_as_each_by_itself(spec: str) -> None:
    tables = {f"table {number}": Sample(NURSERY[number : number + 3]) for number in range(4)}

    def run(some: dict[str, Sample]) -> dict[tuple[str, str], MetricValue]:
        return by_name(lm.measure_language_model(None, Sample(NURSERY), some, model=spec, device="cpu", recipe=QUICK))

    together = run(tables)
    for name, table in tables.items():
        assert run({name: table})["perplexity", name] == together["perplexity", name]


def test_tuning_takes_the_steps_of_a_plain_loop(folder: Path, model: CausalModel) -> None:
    """One epoch of one batch against torch by hand: all weights of the last block, AdamW, clipped gradients."""
    rows = lm.rows_of(model, NURSERY[:3], tokens=24)
    found = tuned(model, rows, lm.Recipe(epochs=1, blocks=1, batch=3, rate=0.01))
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    block = network.model.layers[-1]
    logits = torch.cat([network(torch.tensor([row])).logits[0, :-1] for row in map(whole, rows)])
    true = torch.tensor([token for row in rows for token in row.target.tolist()])
    torch.nn.functional.cross_entropy(logits, true).backward()
    torch.nn.utils.clip_grad_norm_(block.parameters(), 1.0)
    torch.optim.AdamW(block.parameters(), lr=0.01).step()
    for mine, expected in zip(found.model.layers[-1].parameters(), block.parameters(), strict=True):
        assert torch.allclose(mine, expected, atol=1e-4)


def test_tuning_leaves_the_model_as_it_was_and_shares_all_but_the_last_blocks(model: CausalModel) -> None:
    before = {name: weight.clone() for name, weight in model.network.named_parameters()}
    found = tuned(model, lm.rows_of(model, NURSERY, tokens=24), lm.Recipe(epochs=1, blocks=1))
    for name, weight in model.network.named_parameters():
        assert torch.equal(weight, before[name])
        own = dict(found.named_parameters())[name]
        assert (own is weight) != (".layers.1." in name)
        assert torch.equal(own, weight) == (own is weight)


@pytest.mark.parametrize("texts", [(), ("",)])
def test_without_test_texts_there_are_no_values(spec: str, texts: tuple[str, ...]) -> None:
    found = lm.measure_language_model(None, Sample(texts), {"near": Sample(NURSERY)}, model=spec, device="cpu")
    assert [(measured.value, measured.of) for measured in found] == [(None, "untuned")] * 3 + [(None, "near")] * 3
    assert all("no test text" in measured.note for measured in found)


@pytest.mark.parametrize("texts", [(), ("",)])
def test_a_table_without_texts_has_no_values(spec: str, texts: tuple[str, ...]) -> None:
    found = by_name(
        lm.measure_language_model(None, Sample(NURSERY), {"empty": Sample(texts)}, model=spec, device="cpu")
    )
    assert found["perplexity", "untuned"].value is not None
    assert found["perplexity", "empty"].value is None
    assert found["perplexity", "empty"].settings == found["perplexity", "untuned"].settings == {"model": spec}
    assert found["perplexity", "empty"].note == "there is no text to tune on"


def test_a_model_that_broke_in_tuning_has_no_values(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(weights: Weights, rows: Sequence[TokenRow], recipe: lm.Recipe, *, seed: int) -> None:
        weights.load(np.full(weights.size, np.nan, dtype=np.float32))

    monkeypatch.setattr(language, "tune", broken)
    tables = {"near": Sample(NURSERY)}
    recipe = lm.Recipe(epochs=1)
    found = by_name(lm.measure_language_model(None, Sample(NURSERY), tables, model=spec, device="cpu", recipe=recipe))
    assert found["perplexity", "near"].value is None
    assert "not finite" in found["perplexity", "near"].note
    assert found["perplexity", "untuned"].value is not None


# -- the perplexity of a released language model, against direct computations on a tiny one ---------------------------


INSTRUCTIONS = {"pets": "Write of pets:", "sums": "A sum, please:"}
SUMS = ("17 + 25 = 42", "9 - 3 = 6", "8 * 8 = 64")
TEST = Sample((*NURSERY, *SUMS), ("pets",) * len(NURSERY) + ("sums",) * len(SUMS))


@dataclass(frozen=True)
class Tuned:
    """A tuned model of labels with instructions of different lengths."""

    trainable: Trainable

    @property
    def causal(self) -> CausalModel:
        return self.trainable.causal

    @property
    def network(self) -> Any:
        return self.trainable.network

    @contextmanager
    def active(self) -> Iterator[None]:
        with self.trainable.active():
            yield

    def rows(self, texts: Sequence[str], labels: Sequence[str] | None) -> list[TokenRow]:
        encode = self.causal.encode
        return [
            TokenRow(encode(INSTRUCTIONS[label]), np.array(encode(text), dtype=np.int32))
            for text, label in zip(texts, labels or (), strict=False)
            if label in INSTRUCTIONS and text
        ]


@pytest.fixture
def causal(folder: Path) -> CausalModel:
    return load_causal(f"hf:{folder}", device="cpu", dtype="float32")


def adapted(causal: CausalModel, *, size: float = 0.1) -> Tuned:
    """An adapter of random weights."""
    lora = LoRA(causal, rank=2, targets=("q_proj", "v_proj"), layers=None)
    lora.load(np.random.default_rng(0).normal(0, size, lora.size).astype(np.float32))
    return Tuned(lora)


def measured(tuned: Tuned, test: Sample = TEST, **options: Any) -> dict[str, MetricValue]:
    return {each.of: each for each in lm.measure_released_model(test, tuned, **options)}


def perplexity_directly(network: Any, rows: Sequence[TokenRow]) -> float:
    """What transformers makes of each row alone."""
    nats, count = 0.0, 0
    for row in rows:
        target = row.target.tolist()
        with torch.inference_mode():
            logits = network(input_ids=torch.tensor([[*row.prompt, *target]])).logits[0].double().log_softmax(-1)
        nats -= sum(float(logits[len(row.prompt) + place - 1, token]) for place, token in enumerate(target))
        count += len(target)
    return math.exp(nats / count)


def test_both_models_predict_the_texts_after_their_instructions_alone(folder: Path, causal: CausalModel) -> None:
    tuned = adapted(causal)
    found, rows = measured(tuned), tuned.rows(TEST.texts, TEST.labels)
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert found["untuned"].value == pytest.approx(perplexity_directly(base, rows), rel=1e-4)
    with tuned.active():
        assert found["synthetic"].value == pytest.approx(perplexity_directly(tuned.network, rows), rel=1e-4)
    assert found["synthetic"].value != pytest.approx(found["untuned"].value, rel=0.01)
    for value in found.values():
        assert value.interval is not None
        assert value.value is not None
        assert value.interval.low <= value.value <= value.interval.high
        assert value.reads_private
        assert value.settings == {"model": causal.model_id}


def test_a_model_that_was_tuned_on_such_texts_beats_its_base(causal: CausalModel) -> None:
    before = measured(adapted(causal))["untuned"]
    weights = Weights(causal, blocks=2)
    tuned = Tuned(weights)
    lm.tune(weights, tuned.rows(NURSERY[:6], ["pets"] * 6), lm.Recipe(epochs=8, batch=4, rate=0.02), seed=0)
    found = measured(tuned, Sample(NURSERY[6:], ("pets", "pets")))
    tuned_value, untuned_value = found["synthetic"].value, found["untuned"].value
    assert tuned_value is not None
    assert untuned_value is not None
    assert tuned_value < untuned_value / 2
    assert measured(tuned)["untuned"] == before


def test_texts_are_cut_and_sampled(causal: CausalModel) -> None:
    tuned = adapted(causal)
    cut = Sample(tuple(text[:5] for text in TEST.texts), TEST.labels)  # a character is a token here
    assert measured(tuned, tokens=5) == measured(tuned, cut) != measured(tuned)
    few = measured(tuned, test_texts=3, seed=1)
    assert few == measured(tuned, TEST.at_most(3, seed=1), seed=1) != measured(tuned, test_texts=3, seed=2)


def test_a_note_says_where_the_model_was_tuned_on_the_test_texts(causal: CausalModel) -> None:
    notes = {of: value.note for of, value in measured(adapted(causal), trained_on=True).items()}
    assert "was tuned: give others with --holdout" in notes["synthetic"]
    assert notes["untuned"] == "not tuned"
    assert measured(adapted(causal))["synthetic"].note == ""


@pytest.mark.parametrize(
    "test", [Sample(("a b",), ("poems",)), Sample(("a b",)), Sample((), ()), Sample(("",), ("pets",))]
)
def test_texts_that_the_model_cannot_be_asked_for_have_no_value(causal: CausalModel, test: Sample) -> None:
    found = measured(adapted(causal), test)
    assert [(each.of, each.value) for each in found.values()] == [("synthetic", None), ("untuned", None)]
    assert all(each.note == "no test text has a known label and a token" for each in found.values())


@pytest.mark.parametrize("factor", [math.nan, 100.0], ids=["not a number", "beyond measure"])
def test_a_broken_model_has_no_value(causal: CausalModel, factor: float) -> None:
    weights = Weights(causal, blocks=None)
    weights.load(weights.start() * np.float32(factor))
    found = measured(Tuned(weights))
    assert found["synthetic"].value is None
    assert found["synthetic"].note == "the model's perplexity is not finite"
    assert found["untuned"].value is not None


def test_a_texts_score_does_not_hang_on_the_texts_beside_it(model: CausalModel) -> None:
    texts = [f"{'word ' * (number % 7)}{number}" for number in range(40)]
    together = lm.score(model, model.network, lm.rows_of(model, texts, tokens=30))
    for number in (0, 6, 17, 39):
        alone = lm.score(model, model.network, lm.rows_of(model, [texts[number]], tokens=30))
        assert together.surprise[number] == pytest.approx(alone.surprise[0], rel=1e-4)
        assert together.right[number] == alone.right[0]


def test_texts_longer_than_the_window_are_cut_to_it(model: CausalModel) -> None:
    rows = lm.rows_of(model, ["a" * 500], tokens=1000)
    assert len(whole(rows[0])) == model.window
    assert lm.score(model, model.network, rows).tokens.tolist() == [model.window - 1]


def test_the_perplexity_of_a_model_that_knows_nothing_is_its_vocabulary(tmp_path: Path) -> None:
    folder = make_llama(tmp_path)
    network = AutoModelForCausalLM.from_pretrained(folder)
    torch.nn.init.zeros_(network.get_output_embeddings().weight)
    network.save_pretrained(folder)
    found = by_name(lm.measure_language_model(None, Sample(tuple(TEXTS)), {}, model=f"hf:{folder}", device="cpu"))
    perplexity, bits = found["perplexity", "untuned"], found["bits", "untuned"]
    vocabulary = 259
    assert value(perplexity) == pytest.approx(vocabulary)
    assert perplexity.interval is not None
    assert perplexity.interval.low == pytest.approx(vocabulary)
    assert value(bits) == pytest.approx(math.log2(vocabulary))  # a character is a token here


LABELS = ("ham", "sp", "spam")


def answered_directly(folder: Path, prompt: list[int], answer: list[int]) -> float:
    """What transformers says of one prompt with one answer, in one pass without a cache."""
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        chances = network(input_ids=torch.tensor([[*prompt, *answer]])).logits[0].double().log_softmax(-1)
    return sum(float(chances[len(prompt) - 1 + place, token]) for place, token in enumerate(answer))


def test_an_answers_score_is_the_probability_of_all_its_tokens(folder: Path, model: CausalModel) -> None:
    questions = [[5, 9, 30], [7], [40, 41, 42, 43, 44, 45], [200, 3]]
    answers = [[60], [60, 61], [70, 71, 72]]  # one begins another
    for shots in ([50, 51, 52, 53], [50]):
        found = lm.answer_scores(model, shots, questions, answers)
        for row, question in enumerate(questions):
            for column, answer in enumerate(answers):
                expected = answered_directly(folder, [*shots, *question], answer)
                assert found[row, column] == pytest.approx(expected, rel=1e-4)


def test_a_prompt_names_the_labels_shows_the_texts_and_asks(model: CausalModel) -> None:
    frame = lm.Questions(model, LABELS, tokens=9)
    prompt = [*frame.shots(("win\n money", "hello"), ("spam", "ham")), *frame.question("a text too long")]
    assert model.decode(prompt) == (
        "Each text is one of: ham, sp, spam.\n\nText: win money\nLabel: spam\n\nText: hello\nLabel: ham\n\n"
        "Text: a text to\nLabel:"
    )


def test_no_answer_begins_another(model: CausalModel) -> None:
    frame = lm.Questions(model, LABELS, tokens=9)
    short, long = frame.answer("sp"), frame.answer("spam")
    assert long[: len(short)] != short
    assert len(long) > len(short) > 1  # labels of several tokens


def test_calibration_is_the_papers_formula() -> None:
    generator = np.random.default_rng(0)
    scores, content_free = generator.normal(-9, 3, (6, 4)), generator.normal(-9, 3, (3, 4))
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    p_cf = (np.exp(content_free) / np.exp(content_free).sum(axis=1, keepdims=True)).mean(axis=0)
    expected = p @ np.diag(1 / p_cf)
    found = lm.calibrated(scores, content_free)
    assert found == pytest.approx(expected / expected.sum(axis=1, keepdims=True))
    assert found.sum(axis=1) == pytest.approx(1)


def test_calibration_bears_answers_of_any_length() -> None:
    """Long answers have probabilities that no float holds."""
    scores = np.array([[-2000.0, -3000.0], [-2010.0, -2990.0]])
    assert lm.calibrated(scores, np.array([[-2005.0, -2995.0]])).argmax(axis=1).tolist() == [0, 1]


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


ASKED = Sample(tuple(f"it is {label} {n}" for n in range(10) for label in "ABCD"), tuple("ABCD" * 10))


def run(folder: Path, **options: Any) -> dict[tuple[str, Any], Any]:
    settings = {"label_names": tuple("ABCD"), "model": f"hf:{folder}", "device": "cpu", "shots": (0, 4), **options}
    values = lm.measure_in_context(ASKED, settings.pop("pools", {"synthetic": ASKED, "real": ASKED}), **settings)
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
    wrong = Sample(ASKED.texts, tuple("BCDA" * 10))
    found = run(folder, pools={"good": ASKED, "wrong": wrong}, repetitions=3)
    assert found["good", 4].value == 1.0
    assert found["wrong", 4].value == 0.0


def test_shots_are_choosen_evenly_over_the_labels_and_each_at_most_once() -> None:
    pool = Sample(tuple(map(str, range(20))), ("a",) * 15 + ("b",) * 4 + ("c",))
    for count, labels in ((3, "abc"), (6, "aabbc"), (9, "aaaabbbbc"), (20, "a" * 15 + "bbbbc")):
        drawn = lm._choose(pool, count, seed=(1, 2))
        assert len(set(drawn.texts)) == count
        assert Counter(drawn.labels) >= Counter(labels)
        assert all(pool.labels[int(text)] == label for text, label in zip(drawn.texts, drawn.labels or (), strict=True))  # type: ignore[index]
    assert len(set(lm._choose(pool, 2, seed=(1, 2)).labels or ())) == 2
    assert (
        lm._choose(pool, 5, seed=(1, 2)).texts
        == lm._choose(pool, 5, seed=(1, 2)).texts
        != lm._choose(pool, 5, seed=(1, 3)).texts
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
        (Sample(ASKED.texts), "fewer than 4"),
        (Sample((), ()), "fewer than 4"),
        (ASKED.take([0, 1, 2]), "fewer than 4"),
        (Sample(ASKED.texts, ("other",) * 40), "fewer than 4"),
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
    values = lm.measure_in_context(test, {"synthetic": ASKED}, label_names=tuple(labels), model=f"hf:{folder}")
    assert [measured.value for measured in values] == [None] * 3
    assert all("two labels" in measured.note for measured in values)


def test_a_score_does_not_hang_on_the_questions_beside_it(model: CausalModel) -> None:
    questions = [[5 + number, *range(20, 20 + number % 9)] for number in range(70)]  # three blocks
    answers = [[60, 61], [70]]
    together = lm.answer_scores(model, [50], questions, answers)
    for number in (0, 31, 32, 69):
        alone = lm.answer_scores(model, [50], [questions[number]], answers)
        assert together[number] == pytest.approx(alone[0], rel=1e-4)
