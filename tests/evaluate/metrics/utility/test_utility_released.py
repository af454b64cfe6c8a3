"""The perplexity of a released language model, against direct computations on a tiny one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from local_fixtures import make_llama
from transformers import AutoModelForCausalLM

from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.language import Recipe, measure_released_model, tune
from understudy.evaluate.metrics.value import MetricValue
from understudy.models.catalog import load_causal
from understudy.models.causal import CausalModel
from understudy.models.training import LoRA, TokenRow, Trainable, Weights

INSTRUCTIONS = {"pets": "Write of pets:", "sums": "A sum, please:"}
PETS = tuple(f"{name} had a little {pet}" for name in ("Mary", "Tom", "Ann", "Joe") for pet in ("lamb", "goat"))
SUMS = ("17 + 25 = 42", "9 - 3 = 6", "8 * 8 = 64")
TEST = Sample((*PETS, *SUMS), ("pets",) * len(PETS) + ("sums",) * len(SUMS))


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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_llama(tmp_path_factory.mktemp("llama"), window=64)


@pytest.fixture
def causal(folder: Path) -> CausalModel:
    return load_causal(f"hf:{folder}", device="cpu", dtype="float32")


def adapted(causal: CausalModel, *, size: float = 0.1) -> Tuned:
    """An adapter of random weights."""
    lora = LoRA(causal, rank=2, targets=("q_proj", "v_proj"), layers=None)
    lora.load(np.random.default_rng(0).normal(0, size, lora.size).astype(np.float32))
    return Tuned(lora)


def measured(tuned: Tuned, test: Sample = TEST, **options: Any) -> dict[str, MetricValue]:
    return {each.of: each for each in measure_released_model(test, tuned, **options)}


def directly(network: Any, rows: Sequence[TokenRow]) -> float:
    """What transformers makes of each row alone."""
    nats, count = 0.0, 0
    for row in rows:
        target = row.target.tolist()
        with torch.inference_mode():
            logits = network(input_ids=torch.tensor([[*row.prompt, *target]])).logits[0].double().log_softmax(-1)
        nats -= sum(float(logits[len(row.prompt) + place - 1, token]) for place, token in enumerate(target))
        count += len(target)
    return math.exp(nats / count)


def test_both_models_predict_the_texts_after_their_instructions_and_nothing_else(
    folder: Path, causal: CausalModel
) -> None:
    tuned = adapted(causal)
    found, rows = measured(tuned), tuned.rows(TEST.texts, TEST.labels)
    base = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert found["untuned"].value == pytest.approx(directly(base, rows), rel=1e-4)
    with tuned.active():
        assert found["synthetic"].value == pytest.approx(directly(tuned.network, rows), rel=1e-4)
    assert found["synthetic"].value != pytest.approx(found["untuned"].value, rel=0.01)
    for value in found.values():
        assert value.interval is not None
        assert value.value is not None
        assert value.interval.low <= value.value <= value.interval.high
        assert value.reads_private
        assert value.settings == {"model": causal.model_id}


def test_an_adapter_that_does_nothing_has_the_base_model_s_perplexity(causal: CausalModel) -> None:
    found = measured(adapted(causal, size=0.0))
    assert found["synthetic"].value == found["untuned"].value
    assert found["synthetic"].interval == found["untuned"].interval


def test_a_model_that_was_tuned_on_such_texts_beats_its_base(causal: CausalModel) -> None:
    before = measured(adapted(causal))["untuned"]
    weights = Weights(causal, blocks=2)
    tuned = Tuned(weights)
    tune(weights, tuned.rows(PETS[:6], ["pets"] * 6), Recipe(epochs=8, batch=4, rate=0.02), seed=0)
    found = measured(tuned, Sample(PETS[6:], ("pets", "pets")))
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
