"""Fields of the ledger that nobody could have written: one error, whichever verb comes upon them."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ledger_plans import CAP, RECORD, gaussian_plan, pure_plan, seal_of

from understudy.base.errors import BudgetExceeded, LedgerError
from understudy.cli import cli
from understudy.ledger import Ledger
from understudy.ledger.database import Database
from understudy.ledger.location import parse_location
from understudy.ledger.values import Sketch
from understudy.privacy.guarantee import Budget

_EVENTS = [
    json.dumps([{"event": event, "name": "sums"}])
    for event in (
        {"kind": "pure", "epsilon": "x"},
        {"kind": "pure", "epsilon": -1},
        {"kind": "pure", "eps": 1},
        {"kind": "gaussian", "noise_multiplier": 1e-200},
        {"kind": "gaussian", "noise_multiplier": None},
    )
]
DAMAGE: dict[tuple[str, str, str], list[object]] = {
    ("understudy_meta", "value", "key = 'version'"): ["0", "1.5", "٢", "02", 7],
    ("understudy_meta", "value", "key = 'fingerprint_key'"): ["", "aa", "A" * 64],
    ("understudy_meta", "value", "key = 'id'"): ["g" * 32, b"\xff\xfe"],
    ("understudy_meta", "value", "key = 'strict'"): ["{}", '[["2026-01-01T00:00:00+00:00","maybe"]]'],
    ("understudy_meta", "key", "key = 'id'"): ["other"],
    ("understudy_dataset", "name", "1"): ["not a name"],
    ("understudy_dataset", "cap_epsilon", "1"): ["0", "1/0", "nan", "1" * 5000, "٣", "1.5", " 1", "1/10\n", -1.5],
    ("understudy_dataset", "cap_delta", "1"): ["1", "7/6"],
    ("understudy_dataset", "unit", "1"): ['{"kind":"person","max_records":1}', "[" * 100_000, '"record"'],
    ("understudy_dataset", "rule", "1"): ["sum"],
    ("understudy_dataset", "hash_key", "1"): ["aa", "g" * 64],
    ("understudy_dataset", "opened_at", "1"): ["yesterday"],
    ("understudy_entry", "dataset", "1"): ["gone", 7],
    ("understudy_entry", "kind", "1"): ["none"],
    ("understudy_entry", "at", "1"): ["yesterday"],
    ("understudy_entry", "epsilon", "1"): ["-1", "1e400"],
    ("understudy_entry", "delta", "1"): ["7/6"],
    ("understudy_entry", "method", "kind = 'run'"): ["", b"\xff", None],
    ("understudy_entry", "unit", "kind = 'run'"): ['{"column":5,"kind":"owner","max_records":1}', None],
    ("understudy_entry", "charges", "kind = 'run'"): ['{"a":1}', '[{"event":{"kind":5},"name":"sums"}]', '["sums"]'],
}
CASES = [(where, value) for where, values in DAMAGE.items() for value in values]
FIELDS = [*DAMAGE, ("understudy_entry", "note", "1"), ("understudy_entry", "run_id", "kind = 'run'")]
_WORDS = st.sampled_from(["null", "[]", "{}", "[1]", "\x00", "'", "1e999999999", "record", "1/3"])
_VALUES = st.one_of(st.text(max_size=12), st.integers(-9, 9), st.floats(), st.binary(max_size=8), _WORDS, st.none())
READS_HISTORY = ("show", "history clinic")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "ledger.sqlite"
    with Ledger.create(path, strict=True) as ledger:
        ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
        ledger.charge("clinic", pure_plan("0.1"), run_id="r1")
        ledger.raise_cap("clinic", cap=type(CAP)(2, "1e-6"))
        ledger.identify("clinic", "aa", sketch=Sketch((1, 2, 3)))
        ledger.confirm(seal_of(ledger, "r1"), "digest")
    return path


def damage(whole: Path, path: Path, where: tuple[str, str, str], value: object) -> None:
    shutil.copy(whole, path)
    path.chmod(0o600)
    table, column, rows = where
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA foreign_keys = OFF")
    if isinstance(value, bytes):  # a text that is no UTF-8, as a flipped bit makes it
        connection.execute(f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE {rows}", (value,))
    else:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(
            "UPDATE sqlite_master SET sql = replace(sql, ' TEXT', '') WHERE type = 'table'"
        )  # so that numbers stay numbers, and nothing may be absent
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') WHERE type = 'table'")
        connection.commit()
        connection.close()
        connection = sqlite3.connect(path)
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {rows}", (value,))
    connection.commit()
    connection.close()


def said(path: Path, line: str) -> LedgerError | None:
    result = CliRunner().invoke(cli, ["ledger", *line.split(), "--ledger", str(path)])
    if result.exception is None:
        return None
    assert isinstance(result.exception, LedgerError), result.exception
    return result.exception


def is_the_one_error(error: LedgerError | None) -> bool:
    return error is not None and error.problem.startswith("The ledger is damaged") and "backup" in error.cure


@pytest.mark.parametrize(("where", "value"), CASES, ids=[f"{w[1]}-{v!r:.20}" for w, v in CASES])
def test_a_damaged_field_is_one_error(whole: Path, tmp_path: Path, where: tuple[str, str, str], value: object) -> None:
    path = tmp_path / "ledger.sqlite"
    damage(whole, path, where, value)
    shown = [said(path, line) for line in READS_HISTORY]
    assert any(is_the_one_error(error) for error in shown)
    assert all(error is None or is_the_one_error(error) for error in shown)
    with pytest.raises(LedgerError, match="The ledger is damaged") as caught, Ledger(path) as ledger:
        ledger.charge("clinic", pure_plan("0.1"), run_id="r2")
    assert is_the_one_error(caught.value)
    assert not value or not isinstance(value, str) or len(value) < 3 or value not in str(caught.value)


@settings(max_examples=60, deadline=None)
@given(where=st.sampled_from(FIELDS), value=_VALUES)
@example(where=("understudy_entry", "delta", "1"), value="1/2")  # more than the cap
def test_whatever_a_field_holds_is_read_or_is_that_one_error(
    whole: Path, tmp_path_factory: pytest.TempPathFactory, where: tuple[str, str, str], value: object
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "ledger.sqlite"
    damage(whole, path, where, value)
    for line in READS_HISTORY:
        error = said(path, line)
        assert error is None or is_the_one_error(error) or any(word in str(error) for word in ("newer", "no dataset"))


@pytest.mark.parametrize("value", _EVENTS)
def test_a_damaged_event_is_the_same_error_where_events_are_composed(tmp_path: Path, value: str) -> None:
    path, broken = tmp_path / "ledger.sqlite", tmp_path / "broken.sqlite"
    with Ledger.create(path) as ledger:
        ledger.open_dataset("clinic", cap=CAP, unit=RECORD, rule="rdp")
        ledger.charge("clinic", gaussian_plan("0.1"), run_id="r1")
    damage(path, broken, ("understudy_entry", "charges", "1"), value)
    assert is_the_one_error(said(broken, "show"))
    with pytest.raises(LedgerError, match="The ledger is damaged"), Ledger(broken) as ledger:
        ledger.charge("clinic", gaussian_plan("0.1"), run_id="r2")


@pytest.mark.parametrize("value", ["nonsense", b"\xff", 7, "A" * 5468, "AAAAAAAAAAIAAAAAAAAAAQ=="])
def test_a_damaged_sketch_is_the_same_error(whole: Path, tmp_path: Path, value: object) -> None:
    path = tmp_path / "ledger.sqlite"
    damage(whole, path, ("understudy_sketch", "sketch", "1"), value)
    with Ledger(path) as ledger:
        ledger.open_dataset("other", cap=CAP, unit=RECORD)
        for name in ("clinic", "other"):
            with pytest.raises(LedgerError, match="The ledger is damaged"):
                ledger.identify(name, f"{name}'s", sketch=Sketch((1, 2, 3)))


@pytest.mark.parametrize("value", ["", "not a name", b"\xff", 7])
def test_a_damaged_owner_of_a_content_is_the_same_error(whole: Path, tmp_path: Path, value: object) -> None:
    path = tmp_path / "ledger.sqlite"
    damage(whole, path, ("understudy_fingerprint", "dataset", "1"), value)
    with pytest.raises(LedgerError, match="The ledger is damaged"), Ledger(path) as ledger:
        ledger.known_as("aa")


@pytest.mark.parametrize("value", ["", b"\xff", 7, None])
def test_a_damaged_digest_is_the_same_error(whole: Path, tmp_path: Path, value: object) -> None:
    path = tmp_path / "ledger.sqlite"
    damage(whole, path, ("understudy_draw", "digest", "1"), value)
    with Ledger(path) as ledger, pytest.raises(LedgerError, match="The ledger is damaged"):
        ledger.confirm(seal_of(ledger, "r1"), "digest")


# -- faults between the statements of the transaction that charges, and exact sums for any history --------------------


class Fault(BaseException):
    """As abrupt as an interrupt."""


@contextmanager
def fault_before(moment: str, number: int = 0) -> Iterator[None]:
    """Raise before the statement of this number ("before_cursor_execute"), or before the "commit"."""
    seen = 0

    def strike(*_: object) -> None:
        nonlocal seen
        seen += 1
        if seen > number:
            raise Fault

    sa.event.listen(sa.Engine, moment, strike)
    try:
        yield
    finally:
        sa.event.remove(sa.Engine, moment, strike)


def test_a_fault_before_any_statement_books_nothing_and_the_next_try_books_once(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    plan = pure_plan("0.1")
    faults = 0
    while True:
        try:
            with fault_before("before_cursor_execute", faults):
                ledger.charge("clinic", plan, run_id="r")
            break
        except Fault:
            faults += 1
            assert ledger.history("clinic") == []
    assert faults >= 5  # begin, dataset, run, history, insert
    assert len(ledger.history("clinic")) == 1
    ledger.charge("clinic", plan, run_id="r")
    assert ledger.spent("clinic") == plan.budget


def test_a_fault_before_the_commit_books_nothing(ledger: Ledger) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    with pytest.raises(Fault), fault_before("commit"):
        ledger.charge("clinic", pure_plan("0.1"), run_id="r")
    assert ledger.spent("clinic") is None


def test_a_fault_while_a_ledger_is_made_leaves_one_that_can_be_made(location: str) -> None:
    faults = 0
    while True:
        try:
            with fault_before("before_cursor_execute", faults):
                Ledger.create(location).close()
            break
        except Fault:
            faults += 3
    assert faults > 0
    with Ledger.create(location) as ledger:
        assert len(ledger.fingerprint_key) == 32


def test_a_writer_waits_for_another_and_gives_up_with_a_clear_error(
    location: str, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
    monkeypatch.setattr("understudy.ledger.database.PATIENCE_SECONDS", 1)
    with Database(parse_location(location)).write():
        with pytest.raises(LedgerError, match="Another process is using it"):
            ledger.charge("clinic", pure_plan("0.1"), run_id="r")
        ledger.check("clinic", pure_plan("0.1"))  # reading waits for nobody
    ledger.charge("clinic", pure_plan("0.1"), run_id="r")


_FRACTIONS = st.fractions(Fraction(1, 1000), Fraction(2, 5), max_denominator=1000)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(_FRACTIONS, st.integers(0, 5)), max_size=8))
def test_what_is_booked_never_exceeds_the_cap_and_what_fits_is_booked(asked: list[tuple[Fraction, int]]) -> None:
    cap = Budget(1, "1e-5")
    epsilon = delta = Fraction(0)
    with tempfile.TemporaryDirectory() as folder, Ledger.create(Path(folder) / "ledger.sqlite") as ledger:
        ledger.open_dataset("d", cap=cap, unit=RECORD)
        for number, (more, millionths) in enumerate(asked):
            budget = Budget(more, Fraction(millionths, 10**6))
            fits = epsilon + budget.epsilon <= cap.epsilon and delta + budget.delta <= cap.delta
            try:
                ledger.charge("d", pure_plan(budget.epsilon, budget.delta), run_id=str(number))
                booked = True
            except BudgetExceeded:
                booked = False
            assert booked == fits
            if booked:
                epsilon, delta = epsilon + budget.epsilon, delta + budget.delta
        spent = ledger.spent("d")
        assert (spent.epsilon, spent.delta) == (epsilon, delta) if spent else epsilon == 0
