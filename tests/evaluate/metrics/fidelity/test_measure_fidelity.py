"""All fidelity metrics together: what is measured of whom, what is left out, and that nothing breaks on odd tables."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from understudy.base.errors import ConfigError
from understudy.base.transcript import Part, TextForm
from understudy.evaluate import metrics
from understudy.evaluate.metrics.fidelity import BEGINS, BELONGING, PART_LENGTH, TURNS, measure_fidelity
from understudy.evaluate.metrics.overview import make_overview
from understudy.evaluate.metrics.results import Evaluation, result_json
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import HOLDOUT, OTHER_HALF, REAL, SYNTHETIC, MetricValue
from understudy.methods.shared.decoding.structured import JSONSchema

WORDS = ["a", "patient", "came", "with", "pain", "in", "the", "knee", "was", "sent", "home", "after", "some", "rest"]
OF_EMBEDDINGS = {"frechet_distance", "kernel_distance", "mauve", "frontier_integral", "precision", "recall"}
OF_EMBEDDINGS |= {"density", "coverage", "group_coverage"}
OF_MANY = OF_EMBEDDINGS - {"frechet_distance", "kernel_distance", "group_coverage"}
OF_TEXTS = {"length_divergence", "length_ks", "vocabulary_divergence", "distinct_n", "self_bleu"}
OF_LABELS = {"label_distance", "label_share"}
OF_JSON = {"json_parsed", "json_valid"}

OBJECTS = JSONSchema("schema.json", content=b'{"type": "object"}')


def sample(count: int, seed: int, *, dimensions: int = 8) -> Sample:
    generator = np.random.default_rng(seed)
    vectors = generator.normal(size=(count, dimensions)) + 0.5
    texts = [" ".join(generator.choice(WORDS, size=generator.integers(3, 12)).tolist()) for _ in range(count)]
    labels = generator.choice(["knee", "hip"], size=count).tolist()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return Sample(tuple(texts), tuple(labels), unit.astype(np.float32))


def alike(text: str, label: str, count: int) -> Sample:
    return Sample((text,) * count, (label,) * count, np.tile(np.eye(1, 8, dtype=np.float32), (count, 1)))


def measured(real: Sample, synthetic: Sample, holdout: Sample | None = None) -> tuple[MetricValue, ...]:
    return measure_fidelity(real, synthetic, holdout=holdout, schema=OBJECTS, seed=0, resamples=5)


def names(values: Sequence[MetricValue]) -> set[str]:
    return {measured.metric.name for measured in values}


def test_every_metric_is_measured_of_the_synthetic_texts_and_of_the_holdout() -> None:
    values = measured(sample(100, 0), sample(100, 1), sample(100, 2))
    everything = OF_EMBEDDINGS | OF_TEXTS | OF_LABELS | OF_JSON
    for of in (SYNTHETIC, HOLDOUT):
        assert names([each for each in values if each.of == of]) == everything
    assert names([each for each in values if each.of == REAL]) == {"distinct_n", "self_bleu", "label_share"} | OF_JSON
    assert all(each.value is not None and each.interval is not None for each in values)
    assert all(each.interval.low <= each.interval.high for each in values if each.interval)


def test_what_the_tables_do_not_have_is_left_out() -> None:
    real, bare = sample(30, 0), Sample(sample(30, 1).texts)
    values = measure_fidelity(real, bare, holdout=None, schema=None, seed=0, resamples=5)
    of_synthetic = names([each for each in values if each.of == SYNTHETIC])
    assert of_synthetic == OF_TEXTS
    assert not names(values) & OF_EMBEDDINGS
    values = measure_fidelity(bare, real, holdout=None, schema=None, seed=0, resamples=5)
    assert not names(values) & (OF_EMBEDDINGS | {"label_distance"})


def test_metrics_that_depend_on_the_size_are_of_equally_many_texts() -> None:
    values = measured(sample(130, 0), sample(110, 1), sample(100, 2))
    cut = {each.metric.name for each in values if each.sample_size == 100}
    assert cut == (OF_EMBEDDINGS - {"kernel_distance"}) | {"length_divergence", "length_ks"} | {
        "vocabulary_divergence",
        "label_distance",
    }


def test_more_real_texts_than_synthetic_ones_are_cut_before_they_are_compared() -> None:
    real, synthetic = sample(130, 0), sample(100, 1)
    cut = measured(real.at_most(100, seed=0), synthetic)
    whole = {(each.metric.name, each.of): each.value for each in measured(real, synthetic)}
    for each in cut:
        if each.of == SYNTHETIC and each.metric.name in {"frechet_distance", "mauve", "recall", "length_ks"}:
            assert whole[each.metric.name, each.of] == each.value


@pytest.mark.parametrize("sizes", [(99, 100), (100, 99)])
def test_metrics_of_clusters_and_neighbours_are_not_told_of_so_few_texts_that_nonsense_looks_real(
    sizes: tuple[int, int],
) -> None:
    few = measured(*(sample(size, seed) for seed, size in enumerate(sizes)))
    untold = {each.metric.name: each.note for each in few if each.value is None}
    assert untold == dict.fromkeys(OF_MANY, "Takes at least 100 texts of a table: fewer say nothing.")
    assert all("100 texts" in each.metric.definition for each in few if each.metric.name in OF_MANY)


ODD = {
    "nothing": Sample((), (), np.zeros((0, 8), np.float32)),
    "one text": sample(1, 3),
    "two texts": sample(2, 4),
    "fewer than clusters need": sample(99, 5),
    "empty texts": replace(sample(30, 6), texts=("",) * 30),
    "no words": replace(sample(30, 6), texts=("...",) * 30),
    "all the same": alike("the same", "hip", 100),
    "all nothing": replace(alike("", "", 100), embeddings=np.zeros((100, 8), np.float32)),
    "lone surrogates": replace(sample(25, 7), texts=("\ud800 x",) * 25),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_tables_give_finite_values_or_none_with_a_reason(odd: str) -> None:
    usual, table = sample(100, 0), ODD[odd]
    for real, synthetic in ((usual, table), (table, usual), (table, table), (table, ODD["nothing"])):
        values = measured(real, synthetic)
        json.dumps(result_json(Evaluation(values, None, {})), allow_nan=False)
        for each in values:
            assert each.note if each.value is None else math.isfinite(each.value)
            assert each.interval is None or each.interval.low <= each.interval.high


@pytest.mark.parametrize("name", ["usual", "all the same", "all nothing"])
def test_a_table_is_at_no_distance_from_itself(name: str) -> None:
    table = ODD.get(name, sample(100, 0))
    found = {each.metric.name: each.value for each in measured(table, table) if each.of == SYNTHETIC}
    for metric in ("frechet_distance", "frontier_integral", "length_divergence", "length_ks", "label_distance"):
        assert found[metric] == pytest.approx(0, abs=1e-9)
    for metric in ("mauve", "precision", "recall", "coverage"):
        assert found[metric] == pytest.approx(1, abs=1e-9)
    assert found["kernel_distance"] <= 1e-9


def test_only_what_the_synthetic_texts_alone_tell_is_not_private() -> None:
    real = replace(sample(30, 0), labels=("elbow",) * 30)
    values = measured(real, sample(30, 1))
    public = {(each.metric.name, each.of) for each in values if not each.reads_private}
    assert public == {(name, SYNTHETIC) for name in ("self_bleu", "label_share", "json_parsed", "json_valid")}
    labels = {each.settings["label"]: each.reads_private for each in values if each.metric.name == "label_share"}
    assert labels["elbow"], "the name of a label that only the real table has is private"


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "find_spec", lambda name: None if name == "sacrebleu" else name)
    with pytest.raises(ConfigError, match=r"missing: sacrebleu.*pip install 'understudy\[evaluate\]'"):
        measured(sample(5, 0), sample(5, 1))


# -- texts that have parts --------------------------------------------------------------------------------------------

pytest.importorskip("sklearn")
TICKET = TextForm(fields=("message", "answer"))
CHAT = TextForm(roles=("customer", "agent"))
THINGS = ("router", "phone", "lamp", "printer", "invoice", "parcel", "password", "heating")


def sample_of_parts(form: TextForm, records: list[list[Part]]) -> Sample:
    return Sample.of_transcripts([form.render(parts) for parts in records], form)


def tickets(seed: int, *, related: bool = True) -> Sample:
    generator = np.random.default_rng(seed)
    asked, said = generator.integers(len(THINGS), size=(2, 200))
    answers = asked if related else said
    return sample_of_parts(
        TICKET,
        [
            [
                Part("message", f"My {THINGS[a]} is broken again."),
                Part("answer", f"We will mend the {THINGS[b]} for you."),
            ]
            for a, b in zip(asked, answers, strict=True)
        ],
    )


def chats(seed: int, *, longest: int = 6, begins: tuple[str, str] = CHAT.roles) -> Sample:
    generator = np.random.default_rng(seed)
    return sample_of_parts(
        CHAT,
        [
            [Part(begins[place % 2], f"The {THINGS[(thing + place) % 8]}.") for place in range(turns)]
            for turns, thing in generator.integers([2, 0], [longest, 8], size=(200, 2)).tolist()
        ],
    )


def by(values: tuple[MetricValue, ...], name: str) -> dict[str, float | None]:
    return {
        each.of + "".join(f" {v}" for v in each.settings.values()): each.value
        for each in values
        if each.metric.name == name
    }


def test_answers_that_belong_to_their_messages_are_told_from_those_that_do_not() -> None:
    values = measure_fidelity(tickets(1), tickets(2, related=False), holdout=None, schema=None, seed=0)
    found = by(values, BELONGING.name)
    assert found["real message answer"] == pytest.approx(0.3, abs=0.2)
    assert found["synthetic message answer"] == pytest.approx(0, abs=0.05)
    interval = next(each.interval for each in values if each.metric is BELONGING and each.of == SYNTHETIC)
    assert interval is not None
    assert interval.low < 0 < interval.high


def test_dialogues_of_one_shape_are_as_near_as_other_real_ones() -> None:
    values = measure_fidelity(chats(1), chats(2), holdout=None, schema=None, seed=0, resamples=20)
    for metric in (TURNS, BEGINS, PART_LENGTH):
        for name, value in by(values, metric.name).items():
            assert value is not None
            assert value < 0.15, name
    assert {each.of for each in values if each.metric is TURNS} == {SYNTHETIC, OTHER_HALF}


def test_longer_dialogues_and_another_beginning_show() -> None:
    values = measure_fidelity(
        chats(1), chats(2, longest=20, begins=("agent", "customer")), holdout=None, schema=None, seed=0, resamples=20
    )
    assert by(values, TURNS.name)[SYNTHETIC] > 0.5  # type: ignore[operator]
    assert by(values, BEGINS.name)[SYNTHETIC] == 1.0


def test_names_of_parts_are_no_words_of_the_texts() -> None:
    table = chats(1)
    assert not any("customer" in text or "agent" in text for text in table.texts)
    assert "customer: " in table.transcripts[0]
    assert table.take([3, 1]).transcripts == (table.transcripts[3], table.transcripts[1])


def test_the_overview_counts_turns_and_words_in_public_bins() -> None:
    profile = make_overview({"synthetic": chats(1)}, seed=0).profiles["synthetic"]
    assert sum(profile.columns["turns"].values()) == 200
    assert profile.columns["begins"] == {"customer": 200, "agent": 0}
    assert profile.columns["words of agent"]["1 to 4"] > 200
