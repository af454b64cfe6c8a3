"""Of records made of several columns the words of the values are counted, never keys or JSON's own words."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.corpus import read_corpus
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.shared.queries.counts import TermCounts, TermRows
from understudy.methods.shared.specs import TermCountsSpec
from understudy.privacy.measurement import exact_sum
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.unit import Unit
from understudy.text.vocabulary.words import TermMatcher

WORDS = ["title", "body", "null", "true", "n", "chest", "pain", "inner", "seven", "7"]
ROWS = [
    {"title": "Chest", "body": "pain\nchest", "flag": True, "owner": "a"},
    {"title": None, "body": {"inner": ["Pain", None, 7]}, "flag": False, "owner": "b"},
]
COLUMNS = ["title", "body", "flag"]


def counted(terms_per_record: int, unit: Unit = Unit()) -> dict[str, int]:  # noqa: B008
    owner = {"owner": "owner"} if unit.kind == "owner" else {}
    corpus = read_corpus(ROWS, record_columns=COLUMNS, **owner)
    data = BoundedCorpus(corpus, unit, b"key", json_records=True)
    counts = exact_sum(TermCounts(TermCountsSpec(len(WORDS), terms_per_record), TermMatcher(WORDS)), data) // COUNT_GRID
    return {word: count for word, count in zip(WORDS, counts.tolist(), strict=True) if count}


@pytest.mark.parametrize("unit", [Unit(), Unit("owner", 3, "owner")], ids=["record", "owner"])
def test_keys_and_json_words_are_not_counted_even_where_the_vocabulary_has_them(unit: Unit) -> None:
    assert counted(10, unit) == {"chest": 1, "pain": 2, "7": 1}
    assert counted(1, unit) == {"chest": 1, "pain": 1}


def test_the_density_counts_the_same_terms() -> None:
    corpus = read_corpus(ROWS, record_columns=COLUMNS)
    data = BoundedCorpus(corpus, Unit(), b"key", json_records=True)
    (rows,) = map(TermRows(TermMatcher(WORDS), 3).of, data.batches())
    assert [[WORDS[term] for term in row if term >= 0] for row in rows] == [["chest", "pain"], ["pain", "7"]]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text('ab "\n{}:,', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("kab", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(record=st.dictionaries(st.sampled_from(["title", "body", "chest"]), JSON, min_size=1), terms=st.integers(1, 4))
def test_a_record_of_any_values_moves_counts_by_no_more_than_declared(record: dict[str, object], terms: int) -> None:
    vocabulary = ["title", "body", "chest", "a", "b", "ab", "k", "true", "3"]
    counts = TermCounts(TermCountsSpec(len(vocabulary), terms), TermMatcher(vocabulary))
    names = ["title", "body", "chest"]  # all of which some row has: that none does is an error
    corpus = read_corpus([record, dict.fromkeys(names)], record_columns=names, on_bad_row="skip")
    moved = exact_sum(counts, BoundedCorpus(corpus, Unit(), b"key", json_records=True))
    assert moved.sum() <= COUNT_GRID * terms
    assert np.all(moved <= COUNT_GRID)
    written = json.dumps(list(record.values()))
    for key in ("title", "body", "chest", "true", "k"):
        assert moved[vocabulary.index(key)] == 0 or key in written
        if key in ("title", "body", "chest", "true"):  # no value's text spells these
            assert moved[vocabulary.index(key)] == 0
