"""All fidelity metrics together: what is measured of whom, what is left out, and that nothing breaks on odd tables."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy, ks_2samp

from understudy.base.errors import ConfigError
from understudy.evaluate import metrics
from understudy.evaluate.metrics.fidelity import BEGINS, BELONGING, PART_LENGTH, TURNS, measure_fidelity
from understudy.evaluate.metrics.fidelity import texts as text_metrics
from understudy.evaluate.metrics.overview import make_overview
from understudy.evaluate.metrics.results import Evaluation, result_json
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import HOLDOUT, OTHER_HALF, REAL, SYNTHETIC, MetricValue
from understudy.methods.shared.decoding.structured import JSONSchema
from understudy.schema.columns import declared_columns
from understudy.schema.transcript import Part, TextForm

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
def test_metrics_of_clusters_and_neighbours_need_enough_texts(sizes: tuple[int, int]) -> None:
    few = measured(*(sample(size, seed) for seed, size in enumerate(sizes)))
    untold = {each.metric.name: each.note for each in few if each.value is None}
    assert untold == dict.fromkeys(OF_MANY, "Needs at least 100 texts of a table: fewer mean nothing.")
    assert all("100 texts" in each.metric.definition for each in few if each.metric.name in OF_MANY)


ODD = {
    "nothing": Sample((), (), np.zeros((0, 8), np.float32)),
    "one text": sample(1, 3),
    "two texts": sample(2, 4),
    "fewer than clusters need": sample(99, 5),
    "empty texts": replace(sample(30, 6), transcripts=("",) * 30),
    "no words": replace(sample(30, 6), transcripts=("...",) * 30),
    "all the same": alike("the same", "hip", 100),
    "all nothing": replace(alike("", "", 100), embeddings=np.zeros((100, 8), np.float32)),
    "lone surrogates": replace(sample(25, 7), transcripts=("\ud800 x",) * 25),
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
    return Sample(tuple(form.render(parts) for parts in records), form=form)


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


DRAWN = {"seed": 0, "resamples": 5}
LENGTHS = st.lists(st.integers(0, 50), min_size=2, max_size=60)


def test_jensen_shannon_is_the_entropy_of_the_mean_less_the_mean_entropy() -> None:
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.25, 0.5])
    expected = entropy((p + q) / 2, base=2) - (entropy(p, base=2) + entropy(q, base=2)) / 2
    assert text_metrics.jensen_shannon(p * 12, q * 8) == pytest.approx(expected)
    assert text_metrics.jensen_shannon(p, p) == 0
    assert text_metrics.jensen_shannon(np.array([1, 0]), np.array([0, 7])) == 1


@given(LENGTHS, LENGTHS)
def test_the_greatest_difference_of_lengths_is_that_of_scipy(one: list[int], two: list[int]) -> None:
    expected = ks_2samp(one, two, method="asymp").statistic
    assert text_metrics.length_ks(np.array(one), np.array(two)) == pytest.approx(expected)


@given(LENGTHS, LENGTHS)
def test_lengths_diverge_symmetrically_by_0_to_1_bit(one: list[int], two: list[int]) -> None:
    a, b = np.array(one), np.array(two)
    assert text_metrics.length_divergence(a, b) == pytest.approx(text_metrics.length_divergence(b, a[::-1]))
    assert 0 <= text_metrics.length_divergence(a, b) <= 1
    assert text_metrics.length_divergence(a, a) == pytest.approx(0, abs=1e-12)


def test_few_different_lengths_are_compared_one_by_one() -> None:
    a, b = np.array([3] * 6 + [5] * 2), np.array([3] * 2 + [5] * 6)
    assert text_metrics.length_divergence(a, b) == pytest.approx(jensenshannon([6, 2], [2, 6], base=2) ** 2)


def test_vocabularies_diverge_as_their_word_counts_do() -> None:
    real, other = [["a", "b"], ["a"], []], [["b", "c"], ["b", "b", "c"]]
    found = text_metrics.vocabulary_values(real, other, of=SYNTHETIC, **DRAWN)[0]
    assert found.value == pytest.approx(jensenshannon([2, 1, 0], [0, 3, 2], base=2) ** 2)
    assert found.interval is None
    assert found.note


@pytest.mark.parametrize("turned", [False, True])
def test_the_vocabulary_interval_knows_the_texts_of_both_tables(turned: bool) -> None:
    tables = [[["a"], ["b"]] * 10, [["a"]] * 20]
    real, other = reversed(tables) if turned else tables
    interval = text_metrics.vocabulary_values(real, other, of=SYNTHETIC, **DRAWN)[0].interval
    assert interval is not None
    assert interval.low < interval.high


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=6), max_size=8), st.integers(1, 3))
def test_distinct_is_the_number_of_different_ngrams_within_texts(words: list[list[str]], n: int) -> None:
    found = [tuple(text[place : place + n]) for text in words for place in range(len(text) - n + 1)]
    numbers, texts = text_metrics.ngrams(words, n)
    assert len(numbers) == len(texts) == len(found)
    assert text_metrics.distinct(numbers) == (len(set(found)) / len(found) if found else 0)
    assert [sum(texts == row) for row in range(len(words))] == [max(0, len(text) - n + 1) for text in words]


def test_a_table_is_cut_to_just_so_many_words_of_whole_texts_but_the_last() -> None:
    words = [[f"{row}-{place}" for place in range(4)] for row in range(10)]
    kept = text_metrics.first_words(words, 14, seed=0)
    assert [len(text) for text in kept] == [4, 4, 4, 2]
    assert all(text == words[int(text[0].split("-")[0])][: len(text)] for text in kept)
    assert text_metrics.first_words(words, 0, seed=0) == []
    assert sorted(text_metrics.first_words(words, 1000, seed=0)) == sorted(words)


def test_distinct_is_compared_on_equally_many_words() -> None:
    few, many = [["a", "b", "c", "d"]] * 5, [["a", "b", "c", "d"]] * 500
    one, two = (text_metrics.distinct_values(words, SYNTHETIC, total=20, **DRAWN) for words in (few, many))
    assert [each.value for each in one] == [each.value for each in two] == [4 / 20, 3 / 15, 2 / 10]


def test_self_bleu_is_the_mean_of_sentence_bleu_against_the_others() -> None:
    texts = ["the cat sat on the mat", "the cat lay on the mat today", "a dog sat on the mat", "a dog", "the the the"]
    texts = [*texts, "the cat sat on the mat", "", "A dog, of course."]
    bleu = BLEU(effective_order=True)
    others = [[*texts[:place], *texts[place + 1 :]] for place in range(len(texts))]
    expected = [bleu.sentence_score(text, rest).score / 100 for text, rest in zip(texts, others, strict=True)]
    assert text_metrics.self_bleu(texts) == pytest.approx(expected)
    assert text_metrics.self_bleu_values(texts, SYNTHETIC, **DRAWN)[0].value == pytest.approx(np.mean(expected))


def test_copies_of_less_than_four_words_are_copies_too() -> None:
    assert text_metrics.self_bleu(["too short"] * 3) == pytest.approx([1] * 3)


def test_the_label_distance_is_half_the_sum_of_differences() -> None:
    real, other = ["a"] * 5 + ["b"] * 5, ["a"] * 2 + ["c"] * 8
    assert text_metrics.label_distance_values(real, other, of=SYNTHETIC, **DRAWN)[0].value == pytest.approx(
        (0.3 + 0.5 + 0.8) / 2
    )
    assert text_metrics.label_distance_values(real, real[::-1], of=SYNTHETIC, **DRAWN)[0].value == 0


def test_every_label_of_any_table_has_its_share() -> None:
    values = text_metrics.label_share_values(["a", "a", "b"], HOLDOUT, names=["a", "b", "c"])
    assert {each.settings["label"]: each.value for each in values} == {"a": 2 / 3, "b": 1 / 3, "c": 0}


VALID = '{"age": 3}'
PARSES = ['{"age": "three"}', "[1]", "7", '"text"', "null", ' {"age": true} ']
BROKEN = ["", "age: 3", '{"age": 3', '{"age": NaN}', '{"age": 1, "age": 2}', '{"age": 1e999}', "{'age': 3}"]
BROKEN += ['"\\ud800"', "[" * 5000, '{"age": 3} {"age": 3}']
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


def test_the_shares_of_json_and_of_valid_json_are_counted_strictly() -> None:
    parsed, valid = text_metrics.validity_values(
        [VALID, *PARSES, *BROKEN], SYNTHETIC, schema=JSONSchema("schema.json", content=json.dumps(SCHEMA).encode())
    )
    count = 1 + len(PARSES) + len(BROKEN)
    assert parsed.value == (1 + len(PARSES)) / count
    assert valid.value == 1 / count
    assert valid.interval is not None
    assert valid.interval.low < valid.value < valid.interval.high


# -- typed columns ----------------------------------------------------------------------------------------------------

COLUMNS = declared_columns("ward=A|B; night")
FEW = {"of": SYNTHETIC, "seed": 0, "resamples": 5}


def table(cells: Sequence[Sequence[int]], labels: Sequence[str] | None = None) -> Sample:
    texts = tuple(f"text {number}" for number in range(len(cells)))
    return Sample(texts, None if labels is None else tuple(labels), None, np.array(cells, np.int32), COLUMNS)


def named(values: Sequence[MetricValue], of: str = SYNTHETIC) -> dict[tuple[object, ...], float | None]:
    return {
        (each.metric.name.removeprefix("column_"), *each.settings.values()): each.value
        for each in values
        if each.of == of and each.metric.name.startswith("column")
    }


def test_distances_are_half_the_summed_differences_of_shares_missing_cells_and_labels_included() -> None:
    real = table([[0, 0], [0, 1], [1, 0], [2, 0]], "xxyy")
    other = table([[0, 0], [1, 1], [1, 1], [1, 2]], "xxxx")
    found = named(text_metrics.column_values(real, other, **FEW))  # type: ignore[arg-type]
    assert found == pytest.approx(
        {
            ("distance", "label"): 0.5,
            ("distance", "ward"): 0.5,
            ("distance", "night"): 0.5,
            ("pair_distance", "label", "ward"): 0.75,  # x0 x0 y1 y2 against x0 x1 x1 x1
            ("pair_distance", "label", "night"): 0.5,
            ("pair_distance", "ward", "night"): 0.75,
            ("pairs_mean",): 2 / 3,
            ("pairs_largest",): 0.75,
        }
    )


def fidelity(real: Sample, synthetic: Sample, holdout: Sample | None = None) -> tuple[MetricValue, ...]:
    return measure_fidelity(real, synthetic, holdout=holdout, schema=None, seed=0, resamples=20)


def test_the_yardstick_is_another_half_of_the_real_rows_and_never_the_synthetic_ones() -> None:
    real = table(np.random.default_rng(0).integers(2, size=(100, 2)))
    constant = table([[0, 0]] * 300)
    values = fidelity(real, constant)
    assert 0 < named(values, OTHER_HALF)["pairs_mean",] < 0.3 < named(values)["pairs_mean",]  # type: ignore[operator]
    assert {each.sample_size for each in values if each.metric.name.startswith("column")} == {50}
    assert all(
        each.interval is not None and each.interval.low <= (each.value or 0) <= each.interval.high
        for each in values
        if each.metric.name.startswith("column")
    )


def test_held_out_rows_are_the_yardstick_where_there_are_some() -> None:
    generator = np.random.default_rng(0)
    real, other = table(generator.integers(2, size=(90, 2))), table(generator.integers(2, size=(60, 2)))
    values = fidelity(real, table([[2, 2]] * 80), other)
    assert named(values)["distance", "ward"] == 1
    assert named(values, HOLDOUT)["distance", "ward"] < 0.5  # type: ignore[operator]
    assert not named(values, OTHER_HALF)


def test_tables_too_small_to_halve_have_a_note_and_those_without_columns_nothing() -> None:
    real, synthetic = table([[0, 0]] * 2), table([[0, 0]] * 5)
    assert set(named(fidelity(real, synthetic)).values()) == {None}
    bare = Sample(real.texts)
    assert not named(fidelity(bare, synthetic))
    assert not named(fidelity(real, bare))


def test_rows_keep_their_cells_when_some_are_taken() -> None:
    made = table([[number % 3, number % 2] for number in range(30)])
    for part in (made.at_most(7, seed=1), *made.halves(seed=2)):
        numbers = [int(text.split()[1]) for text in part.texts]
        assert part.cells is not None
        assert part.cells.tolist() == [[number % 3, number % 2] for number in numbers]
        assert part.columns == COLUMNS
    with pytest.raises(ValueError, match="one cell per text"):
        Sample(("a", "b"), cells=np.zeros((2, 1), np.int32), columns=COLUMNS)
