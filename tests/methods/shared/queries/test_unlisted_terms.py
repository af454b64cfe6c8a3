"""Weighted counts of terms that no list has: what one unit adds, in memory and in files, and what is told of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broken_twins import OwnersAsRecords, Unweighted
from tiny_corpora import OWNER, RECORD, Row, bounded

from understudy.audit.mechanisms.sums import by_name
from understudy.base.errors import PrivacyError
from understudy.methods.shared.queries import discovered_terms as queries
from understudy.methods.shared.queries.discovered_terms import UnlistedTerms
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.selection import weight_of
from understudy.privacy.unit import Unit
from understudy.schema.transcript import Part, TextForm

WORDS = [f"word{chr(97 + number // 10)}{chr(97 + number % 10)}" for number in range(40)]  # digits are never found
LISTED, STOP_WORDS = frozenset({"known", "wordab wordac"}), frozenset({"the"})
MOST = 6
Query = Callable[[Path], UnlistedTerms]
units = pytest.mark.parametrize("unit", [RECORD, OWNER, Unit("owner", 1)], ids=["record", "owner", "owner of one"])


def query(scratch: Path, most: int = MOST, kind: type[UnlistedTerms] = UnlistedTerms) -> UnlistedTerms:
    return kind(LISTED, STOP_WORDS, most, scratch)


def rows(generator: np.random.Generator, owners: Sequence[str], most: int) -> list[Row]:
    def text() -> str:
        said = generator.choice([*WORDS[:12], "known", "the", "."], size=generator.integers(0, 9)).tolist()
        return str(generator.choice(["", " ".join(said), " ".join(WORDS)]))

    return [Row(text(), int(generator.integers(3)), str(generator.choice(list(owners)))) for _ in range(most)]


def moved(sums: UnlistedTerms, smaller: Sequence[Row], larger: Sequence[Row], unit: Unit) -> dict[str, int]:
    before, after = (by_name(sums, bounded(each, unit)) for each in (smaller, larger))
    return {name: after.get(name, 0) - before.get(name, 0) for name in before.keys() | after.keys()}


def norm(steps: dict[str, int]) -> Fraction:
    """The square of the L2 norm, in units of 1."""
    return Fraction(sum(step * step for step in steps.values()), COUNT_GRID**2)


def largest(sums: UnlistedTerms, unit: Unit, *, pairs: int = 60) -> Fraction:
    """Over random neighbours, a unit's records put in anywhere; that each moves by whole weights is seen as well."""
    generator, found = np.random.default_rng(3), Fraction(0)
    for _ in range(pairs):
        smaller = rows(generator, ["ann", "bob"], int(generator.integers(6)))
        larger = list(smaller)
        for row in rows(generator, ["zoe"], 1 if unit.kind == "record" else int(generator.integers(1, 9))):
            larger.insert(int(generator.integers(len(larger) + 1)), row)
        steps = moved(sums, smaller, larger, unit)
        found = max(found, norm(steps))
    return found


@units
def test_no_neighbour_moves_the_sums_by_more_than_one_and_some_by_nearly_as_much(unit: Unit, tmp_path: Path) -> None:
    assert 1 - Fraction(1, 1000) < largest(query(tmp_path), unit) <= 1


@units
def test_a_unit_adds_one_and_the_same_weight_to_each_of_its_terms(unit: Unit, tmp_path: Path) -> None:
    mine = [Row(" . ".join(WORDS[:4]), 0, "zoe"), Row("wordab. wordac", 1, "zoe")][: unit.max_records]
    steps = moved(query(tmp_path), [Row("other", 0, "ann")], [Row("other", 0, "ann"), *mine], unit)
    if unit.max_records > 1 or unit.kind == "record":
        assert {name: step for name, step in steps.items() if step} == dict.fromkeys(WORDS[:4], weight_of(4))


class CapIgnored(UnlistedTerms):
    """All terms count, each with the weight of a unit of MOST terms."""

    @property
    def _weights(self) -> Any:  # type: ignore[override]
        return np.append(super()._weights, np.full(10**3, weight_of(MOST)))


def test_broken_twins_are_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert largest(query(tmp_path, kind=Unweighted), RECORD) > 1
    assert largest(query(tmp_path, kind=OwnersAsRecords), OWNER) > 1
    monkeypatch.setattr(queries, "_chosen", lambda *found, most, given=queries._chosen: given(*found, most=10**3))
    assert largest(query(tmp_path, kind=CapIgnored), RECORD) > 1


# -- which terms a unit has -------------------------------------------------------------------------------------------


def test_which_terms_count_of_a_long_record_does_not_depend_on_the_others_nor_on_their_order(tmp_path: Path) -> None:
    long = Row(". ".join(WORDS))
    alone = by_name(query(tmp_path), bounded([long]))
    assert list(alone.values()) == [weight_of(MOST)] * MOST
    for before in ([], [Row(". ".join(reversed(WORDS)))] * 3, [Row("wordab wordac")] * 9):
        steps = moved(query(tmp_path), before, [*before, long], RECORD)
        assert {name: step for name, step in steps.items() if step} == alone
    turned = by_name(query(tmp_path), bounded([Row(". ".join(reversed(WORDS)))]))
    assert turned.keys() != alone.keys()  # another record, other hashes


def test_terms_of_long_records_all_get_their_turn(tmp_path: Path) -> None:
    found = by_name(query(tmp_path), bounded([Row(f"{'. '.join(WORDS)}. of{number} the") for number in range(300)]))
    assert set(WORDS) <= found.keys()
    counts = [found[name] / weight_of(MOST) for name in WORDS]
    assert 20 < min(counts) <= max(counts) < 80  # 300 * 6 / 41 are 44


