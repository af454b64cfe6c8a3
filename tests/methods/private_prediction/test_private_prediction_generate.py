"""The texts are handed out: batches in turn, no more than there are, with where they come from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from predictions import NAMES, Store, method, plan_of
from predictions import release as make
from script_model import ScriptModel, echo
from tiny_corpora import LABELS, Row

from understudy.base.errors import ReleaseError
from understudy.release import PublicSchema, Release
from understudy.release.statement import Statement
from understudy.text.writing.records import SyntheticRecord


def release(labels: bool = True, **options: Any) -> Release:
    chosen = method(unfinished="keep", tokens_per_batch=14, **options)
    made = make(chosen, [Row(f"text {number}", number % LABELS) for number in range(9)], model=ScriptModel(echo(3)))
    plan = plan_of(chosen)
    statement = Statement.of(plan, public_inputs=made.public_inputs, labels_declared=True, dataset="notes")
    return Release(
        method="private-prediction",
        parameters=chosen.dump(),
        schema=PublicSchema("text", "topic" if labels else None, NAMES.names if labels else ()),
        statement=statement,
        arrays={name: np.asarray(array) for name, array in made.arrays.items()},
        strings=made.strings,
    )


def available(made: Release) -> Sequence[int] | None:
    return method().available(made)


def generate(made: Release, counts: Sequence[int]) -> Iterator[SyntheticRecord]:
    return method().generate(made, counts, tools=None)  # type: ignore[arg-type]  # it samples nothing


def test_as_many_as_are_asked_for_batches_in_turn() -> None:
    made = release()
    assert available(made) == [8, 8, 8], "two batches of three texts of 4 tokens, and one of 2"
    records = list(generate(made, [5, 0, 8]))
    assert [record.label for record in records] == [0] * 5 + [2] * 8
    assert [(record.provenance["number"], record.provenance["batch"]) for record in records[:5]] == [
        *((0, 0), (0, 1), (1, 0), (1, 1), (2, 0)),
    ]
    assert records[0].provenance == {"batch": 0, "number": 0, "tokens": 4, "private_tokens": 4, "ended": True}
    assert not records[-1].provenance["ended"]
    assert sorted(record.text for record in records[5:]) == sorted(made.strings["texts"][16:])


def test_more_than_there_are_is_an_error_that_says_what_there_is() -> None:
    with pytest.raises(ReleaseError, match=r"\(a 8, b 8, c 8\)") as caught:
        generate(release(), [8, 9, 0])
    assert "--continue" in caught.value.cure


def test_a_release_that_holds_nothing_hands_out_nothing() -> None:
    chosen = method(tokens_per_batch=2)
    made = make(chosen, [], model=ScriptModel(echo(3)), store=Store())
    arrays = {name: np.asarray(array) for name, array in made.arrays.items()}
    empty = replace(release(), arrays=arrays, strings=made.strings)
    assert available(empty) == [0, 0, 0]
    assert list(generate(empty, [0, 0, 0])) == []
