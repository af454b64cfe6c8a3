"""A small Release of each method, made by hand, as its release would hand it on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from understudy.methods.dp_kde.generate import Frequencies
from understudy.methods.registry import make_method
from understudy.privacy.events import Event, GaussianEvent, MixtureEvent, PureEvent, SubsampledGaussianEvent, ZCDPEvent
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import Declared, NoisySum, Sensitivity
from understudy.privacy.plan import Charge
from understudy.privacy.unit import Unit
from understudy.release import PublicSchema, Release
from understudy.release.statement import Sealed, Statement
from understudy.schema.columns import declared_columns

LABELS = ("cardiology", "dermatology")
DIMENSION = 16


def sample(
    method: str,
    parameters: dict[str, Any],
    charges: dict[str, Event],
    *,
    arrays: dict[str, Any],
    terms: list[str] | None = None,
    strings: dict[str, list[str]] | None = None,
    columns: tuple[str, ...] = (),
) -> Release:
    secret = method == "sec-pe"
    statement = Statement(
        method=method,
        unit=Unit("secret", 2, recognised_by="detectors email") if secret else Unit(),
        budget=SecretBudget("0.01", "0.2") if secret else Budget(6, "1e-6"),
        charges=tuple(Charge(name, Declared(event), "noisy sums") for name, event in charges.items()),
        public_inputs={
            "embedder": {"source": "words", "sha256": "1" * 64},
            "model": {"source": "fake"},
            **({"private model": {"source": "builtin:tiny", "sha256": "1" * 64}} if method in TUNED else {}),
        },
        labels_declared=True,
        dataset="clinic",
        sealed=Sealed("system", "0" * 32, "1" * 32, 1),
        epsilon_at={} if secret else {1e-6: 5.5},
        power=0.5,
        notes=("A note.",),
        posterior_at={0.01: 0.2} if secret else {},
    )
    return Release(
        method=method,
        parameters={**make_method(method, parameters).dump(), "seed": 0},
        schema=PublicSchema("note", "department", LABELS, columns),
        statement=statement,
        arrays=arrays,
        terms=terms or [],
        noise_check=Facts((Fact("noise", 2.5, "noise (std)"), Fact("above", (1, 2), "above")), ("little",)),
        strings=strings or {},
    )


def dp_kps(**parameters: Any) -> Release:
    terms = [f"term {number}" for number in range(8)]
    return sample(
        "dp-kps",
        {"top_terms": 8, "length": 2, **parameters},
        {"vocabulary": GaussianEvent(2.0), "density": GaussianEvent(3.0)},
        arrays={
            "counts": np.arange(8.0),
            "real": np.ones(8),
            "density": np.random.default_rng(0).normal(3, 1, size=(2, 8)),
        },
        terms=terms,
    )


def dp_kde(mode: str) -> Release:
    draw = np.random.default_rng(0)
    vectors = draw.normal(size=(8, DIMENSION)).astype(np.float32)
    arrays: dict[str, Any] = {
        "counts": np.arange(8.0),
        "real": np.ones(8),
        "embeddings": vectors / np.linalg.norm(vectors, axis=1, keepdims=True),
        "frequencies": np.frombuffer(Frequencies(0, 20, 0.25, DIMENSION).digest, dtype=np.uint8),
    }
    names = ["density-1", "density-2"] if mode == "iterative" else ["density-1"]
    return sample(
        "dp-kde",
        {"top_terms": 8, "length": 2, "mode": mode, "bandwidth": 0.25, "features": 20, "noise": "laplace"},
        dict.fromkeys(("vocabulary", *names), PureEvent(1.0)),
        arrays=arrays | {name: draw.normal(size=(2, 40)) for name in names},
        terms=[f"term {number}" for number in range(8)],
    )


def guide_sums() -> np.ndarray[Any, Any]:
    """Of two labels of 30 and 20 records."""
    sums = np.random.default_rng(3).normal(size=(2, 1 + DIMENSION))
    sums[:, 0] = (9, 6)
    return sums


def with_guide(good: Release) -> Release:
    charge = Charge("guide", Declared(GaussianEvent(3.0)), "noisy sums")
    return replace(
        good,
        parameters={**good.parameters, "guide": True},
        statement=replace(good.statement, charges=(*good.statement.charges, charge)),
        arrays={**good.arrays, "guide": guide_sums()},
    )


def with_columns(good: Release) -> Release:
    """Of labels, a category of two values and a number in three bins; the second pair was measured."""
    columns = declared_columns("ward=A|B; fee=0.0..9.0/3")
    sizes = (2, 3, 4)  # with a cell for missing values
    by_column = {"column-density": np.ones((3 + 4, len(good.terms)))} if good.method == "dp-kps" else {}
    charges = [
        Charge(name, Declared(GaussianEvent(3.0)), "noisy sums")
        for name in ("columns", "column-scores", "column-pairs", *by_column)
    ]
    return replace(
        good,
        parameters={**good.parameters, "column_pairs": "selected"},
        schema=replace(good.schema, columns=columns),
        statement=replace(good.statement, charges=(*good.statement.charges, *charges)),
        arrays={
            **good.arrays,
            "columns": np.arange(float(sum(sizes))),
            "column-scores": np.array([5.0, 2.0, -1.0]),
            "column-pairs": np.arange(2.0 * 3 + 2 * 4),
            "column-logarithms": -np.arange(sum(sizes) + 2.0 * 3 + 2 * 4) / 9,
            "column-chosen": np.array([[0, 1], [0, 2]]),
            **by_column,
        },
    )


def guided_evolution() -> Release:
    return sample(
        "guided-evolution",
        {"rounds": 2, "population": 2, "variations": 2},
        {"guide": GaussianEvent(3.0)},
        arrays={"guide": guide_sums()},
    )


def aug_pe() -> Release:
    return sample(
        "aug-pe",
        {"rounds": 2, "population": 2, "variations": 2},
        {"votes-1": GaussianEvent(2.0), "votes-2": GaussianEvent(2.0)},
        arrays={
            "round": np.array([0, 0, 1, 1], dtype=np.int32),
            "label": np.array([0, 1, 0, 1], dtype=np.int32),
            "parent": np.array([-1, -1, 0, 1]),
            "votes": np.array([1.5, -0.5, 3.0, 2.0]),
            "chosen": np.array([1, 1, 1, 1], dtype=np.int32),
            "survivors": np.array([2, 3]),
            "failed": np.zeros((2, 2), dtype=np.int64),
        },
        strings={
            "texts": ["one", "two", "three", "four"],
            "prompts": ["random", "random", "kept", "variation"],
            "keywords-0": ["heart"],
            "keywords-1": [],
        },
    )


def sec_pe() -> Release:
    draw = np.random.default_rng(0)
    return sample(
        "sec-pe",
        {
            **{"clusters": 3, "rounds": 2, "population": 2, "variations": 2},
            **{"public_corpus": "public.csv", "public_corpus_is_public": True},
        },
        {"clusters": MixtureEvent(2.0, (((1.0, 2),),))},
        arrays={
            "sizes": draw.normal(5, 1, size=(2, 3)),
            "centres": draw.normal(size=(2, 3, DIMENSION)).astype(np.float32),
            "public_centres": draw.integers(-500, 500, size=(2, 3, DIMENSION)).astype(np.int16),
            "public_sizes": np.ones((2, 3), dtype=np.int64),
            "sums-1": draw.normal(size=(2, 3, 1 + DIMENSION)),
        },
    )


def few_shot() -> Release:
    return sample(
        "few-shot",
        {"sampling_rate": 0.1},
        {"tokens": SubsampledGaussianEvent(1.0, 0.1, 400)},
        arrays={
            "label": np.array([0, 0, 1], dtype=np.int32),
            "noisy_tokens": np.array([9, 8, 7], dtype=np.int32),
            "finished": np.array([True, True, False]),
            "usable": np.array([True, False, True]),
        },
        strings={"exemplars": ["one exemplar", "another", "a third"]},
    )


def private_prediction() -> Release:
    numbers = {name: np.array([0, 1, 0], dtype=np.int32) for name in ("label", "batch", "number", "private", "ended")}
    return sample(
        "private-prediction",
        {"batches": 2},
        {"tokens": ZCDPEvent(0.1)},
        arrays={**numbers, "tokens": np.array([3, 4, 5], dtype=np.int32)},
        strings={"texts": ["one", "two", "three"]},
    )


# Methods whose Release is a tuned model.
TUNED = {"dp-finetune", "seq-pate"}


def tuned_arrays() -> dict[str, np.ndarray[Any, Any]]:
    """Of the tiny Llama of ``local_fixtures``: queries and values of its two blocks, rank 4, and two prompts."""
    draw, matrices = np.random.default_rng(0), {}
    for layer in range(2):
        for site, gives in (("q_proj", 32), ("v_proj", 16)):
            stem = f"base_model.model.model.layers.{layer}.self_attn.{site}.lora_"
            matrices[f"{stem}A.weight"] = draw.normal(size=(4, 32)).astype(np.float32)
            matrices[f"{stem}B.weight"] = draw.normal(size=(gives, 4)).astype(np.float32)
    return {
        **matrices,
        "prompt_tokens": np.arange(10, 17, dtype=np.int32),
        "prompt_lengths": np.array([3, 4], dtype=np.int32),
    }


def dp_finetune() -> Release:
    return sample(
        "dp-finetune",
        {"declared_records": 100, "private_text_tokens": 32},
        {"training": SubsampledGaussianEvent(1.0, 0.1, 10)},
        arrays=tuned_arrays(),
        strings={"form": ["", " ", "text"]},
    )


def seq_pate() -> Release:
    """Two rounds of two questions each, about three tokens."""
    answers = NoisySum("gaussian", 2.0, Sensitivity(2.0**21, 2.0**20.5, 2.0**20), (2, 3))
    numbers = {
        "pseudo_labels": [0, 1] * 64,
        "pseudo_lengths": [2, 1] * 64,
        "pseudo_tokens": [5, 6, 7] * 64,
        "question_text": [0, 0, 1, 1],
        "question_place": [0, 1, 0, 0],
    }
    made = sample(
        "seq-pate",
        {"declared_records": 100, "private_text_tokens": 32, "queries": 4, "rounds": 2, "candidates": 3},
        {"answers-1": GaussianEvent(2.0), "answers-2": GaussianEvent(2.0)},
        arrays={
            **tuned_arrays(),
            **{name: np.array(values, dtype=np.int32) for name, values in numbers.items()},
            "candidates": np.array([[1, 2, 3], [1, 2, -1], [4, 5, 6], [7, -1, -1]], dtype=np.int32),
            "answers": np.ones((4, 3)),
        },
        strings={"form": ["", " ", "text"]},
    )
    charges = tuple(Charge(each.name, answers, each.why) for each in made.statement.charges)
    return replace(made, statement=replace(made.statement, charges=charges))


SAMPLES: dict[str, Callable[[], Release]] = {
    "dp-kps": dp_kps,
    "dp-kps guided": lambda: with_guide(dp_kps()),
    "dp-kps with columns": lambda: with_columns(dp_kps()),
    "dp-kde": lambda: dp_kde("independent"),
    "dp-kde iterative": lambda: dp_kde("iterative"),
    "guided-evolution": guided_evolution,
    "aug-pe": aug_pe,
    "sec-pe": sec_pe,
    "few-shot": few_shot,
    "private-prediction": private_prediction,
    "dp-finetune": dp_finetune,
    "dp-finetune guided": lambda: with_guide(dp_finetune()),
    "dp-finetune with columns": lambda: with_columns(dp_finetune()),
    "seq-pate": seq_pate,
}
