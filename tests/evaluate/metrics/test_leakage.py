"""What leaks is found, what does not is not flagged, and nothing makes it stumble."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import combinations
from math import sqrt

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Indel

from understudy.corpus.secrets.detectors import Detector, make_detectors
from understudy.evaluate.metrics import leakage
from understudy.evaluate.metrics.intervals import chance_of_none
from understudy.evaluate.metrics.sample import Sample, normal_words
from understudy.evaluate.metrics.value import MetricValue
from understudy.schema.columns import declared_columns

DETECTORS = make_detectors(("email", "phone"))


def sentences(count: int, seed: int, *, words: int = 40, vocabulary: int = 2000) -> list[str]:
    """Random texts; two of different seeds share words, and next to never three in a row."""
    drawn = np.random.default_rng(seed).integers(vocabulary, size=(count, words))
    return [" ".join(f"w{number}" for number in row) for row in drawn]


def directions(count: int, seed: int, *, d: int = 8) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, d))
    return (drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(np.float32)


def sample(texts: list[str], seed: int) -> Sample:
    return Sample(tuple(texts), None, directions(len(texts), seed))


def value(values: tuple[MetricValue, ...], name: str, of: str = "synthetic", **settings: object) -> float | None:
    (found,) = [
        measured
        for measured in values
        if measured.metric.name == name and measured.of == of and settings.items() <= measured.settings.items()
    ]
    return found.value


REAL, SYNTHETIC, HOLDOUT = sentences(60, 1), sentences(40, 2), sentences(50, 3)


def measure(
    synthetic: list[str] = SYNTHETIC,
    *,
    real: list[str] = REAL,
    holdout: list[str] | None = HOLDOUT,
    public: tuple[str, ...] = (),
    detectors: tuple[Detector, ...] = DETECTORS,
) -> tuple[MetricValue, ...]:
    held = None if holdout is None else sample(holdout, 13)
    return leakage.measure_leakage(
        sample(real, 11), sample(synthetic, 12), holdout=held, public=public, detectors=detectors, seed=0, resamples=20
    )


def test_a_clean_table_is_not_flagged() -> None:
    values = measure()
    assert value(values, "longest_copied_span", texts=40) <= 3
    for name in ("copied_words", "pii_replayed"):
        assert all(each.value == 0 for each in values if each.metric.name == name)
    assert value(values, "ngram_containment", n=5) == value(values, "unique_ngram_containment", n=13) == 0
    assert value(values, "near_duplicates", similarity=0.8) == 0


def test_a_text_copied_whole_is_found_by_every_metric_of_texts() -> None:
    values = measure([*SYNTHETIC[1:], REAL[7].upper().replace(" ", ",  ")])
    assert value(values, "longest_copied_span", texts=40) == 40
    assert value(values, "copied_words") == pytest.approx(1 / 40)
    assert value(values, "ngram_containment", n=5) == pytest.approx(1 / 40)
    assert value(values, "unique_ngram_containment", n=13) == pytest.approx(1 / 40)
    assert value(values, "near_duplicates", similarity=0.9) == pytest.approx(1 / 40)
    assert value(values, "near_duplicates", of="holdout", similarity=0.8) == 0


def test_a_copied_span_inside_another_text_is_found() -> None:
    span = " ".join(REAL[7].split()[20:32])
    values = measure([*SYNTHETIC[1:], f"{SYNTHETIC[0]} {span} and so on"])
    assert value(values, "longest_copied_span", texts=40) == 12
    assert value(values, "copied_words") == pytest.approx(12 / (40 * 40 + 15))
    assert value(values, "near_duplicates", similarity=0.8) == 0


def test_a_lightly_edited_text_is_a_near_duplicate() -> None:
    words = REAL[7].split()
    words[5::10] = ["other"] * 4
    values = measure([*SYNTHETIC[1:], " ".join(words)])
    assert value(values, "near_duplicates", similarity=0.8) == pytest.approx(1 / 40)
    assert value(values, "longest_copied_span", texts=40) == 9


def test_a_phrase_of_all_real_texts_is_no_records_own() -> None:
    common = "all rights reserved by the company that wrote this"
    values = measure([f"{text} {common}" for text in SYNTHETIC], real=[f"{text} {common}" for text in REAL])
    assert value(values, "ngram_containment", n=5) > 0.1
    assert value(values, "unique_ngram_containment", n=5) < 0.01


def test_a_replayed_address_is_counted_and_never_shown() -> None:
    values = measure(
        [*SYNTHETIC[1:], "Write to ANN@Example.org, today"],
        real=[*REAL[2:], "mail ann@example.org or bob@example.org", "bob@example.org, eve@example.org"],
    )
    assert value(values, "pii_replayed", detector="email", texts=40) == 1
    assert value(values, "pii_replayed_share", detector="email") == pytest.approx(1 / 3)
    assert value(values, "pii_replayed", of="holdout", detector="email", texts=50) == 0
    assert value(values, "pii_replayed", detector="phone", texts=40) == 0
    assert value(values, "pii_replayed_share", detector="phone") is None
    written = json.dumps([asdict(measured) for measured in values])
    assert not any(name in written.casefold() for name in ("ann@", "bob@", "eve@"))


def test_an_address_that_the_output_may_have_from_public_inputs_is_told_apart() -> None:
    real = [*REAL[2:], "mail ann@example.org", "or press@example.org"]
    values = measure(
        [*SYNTHETIC[1:], "press@example.org and ann@example.org"], real=real, public=("See PRESS@example.org.",)
    )
    assert value(values, "pii_replayed", detector="email", texts=40) == 1
    assert value(values, "pii_replayed_share", detector="email") == 1
    assert value(values, "pii_replayed_public", detector="email") == 1


def test_the_same_texts_again_are_flagged_by_every_metric() -> None:
    real = [f"{text} a{number}@example.org" for number, text in enumerate(REAL)]
    table = sample(real, 11)
    held = sample(sentences(len(REAL), 3), 13)
    values = leakage.measure_leakage(table, table, holdout=held, detectors=DETECTORS, seed=0, resamples=20)
    assert value(values, "copied_words") == value(values, "unique_ngram_containment", n=13) == 1
    assert value(values, "near_duplicates", similarity=0.9) == 1
    assert value(values, "distance_to_closest_record", quantile=0.5) == 0
    assert value(values, "nearest_neighbour_distance_ratio", quantile=0.5) == 0
    assert value(values, "nearer_to_real_than_holdout") == 1
    assert value(values, "pii_replayed_share", detector="email") == 1
    assert value(values, "distance_to_closest_record", of="holdout", quantile=0.05) > 0


def test_maxima_and_counts_are_also_given_for_equal_sizes() -> None:
    values = measure([*SYNTHETIC[1:], REAL[7], REAL[8]], holdout=HOLDOUT[:1])
    sizes = [(each.of, each.settings["texts"]) for each in values if each.metric.name == "longest_copied_span"]
    assert sizes == [("synthetic", 41), ("synthetic", 1), ("holdout", 1)]
    assert value(values, "longest_copied_span", texts=41) == 40
    assert value(values, "longest_copied_span", texts=1) < 6


ODD = {
    "no texts": [],
    "one text": ["only this"],
    "empty texts": ["", " ", "\n"],
    "no words": ["!!!", "...", "😀"],
    "the same text": ["now and then"] * 5,
    "no blanks": ["我爱北京天安门", "ฉันรักประเทศไทย", "東京は日本の首都です"],
    "lone surrogates": ["\ud800 x", "x \udfff"],
    "long word": ["x" * 10_000],
}


def assert_sound(real: Sample, synthetic: Sample, holdout: Sample | None) -> None:
    values = leakage.measure_leakage(real, synthetic, holdout=holdout, detectors=DETECTORS, seed=0, resamples=5)
    json.dumps([asdict(measured) for measured in values], allow_nan=False)
    for measured in values:
        assert measured.note if measured.value is None else math.isfinite(measured.value)


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD.keys())
def test_odd_tables_give_finite_numbers_or_none_with_a_note(odd: list[str]) -> None:
    for real, synthetic in ((REAL, odd), (odd, SYNTHETIC), (odd, odd), (odd, [])):
        assert_sound(sample(real, 1), sample(synthetic, 2), sample([*real, *synthetic][:2], 3))
    assert_sound(Sample(tuple(odd)), Sample(tuple(odd)), None)
    assert_sound(Sample(tuple(odd)), Sample(tuple(odd)), Sample(()))


def test_characters_are_the_words_of_scripts_without_blanks() -> None:
    values = measure(["他说我爱北京天安门上太阳升"], real=["我爱北京天安门上太阳升,天安门上太阳升"], holdout=None)
    assert value(values, "longest_copied_span") == 11


def test_the_same_seed_gives_the_same_values() -> None:
    assert [asdict(measured) for measured in measure()] == [asdict(measured) for measured in measure()]


@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=8), data=st.data())
def test_the_chance_of_none_counts_choices(lengths: list[int], data: st.DataObject) -> None:
    drawn = data.draw(st.integers(1, len(lengths)))
    marked = np.arange(len(lengths) + 1)
    choices = list(combinations(range(len(lengths)), drawn))
    counted = [np.mean([min(choice) >= count for choice in choices]) for count in marked]
    assert chance_of_none(marked, len(lengths), drawn) == pytest.approx(counted)


def test_the_longest_span_of_fewer_texts_is_the_mean_over_all_choices() -> None:
    real = ["abcdefgh"]
    longer, shorter = ["abcde", "abx", "x", "cdef", "h"], ["x", "y"]
    values = leakage.measure_copying(real, {"synthetic": longer, "holdout": shorter}, seed=0, resamples=2)
    found = {
        (each.of, each.settings["texts"]): each.value for each in values if each.metric.name == "longest_copied_span"
    }
    choices = combinations([5, 2, 0, 4, 1], 2)
    assert found["synthetic", 5] == 5
    assert found["synthetic", 2] == pytest.approx(np.mean([max(choice) for choice in choices]))
    assert found["holdout", 2] == 0


def test_the_count_of_replayed_strings_of_fewer_texts_is_the_mean_over_all_choices() -> None:
    texts = ["a@x.org", "b@x.org and a@x.org", "c@x.org", "nothing", "b@x.org"]
    values = leakage.measure_replay(
        ["a@x.org b@x.org d@x.org"],
        {"synthetic": texts, "holdout": ["", "e@x.org"]},
        public=(),
        detectors=make_detectors(["email"]),
    )
    found = {(each.of, each.settings["texts"]): each.value for each in values if each.metric.name == "pii_replayed"}
    choices = combinations([{"a"}, {"a", "b"}, set(), set(), {"b"}], 2)
    assert found["synthetic", 5] == 2
    assert found["synthetic", 2] == pytest.approx(np.mean([len(set.union(*choice)) for choice in choices]))
    assert found["holdout", 2] == 0


def test_the_real_text_that_shares_most_words_is_found_among_many_candidates() -> None:
    frame = [f"frame{number}" for number in range(40)]
    real = [[*frame, *(f"own{text}of{number}" for number in range(20))] for text in range(400)]
    (_, close) = leakage.measure_near_duplicates(real, {"synthetic": [[*real[399][:-2], "two", "others"]]}, seed=0)
    assert (close.settings["similarity"], close.value) == (0.9, 1.0)


@pytest.mark.parametrize("edits", [1, 2, 4, 6, 8])
def test_near_duplicates_are_those_that_all_pairs_would_show(edits: int) -> None:
    generator = np.random.default_rng(edits)
    real = [[f"word{number}" for number in row] for row in generator.integers(900, size=(80, 30))]
    others = []
    for words in real[:60]:
        places = generator.choice(30, size=edits, replace=False)
        others.append([f"new{at}" if at in places else word for at, word in enumerate(words)])
    others += [[f"word{number}" for number in row] for row in generator.integers(900, size=(20, 30))]

    def most(words: list[str]) -> float:
        return max(Indel.normalized_similarity(" ".join(words), " ".join(text)) for text in real)

    by_level = {
        measured.settings["similarity"]: measured.value
        for measured in leakage.measure_near_duplicates(real, {"synthetic": others}, seed=0)
    }
    similar = np.array([most(words) for words in others])
    assert by_level == {level: np.mean(similar >= level) for level in (0.8, 0.9)}


COORDINATE = st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0])
VECTORS = st.lists(st.tuples(COORDINATE, COORDINATE, COORDINATE), min_size=2, max_size=7)


def placed(vectors: list[tuple[float, float, float]]) -> Sample:
    return Sample(("",) * len(vectors), None, np.array(vectors, dtype=np.float32))


def slow_distances(texts: Sample, reference: Sample) -> list[list[float]]:
    return [
        sorted(
            sqrt(sum((float(a) - float(b)) ** 2 for a, b in zip(one, other, strict=True)))
            for other in reference.embeddings
        )
        for one in texts.embeddings
    ]


@settings(max_examples=20)
@given(real=VECTORS, synthetic=VECTORS, holdout=VECTORS)
@example(real=[(1, 0, 0), (1, 0, 0)], synthetic=[(1, 0, 0), (0, 1, 0)], holdout=[(0, 1, 0), (0, 0, 1)])
def test_neighbours_are_those_of_the_definition(
    real: list[tuple[float, float, float]],
    synthetic: list[tuple[float, float, float]],
    holdout: list[tuple[float, float, float]],
) -> None:
    size = min(len(real), len(holdout))
    tables = placed(real[:size]), placed(synthetic), placed(holdout[:size])
    values = {
        (measured.metric.name, measured.of, measured.settings.get("quantile")): measured.value
        for measured in leakage.measure_neighbours(
            tables[0], {"synthetic": tables[1], "holdout": tables[2]}, seed=0, resamples=3
        )
    }
    for of, texts in (("synthetic", tables[1]), ("holdout", tables[2])):
        found = slow_distances(texts, tables[0])
        ratios = [row[0] / row[1] if row[1] else 1.0 for row in found]
        for level in (0.05, 0.5):
            closest = values["distance_to_closest_record", of, level]
            assert closest == pytest.approx(np.quantile([row[0] for row in found], level), abs=1e-6)
            ratio = values["nearest_neighbour_distance_ratio", of, level]
            assert ratio == pytest.approx(np.quantile(ratios, level), abs=1e-6)
    pairs = zip(slow_distances(tables[1], tables[0]), slow_distances(tables[1], tables[2]), strict=True)
    wins = [0.5 if mine[0] == held[0] else float(mine[0] < held[0]) for mine, held in pairs]
    assert values["nearer_to_real_than_holdout", "synthetic", None] == pytest.approx(np.mean(wins))


def rows(*rows: tuple[str, str, int]) -> Sample:
    texts, labels, cells = zip(*rows, strict=True)
    columns = declared_columns("ward=A|B")
    return Sample(texts, labels, cells=np.array(cells, np.int32)[:, None], columns=columns)


def test_only_rows_that_are_equal_in_everything_count() -> None:
    real = rows(("a", "x", 0), ("b", "x", 1))
    synthetic = rows(("a", "x", 0), ("a", "x", 1), ("a", "y", 0), ("c", "x", 0))
    found = {each.of: each.value for each in leakage.measure_rows(real, {"synthetic": synthetic, "holdout": real})}
    assert found == {"synthetic": 0.25, "holdout": 1.0}
    assert not list(leakage.measure_rows(Sample(("a",)), {"synthetic": synthetic}))
    assert not list(leakage.measure_rows(real, {"synthetic": Sample(("a",))}))


# -- shared phrases against slow definitions --------------------------------------------------------------------------

Texts = Sequence[Sequence[str]]

TEXTS = st.lists(st.lists(st.sampled_from("abc"), max_size=12), max_size=6)


def slow_ngrams(words: Sequence[str], n: int) -> list[tuple[str, ...]]:
    return [tuple(words[at : at + n]) for at in range(len(words) - n + 1)]


def slow_longest(real: Texts, words: Sequence[str]) -> int:
    lengths = range(1, len(words) + 1)
    return max(
        (n for n in lengths if any(set(slow_ngrams(words, n)) & set(slow_ngrams(text, n)) for text in real)), default=0
    )


def slow_covered(real: Texts, words: Sequence[str], n: int) -> int:
    inside = set()
    for size in range(n, len(words) + 1):
        for at, phrase in enumerate(slow_ngrams(words, size)):
            if any(phrase in slow_ngrams(text, size) for text in real):
                inside |= set(range(at, at + size))
    return len(inside)


@given(real=TEXTS, others=TEXTS)
@example(real=[], others=[["a"]])
@example(real=[["a"]], others=[])
@example(real=[], others=[])
@example(real=[[]], others=[[]])
@example(real=["abcdefghijkl"], others=["abcdefghijkl", "xabcdefghijky"])
@example(real=[["a"] * 12], others=[["a"] * 11, ["a"] * 12])
def test_the_longest_shared_phrase_is_that_of_the_definition(real: Texts, others: Texts) -> None:
    assert leakage.Phrases(real, others).longest().tolist() == [slow_longest(real, words) for words in others]


@given(real=TEXTS, others=TEXTS, n=st.integers(1, 5))
def test_covered_words_are_those_of_the_definition(real: Texts, others: Texts, n: int) -> None:
    covered, words = leakage.Phrases(real, others).covered(n)
    assert covered.tolist() == [slow_covered(real, text, n) for text in others]
    assert words.tolist() == [len(text) for text in others]


@given(real=TEXTS, others=TEXTS, n=st.integers(1, 7))
@example(real=[["a", "b"], ["a", "b"]], others=[["a", "b", "a"]], n=2)
@example(real=[["a"]], others=[["a", "b", "c", "a", "b", "c", "a"]], n=6)
def test_ngrams_are_counted_as_defined(real: Texts, others: Texts, n: int) -> None:
    in_any, in_one, all_of_them = leakage.Phrases(real, others).ngrams(n)
    holders = [
        [sum(ngram in slow_ngrams(text, n) for text in real) for ngram in slow_ngrams(words, n)] for words in others
    ]
    assert in_any.tolist() == [sum(count > 0 for count in counts) for counts in holders]
    assert in_one.tolist() == [sum(count == 1 for count in counts) for counts in holders]
    assert all_of_them.tolist() == [len(counts) for counts in holders]


def test_a_phrase_does_not_cross_the_end_of_a_text() -> None:
    real, others = [["a", "b"], ["c", "d"]], [["a", "b", "c", "d"]]
    assert leakage.Phrases(real, others).longest().tolist() == [2]
    assert leakage.Phrases(others, real).ngrams(3)[2].tolist() == [0, 0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't  PANIC, Zoë!", ["don", "t", "panic", "zoë"]),
        ("snake_case x-ray", ["snake", "case", "x", "ray"]),
        ("我爱北京。", ["我", "爱", "北", "京"]),
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("...  \n", []),
        ("", []),
    ],
)
def test_words_have_no_case_and_no_punctuation_and_need_no_blanks(text: str, words: list[str]) -> None:
    assert normal_words(text) == words
