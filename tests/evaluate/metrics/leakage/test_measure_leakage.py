"""What leaks is found, what does not is not flagged, and nothing makes it stumble."""

from __future__ import annotations

import json
import math
from dataclasses import asdict

import numpy as np
import pytest

from understudy.base.errors import ConfigError
from understudy.evaluate.metrics.leakage import measure_leakage
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import MetricValue

DETECTORS = ("email", "phone")


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
    detectors: tuple[str, ...] = DETECTORS,
) -> tuple[MetricValue, ...]:
    held = None if holdout is None else sample(holdout, 13)
    return measure_leakage(
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
    values = measure_leakage(table, table, holdout=held, detectors=DETECTORS, seed=0, resamples=20)
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
    values = measure_leakage(real, synthetic, holdout=holdout, detectors=DETECTORS, seed=0, resamples=5)
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


def test_an_unknown_detector_is_named() -> None:
    with pytest.raises(ConfigError, match="no detector 'names'"):
        measure(detectors=("names",))


def test_the_same_seed_gives_the_same_values() -> None:
    assert [asdict(measured) for measured in measure()] == [asdict(measured) for measured in measure()]