# -- files ------------------------------------------------------------------------------------------------------------


@units
def test_sums_in_many_files_are_those_in_one(unit: Unit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = rows(np.random.default_rng(5), ["ann", "bob", "cleo"], 60)
    at_once = by_name(query(tmp_path), bounded(table, unit))
    monkeypatch.setattr(queries, "_HELD", 8)
    monkeypatch.setattr(queries, "_MOST_WORDS", 5)
    monkeypatch.setattr(queries, "_ROWS", 3)
    monkeypatch.setattr(queries, "_TEXTS", 2)
    monkeypatch.setattr("understudy.methods.shared.queries.discovered_terms._RUN_ROWS", 4)
    monkeypatch.setattr("understudy.methods.shared.queries.discovered_terms._TOGETHER", 3)
    assert by_name(query(tmp_path), bounded(table, unit)) == at_once
    assert list(tmp_path.iterdir()) == []


def test_sums_are_those_of_plain_counting(tmp_path: Path) -> None:
    table = rows(np.random.default_rng(6), ["ann"], 50)
    expected: Counter[str] = Counter()
    for row in table:
        words = [[word for word in part.split() if word] for part in row.text.split(".")]
        terms = set()
        for part in words:
            for size in (1, 2, 3):
                for start in range(len(part) - size + 1):
                    some = part[start : start + size]
                    if "the" not in some and some != ["known"]:
                        terms.add(" ".join(some))
        # a listed term of two words takes part and is left out
        expected.update(dict.fromkeys(terms, weight_of(max(len(terms), 1))))
    del expected["wordab wordac"]
    assert by_name(query(tmp_path, most=1000), bounded(table)) == expected


def test_files_are_private_and_those_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    (tmp_path / "terms").mkdir()
    (tmp_path / "terms" / "left.arrow").write_text("half")
    sums = query(tmp_path).sums(bounded([Row("wordab")]))
    next(sums)
    (left,) = (tmp_path / "terms").iterdir()
    assert left.stat().st_mode & 0o077 == 0
    sums.close()  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


@units
def test_more_words_than_a_finder_has_numbers_for_give_no_term_anothers_name(
    unit: Unit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words are numbered by first sight: past the last number a unit that comes first would rename all that follow."""

    def word(first: str, number: int) -> str:
        return first + "".join("abcdefghij"[int(digit)] for digit in str(number))  # digits are never found

    new = [Row(" . ".join(word("n", 8 * text + place) for place in range(8)), 0, f"owner {text}") for text in range(60)]
    said = [Row("zorple", 0, f"other {number}") for number in range(30)]
    first = Row(" . ".join(word("u", number) for number in range(10)), 0, "zoe")

    def found(*rows: Row) -> dict[str, int]:
        return by_name(query(tmp_path), bounded(rows, unit, batch_size=1000))

    expected = found(*new, *said), found(first, *new, *said)
    assert expected[0]["zorple"] == expected[1]["zorple"] == 30 * weight_of(1)
    monkeypatch.setattr(queries, "_BITS", 7)
    monkeypatch.setattr(queries, "_MASK", 127)
    for name, few in {"_MOST_WORDS": 31, "LONGEST_TEXT": 64, "_ROWS": 4, "_HELD": 16}.items():
        monkeypatch.setattr(queries, name, few)
    coded: list[int] = []
    codes = queries.PhraseFinder.codes
    monkeypatch.setattr(
        queries.PhraseFinder, "codes", lambda self, names: [coded.append(len(names)), codes(self, names)][1]
    )
    assert (found(*new, *said), found(first, *new, *said)) == expected
    assert max(coded, default=0) == (4 if unit.kind == "owner" else 0), "a few names of owners' terms at a time"
    monkeypatch.setattr(queries, "LONGEST_TEXT", 1 << 20)  # by the number of texts alone
    with pytest.raises(PrivacyError, match="its caller must replace it"):
        found(*new, *said)


def test_texts_are_read_by_characters_and_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "LONGEST_TEXT", 10)
    monkeypatch.setattr(queries, "_TEXTS", 3)
    at_once = [(each.start, each.stop) for each in queries._at_once([1, 1, 1, 1, 9, 10, 10, 0, 0])]
    assert at_once == [(0, 3), (3, 5), (5, 6), (6, 9)]
    assert list(queries._at_once([])) == []


def test_a_dialogue_with_half_a_character_in_json_is_counted_as_any_other(tmp_path: Path) -> None:
    form = TextForm(("question", "answer"))
    texts = [
        form.render([Part("question", "what is it"), Part("answer", each)]) for each in ('{"a": "\\ud800 zorple"}', "x")
    ]
    assert form.contents(texts[0]).encode().endswith(b"zorple"), "no embedder takes half a character"
    corpus = replace(bounded([Row(text) for text in texts]), form=form)
    assert by_name(query(tmp_path), corpus)["zorple"] > 0


def test_a_corpus_without_terms_has_none(tmp_path: Path) -> None:
    for unit in (RECORD, OWNER):
        assert by_name(query(tmp_path), bounded([Row("known"), Row("")], unit)) == {}
        assert by_name(query(tmp_path), bounded([], unit)) == {}


def test_a_query_shows_nothing_of_itself(tmp_path: Path) -> None:
    assert "known" not in repr(query(tmp_path))
