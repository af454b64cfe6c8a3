"""Near duplicates, neighbours and sizes, each against brute force; and copied rows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import sqrt

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rapidfuzz.distance import Indel

from understudy.base.columns import declared_columns
from understudy.evaluate.metrics.intervals import chance_of_none
from understudy.evaluate.metrics.leakage import (
    Phrases,
    measure_copying,
    measure_near_duplicates,
    measure_neighbours,
    measure_replay,
    measure_rows,
    normal_words,
)
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import HOLDOUT, SYNTHETIC


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
    values = measure_copying(real, {"synthetic": longer, "holdout": shorter}, seed=0, resamples=2)
    found = {
        (each.of, each.settings["texts"]): each.value for each in values if each.metric.name == "longest_copied_span"
    }
    choices = combinations([5, 2, 0, 4, 1], 2)
    assert found["synthetic", 5] == 5
    assert found["synthetic", 2] == pytest.approx(np.mean([max(choice) for choice in choices]))
    assert found["holdout", 2] == 0


def test_the_count_of_replayed_strings_of_fewer_texts_is_the_mean_over_all_choices() -> None:
    texts = ["a@x.org", "b@x.org and a@x.org", "c@x.org", "nothing", "b@x.org"]
    values = measure_replay(
        ["a@x.org b@x.org d@x.org"], {"synthetic": texts, "holdout": ["", "e@x.org"]}, public=(), detectors=["email"]
    )
    found = {(each.of, each.settings["texts"]): each.value for each in values if each.metric.name == "pii_replayed"}
    choices = combinations([{"a"}, {"a", "b"}, set(), set(), {"b"}], 2)
    assert found["synthetic", 5] == 2
    assert found["synthetic", 2] == pytest.approx(np.mean([len(set.union(*choice)) for choice in choices]))
    assert found["holdout", 2] == 0


def test_the_real_text_that_shares_most_words_is_found_among_many_candidates() -> None:
    frame = [f"frame{number}" for number in range(40)]
    real = [[*frame, *(f"own{text}of{number}" for number in range(20))] for text in range(400)]
    (_, close) = measure_near_duplicates(real, {"synthetic": [[*real[399][:-2], "two", "others"]]}, seed=0)
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
        for measured in measure_near_duplicates(real, {"synthetic": others}, seed=0)
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
        for measured in measure_neighbours(
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
    found = {each.of: each.value for each in measure_rows(real, {SYNTHETIC: synthetic, HOLDOUT: real})}
    assert found == {SYNTHETIC: 0.25, HOLDOUT: 1.0}
    assert not list(measure_rows(Sample(("a",)), {SYNTHETIC: synthetic}))
    assert not list(measure_rows(real, {SYNTHETIC: Sample(("a",))}))


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
    assert Phrases(real, others).longest().tolist() == [slow_longest(real, words) for words in others]


@given(real=TEXTS, others=TEXTS, n=st.integers(1, 5))
def test_covered_words_are_those_of_the_definition(real: Texts, others: Texts, n: int) -> None:
    covered, words = Phrases(real, others).covered(n)
    assert covered.tolist() == [slow_covered(real, text, n) for text in others]
    assert words.tolist() == [len(text) for text in others]


@given(real=TEXTS, others=TEXTS, n=st.integers(1, 7))
@example(real=[["a", "b"], ["a", "b"]], others=[["a", "b", "a"]], n=2)
@example(real=[["a"]], others=[["a", "b", "c", "a", "b", "c", "a"]], n=6)
def test_ngrams_are_counted_as_defined(real: Texts, others: Texts, n: int) -> None:
    in_any, in_one, all_of_them = Phrases(real, others).ngrams(n)
    holders = [
        [sum(ngram in slow_ngrams(text, n) for text in real) for ngram in slow_ngrams(words, n)] for words in others
    ]
    assert in_any.tolist() == [sum(count > 0 for count in counts) for counts in holders]
    assert in_one.tolist() == [sum(count == 1 for count in counts) for counts in holders]
    assert all_of_them.tolist() == [len(counts) for counts in holders]


def test_a_phrase_does_not_cross_the_end_of_a_text() -> None:
    real, others = [["a", "b"], ["c", "d"]], [["a", "b", "c", "d"]]
    assert Phrases(real, others).longest().tolist() == [2]
    assert Phrases(others, real).ngrams(3)[2].tolist() == [0, 0]


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
