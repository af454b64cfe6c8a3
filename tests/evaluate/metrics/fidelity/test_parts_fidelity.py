"""Metrics of texts that have parts."""

from __future__ import annotations

import numpy as np
import pytest

from understudy.base.transcript import Part, TextForm
from understudy.evaluate.metrics.fidelity import BEGINS, BELONGING, PART_LENGTH, TURNS, measure_fidelity
from understudy.evaluate.metrics.overview import make_overview
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import OTHER_HALF, SYNTHETIC, MetricValue

pytest.importorskip("sklearn")
TICKET = TextForm(fields=("message", "answer"))
CHAT = TextForm(roles=("customer", "agent"))
THINGS = ("router", "phone", "lamp", "printer", "invoice", "parcel", "password", "heating")


def sample(form: TextForm, records: list[list[Part]]) -> Sample:
    return Sample.of_transcripts([form.render(parts) for parts in records], form)


def tickets(seed: int, *, related: bool = True) -> Sample:
    generator = np.random.default_rng(seed)
    asked, said = generator.integers(len(THINGS), size=(2, 200))
    answers = asked if related else said
    return sample(
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
    return sample(
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
