"""Lengths, words, n-grams, labels and JSON: against other libraries, by hand, and on odd tables."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics import BLEU
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy, ks_2samp

from understudy.evaluate.metrics.fidelity.texts import (
    distinct,
    distinct_values,
    first_words,
    jensen_shannon,
    label_distance_values,
    label_share_values,
    length_divergence,
    length_ks,
    ngrams,
    self_bleu,
    self_bleu_values,
    validity_values,
    vocabulary_values,
)
from understudy.evaluate.metrics.value import HOLDOUT, SYNTHETIC
from understudy.methods.shared.decoding.structured import JSONSchema

DRAWN = {"seed": 0, "resamples": 5}
LENGTHS = st.lists(st.integers(0, 50), min_size=2, max_size=60)


def test_jensen_shannon_is_the_entropy_of_the_mean_less_the_mean_entropy() -> None:
    p, q = np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.25, 0.5])
    expected = entropy((p + q) / 2, base=2) - (entropy(p, base=2) + entropy(q, base=2)) / 2
    assert jensen_shannon(p * 12, q * 8) == pytest.approx(expected)
    assert jensen_shannon(p, p) == 0
    assert jensen_shannon(np.array([1, 0]), np.array([0, 7])) == 1


@given(LENGTHS, LENGTHS)
def test_the_greatest_difference_of_lengths_is_that_of_scipy(one: list[int], two: list[int]) -> None:
    expected = ks_2samp(one, two, method="asymp").statistic
    assert length_ks(np.array(one), np.array(two)) == pytest.approx(expected)


@given(LENGTHS, LENGTHS)
def test_lengths_diverge_symmetrically_by_0_to_1_bit(one: list[int], two: list[int]) -> None:
    a, b = np.array(one), np.array(two)
    assert length_divergence(a, b) == pytest.approx(length_divergence(b, a[::-1]))
    assert 0 <= length_divergence(a, b) <= 1
    assert length_divergence(a, a) == pytest.approx(0, abs=1e-12)


def test_few_different_lengths_are_compared_one_by_one() -> None:
    a, b = np.array([3] * 6 + [5] * 2), np.array([3] * 2 + [5] * 6)
    assert length_divergence(a, b) == pytest.approx(jensenshannon([6, 2], [2, 6], base=2) ** 2)


def test_vocabularies_diverge_as_their_word_counts_do() -> None:
    real, other = [["a", "b"], ["a"], []], [["b", "c"], ["b", "b", "c"]]
    found = vocabulary_values(real, other, of=SYNTHETIC, **DRAWN)[0]
    assert found.value == pytest.approx(jensenshannon([2, 1, 0], [0, 3, 2], base=2) ** 2)
    assert found.interval is None
    assert found.note


@pytest.mark.parametrize("turned", [False, True])
def test_the_vocabulary_interval_knows_the_texts_of_both_tables(turned: bool) -> None:
    tables = [[["a"], ["b"]] * 10, [["a"]] * 20]
    real, other = reversed(tables) if turned else tables
    interval = vocabulary_values(real, other, of=SYNTHETIC, **DRAWN)[0].interval
    assert interval is not None
    assert interval.low < interval.high


@given(st.lists(st.lists(st.sampled_from("abc"), max_size=6), max_size=8), st.integers(1, 3))
def test_distinct_is_the_number_of_different_ngrams_within_texts(words: list[list[str]], n: int) -> None:
    found = [tuple(text[place : place + n]) for text in words for place in range(len(text) - n + 1)]
    numbers, texts = ngrams(words, n)
    assert len(numbers) == len(texts) == len(found)
    assert distinct(numbers) == (len(set(found)) / len(found) if found else 0)
    assert [sum(texts == row) for row in range(len(words))] == [max(0, len(text) - n + 1) for text in words]


def test_a_table_is_cut_to_just_so_many_words_of_whole_texts_but_the_last() -> None:
    words = [[f"{row}-{place}" for place in range(4)] for row in range(10)]
    kept = first_words(words, 14, seed=0)
    assert [len(text) for text in kept] == [4, 4, 4, 2]
    assert all(text == words[int(text[0].split("-")[0])][: len(text)] for text in kept)
    assert first_words(words, 0, seed=0) == []
    assert sorted(first_words(words, 1000, seed=0)) == sorted(words)


def test_distinct_is_compared_on_equally_many_words() -> None:
    few, many = [["a", "b", "c", "d"]] * 5, [["a", "b", "c", "d"]] * 500
    one, two = (distinct_values(words, SYNTHETIC, total=20, **DRAWN) for words in (few, many))
    assert [each.value for each in one] == [each.value for each in two] == [4 / 20, 3 / 15, 2 / 10]


def test_self_bleu_is_the_mean_of_sentence_bleu_against_the_others() -> None:
    texts = ["the cat sat on the mat", "the cat lay on the mat today", "a dog sat on the mat", "a dog", "the the the"]
    texts = [*texts, "the cat sat on the mat", "", "A dog, of course."]
    bleu = BLEU(effective_order=True)
    others = [[*texts[:place], *texts[place + 1 :]] for place in range(len(texts))]
    expected = [bleu.sentence_score(text, rest).score / 100 for text, rest in zip(texts, others, strict=True)]
    assert self_bleu(texts) == pytest.approx(expected)
    assert self_bleu_values(texts, SYNTHETIC, **DRAWN)[0].value == pytest.approx(np.mean(expected))


def test_copies_of_less_than_four_words_are_copies_too() -> None:
    assert self_bleu(["too short"] * 3) == pytest.approx([1] * 3)


def test_the_label_distance_is_half_the_sum_of_differences() -> None:
    real, other = ["a"] * 5 + ["b"] * 5, ["a"] * 2 + ["c"] * 8
    assert label_distance_values(real, other, of=SYNTHETIC, **DRAWN)[0].value == pytest.approx((0.3 + 0.5 + 0.8) / 2)
    assert label_distance_values(real, real[::-1], of=SYNTHETIC, **DRAWN)[0].value == 0


def test_every_label_of_any_table_has_its_share() -> None:
    values = label_share_values(["a", "a", "b"], HOLDOUT, names=["a", "b", "c"])
    assert {each.settings["label"]: each.value for each in values} == {"a": 2 / 3, "b": 1 / 3, "c": 0}


VALID = '{"age": 3}'
PARSES = ['{"age": "three"}', "[1]", "7", '"text"', "null", ' {"age": true} ']
BROKEN = ["", "age: 3", '{"age": 3', '{"age": NaN}', '{"age": 1, "age": 2}', '{"age": 1e999}', "{'age': 3}"]
BROKEN += ['"\\ud800"', "[" * 5000, '{"age": 3} {"age": 3}']
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


def test_the_shares_of_json_and_of_valid_json_are_counted_strictly() -> None:
    parsed, valid = validity_values(
        [VALID, *PARSES, *BROKEN], SYNTHETIC, schema=JSONSchema("schema.json", content=json.dumps(SCHEMA).encode())
    )
    count = 1 + len(PARSES) + len(BROKEN)
    assert parsed.value == (1 + len(PARSES)) / count
    assert valid.value == 1 / count
    assert valid.interval is not None
    assert valid.interval.low < valid.value < valid.interval.high
