"""The verdict on a budget: right in the extremes, no better with fewer records, one sentence that follows from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from understudy.privacy.facts import Facts
from understudy.privacy.verdict import CLEAR, LIMITS, Basis, Verdict, at_least

ORDER = ("noise", "thin", "good")


@pytest.mark.parametrize("basis", LIMITS)
@pytest.mark.parametrize("labels", [1, 2, 77])
def test_the_records_that_would_do_are_good_and_fewer_are_not(basis: Basis, labels: int) -> None:
    enough = Verdict.of(basis, texts=7.0, labels=labels).records
    assert enough is not None
    assert Verdict.of(basis, texts=7.0, labels=labels, records=1.06 * enough).level == "good"
    few = Verdict.of(basis, texts=7.0, labels=labels, records=0.9 * enough)
    assert (few.level, few.records) == ("thin", enough)


@pytest.mark.parametrize("basis", LIMITS)
def test_more_records_are_never_worse_and_more_noise_is_never_better(basis: Basis) -> None:
    def level(texts: float, records: float) -> int:
        found = Verdict.of(basis, texts=texts, labels=4, records=records).level
        assert found is not None
        return ORDER.index(found)

    by_records = [level(5.0, 2.0**power) for power in range(30)]
    assert by_records == sorted(by_records)
    assert {by_records[0], by_records[-1]} == {0, 2}
    by_noise = [level(2.0**power, 10_000) for power in range(-10, 30)]
    assert by_noise == sorted(by_noise, reverse=True)


def test_what_no_number_of_records_helps_names_none() -> None:
    found = Verdict.of("tokens", texts=100.0, least=0.7, labels=2, records=10**9)
    assert (found.level, found.records) == ("noise", None)
    assert Verdict.of("tokens", texts=100.0, least=0.7, labels=2).level == "noise", "whatever the size"


def test_without_a_size_it_says_from_which_on_it_would_be_good() -> None:
    found = Verdict.of("topics", texts=10.0, labels=4)
    assert found.level is None
    told = f"Declare --expected-records for a verdict: {found.records:,} records are enough."
    assert (found.sentence(), found.sentence(spent=True), found.coarse) == (told, "", None)
    assert Verdict(None, "topics").sentence() == ""


def test_a_weight_in_records_of_another_kind_is_told_in_times() -> None:
    """3,000 texts with few known words weigh as much as 400 with many: that 900 would do would be nonsense."""
    found = Verdict.of("topics", texts=14.4, records=400.0)
    assert (found.level, found.records) == ("thin", 900), "the broken twin names fewer than there are"
    said = found.in_times(400.0).sentence(spent=True)
    assert said == "Weak: noise nearly drowns the data. About 2.2 times as many records would be enough."
    assert found.in_times(860.0).sentence(spent=True).endswith(". A few more records would be enough.")
    assert found.in_times(0.0).sentence(spent=True) == "Weak: noise nearly drowns the data."
    assert Verdict.of("topics", texts=1.0, records=400.0).in_times(400.0).times is None, "good"


def test_it_is_one_plain_sentence() -> None:
    def told(level: Any, basis: Basis = "topics", spent: bool = False, **fields: Any) -> str:
        return Verdict(level, basis, **fields).sentence(spent=spent)

    good = "Good: common themes will come through. This says nothing about how the texts read."
    assert (told("good"), told("good", spent=True)) == (good, good.replace("will come", "come"))
    thin = "Weak: only words that 9 records have are nearly sure to survive."
    for spent in (False, True):
        assert told("thin", spent=spent, survives="words that 9 records have") == thin
    assert told("thin", "tokens").startswith("Weak: noise nearly drowns the data."), "no claim that nobody measured"
    noise = "Noise: the result would be mostly chance; do not spend this budget. About 20,000 records would be enough."
    assert told("noise", records=20_000) == noise
    assert "20,000 owners would be enough" in Verdict("noise", "topics", records=20_000).sentence(unit="owner")
    assert told("noise", spent=True) == "Noise: the result is mostly chance."
    assert "A lower --sampling-rate" in told("noise", "tokens")
    assert told("good", "training") == "Good: the private texts come through clearly."
    assert "--lora-rank" in told("thin", "training")
    assert Verdict("thin", "topics", "words", 9000).coarse.sentence() == "Weak: noise nearly drowns the data."


def test_it_survives_json_and_none_of_another_form_is_read() -> None:
    for verdict in (None, Verdict("thin", "topics", "words", 9000), Verdict(None, "labels", records=3)):
        assert Facts.from_json(Facts(verdict=verdict).to_json()).verdict == verdict
    good = Facts(verdict=Verdict("good", "topics")).to_json()
    for change in (
        {"level": "splendid"},
        {"basis": "<b>"},
        {"survives": "<b>"},
        {"records": 0},
        {"level": 1},
    ):
        with pytest.raises(ValueError, match=next(iter(change))):
            Facts.from_json({**good, "verdict": {**good["verdict"], **change}})


def test_noise_alone_is_no_records_however_many_values_it_is_summed_over() -> None:
    draw = np.random.default_rng(5)
    totals = 3.0 * draw.normal(size=(400, 2000)).sum(axis=1)
    std = 3.0 * 2000**0.5
    assert np.mean([at_least(total, std) == 0 for total in totals]) > 0.95
    assert np.mean(totals > CLEAR) > 0.4, "the totals themselves would be taken for records"
    assert at_least(10_000.0, std) == pytest.approx(10_000 - CLEAR * std)
