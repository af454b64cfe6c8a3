"""The connection to PostgreSQL is lost at every statement of every operation, before the server does it and after."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import postgres_cluster
import pytest
import sqlalchemy as sa
from cutting_proxy import Cut, CuttingProxy
from ledger_plans import CAP, RECORD, new_ledger, pure_plan

from understudy.base.errors import LedgerError
from understudy.ledger import Ledger
from understudy.ledger.database import Database
from understudy.ledger.location import parse_location
from understudy.ledger.values import Sketch
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import Receipt
from understudy.privacy.sealed import Seal

PLAN = pure_plan("0.1")
PART, DIGEST = "sums/0", "digest"
DRAWN = {PART: DIGEST}
SKETCH = Sketch((1,))
LOGIN = b"\0"  # the one message without a letter before its length


@dataclass(frozen=True)
class Names:
    """What one try uses alone, so that a ledger serves many."""

    dataset: str
    run: str
    content: str
    receipts: list[Receipt] = field(default_factory=list, compare=False)

    @property
    def seal(self) -> Seal:
        """Of the part that is confirmed."""
        return self.receipts[0].seal(PART, noise="system", rows="")

    @classmethod
    def new(cls) -> Names:
        name = uuid.uuid4().hex
        return cls(f"d{name}", f"r{name}", f"f{name}")


@dataclass(frozen=True)
class Operation:
    """A method of the ledger.

    Args:
        needs: what must be there before.
        call: the method, and what of its answer is the same for every try. It may be called again.
    """

    needs: Callable[[Ledger, Names], object]
    call: Callable[[Ledger, Names], Any]


def nothing(ledger: Ledger, names: Names) -> None:
    pass


def opened(ledger: Ledger, names: Names) -> None:
    ledger.open_dataset(names.dataset, cap=CAP, unit=RECORD)


def charged(ledger: Ledger, names: Names) -> None:
    opened(ledger, names)
    ledger.identify(names.dataset, names.content)
    names.receipts.append(ledger.charge(names.dataset, PLAN, run_id=names.run))


def drawn(ledger: Ledger, names: Names) -> None:
    charged(ledger, names)
    ledger.confirm(names.seal, DIGEST)


OPERATIONS = {
    "open_dataset": Operation(nothing, lambda it, names: it.open_dataset(names.dataset, cap=CAP, unit=RECORD).cap),
    "raise_cap": Operation(charged, lambda it, names: it.raise_cap(names.dataset, cap=Budget(2, "1e-6")).cap),
    "identify": Operation(opened, lambda it, names: it.identify(names.dataset, names.content, sketch=SKETCH)),
    "charge": Operation(opened, lambda it, names: it.charge(names.dataset, PLAN, run_id=names.run).pay("sums")),
    "charge again": Operation(
        drawn, lambda it, names: it.charge(names.dataset, PLAN, run_id=names.run, kept=DRAWN).pay("sums")
    ),
    "confirm": Operation(charged, lambda it, names: it.confirm(names.seal, DIGEST)),
    "confirm again": Operation(drawn, lambda it, names: it.confirm(names.seal, DIGEST)),
    "dataset": Operation(opened, lambda it, names: getattr(it.dataset(names.dataset), "cap", None)),
    "datasets": Operation(opened, lambda it, names: names.dataset in [each.name for each in it.datasets()]),
    "history": Operation(charged, lambda it, names: [entry.cost for entry in it.history(names.dataset)]),
    "account": Operation(charged, lambda it, names: [each.spent for each in it.account(names.dataset)]),
    "spent": Operation(charged, lambda it, names: it.spent(names.dataset)),
    "remaining": Operation(charged, lambda it, names: it.remaining(names.dataset)),
    "check": Operation(opened, lambda it, names: it.check(names.dataset, PLAN)),
    "strict": Operation(nothing, lambda it, names: it.strict),
    "strict_changes": Operation(nothing, lambda it, names: it.strict_changes),
    "known_as": Operation(charged, lambda it, names: it.known_as(names.content) == names.dataset),
}
WRITES = {"open_dataset", "raise_cap", "identify", "charge", "confirm"}  # of those above; the others change nothing
APART = {"create"}  # below
NO_TRANSACTION = {"close", "location"}


def test_every_operation_of_a_ledger_is_among_those_that_are_cut() -> None:
    public = {name for name in vars(Ledger) if not name.startswith("_")} - APART - NO_TRANSACTION
    assert public == {name.removesuffix(" again") for name in OPERATIONS}


@pytest.fixture
def proxy(postgres_location: str) -> Iterator[CuttingProxy]:
    with CuttingProxy(sa.make_url(postgres_location)) as made:
        yield made


def kept_open(location: str) -> Ledger:
    """A new ledger that keeps its connection, for all that is looked up beside what is tested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sa, "NullPool", sa.QueuePool)
        return new_ledger(location)


def state(ledger: Ledger, names: Names) -> str:
    """All that the ledger's tables hold of these names, without what differs from try to try."""
    wanted = {
        "dataset": ("name", names.dataset, "name, cap_epsilon, cap_delta, unit, rule"),
        "fingerprint": ("dataset", names.dataset, "fingerprint, dataset"),
        "sketch": ("dataset", names.dataset, "dataset, sketch"),
        "entry": ("dataset", names.dataset, "kind, epsilon, delta, run_id, method, unit, charges, note"),
        "draw": ("run_id", names.run, "run_id, name, digest"),
    }
    found = []
    with ledger._database.read() as connection:
        for table, (column, value, columns) in wanted.items():
            select = sa.text(f"SELECT {columns} FROM understudy_{table} WHERE {column} = :value")
            rows = sorted(str(tuple(row)) for row in connection.execute(select, {"value": value}))
            found.append(f"{table}: {rows}")
    text = "\n".join(found)
    for name in ("dataset", "run", "content"):
        text = text.replace(getattr(names, name), name)
    return text


def cuts(*, writes: bool = True) -> Iterator[Cut]:
    """Every cut, without an end: an operation is over where a cut strikes nothing.

    Where nothing is written it is all one whether the server did what it was told before the connection was lost.
    """
    for number in count():
        if writes:
            yield Cut(number, "before")
        yield Cut(number, "after")


def lost(action: Callable[[], Any], proxy: CuttingProxy, cut: Cut) -> LedgerError | None:
    """The error that the action ends with under the cut."""
    proxy.arm(cut)
    try:
        action()
    except LedgerError as error:
        return error
    finally:
        proxy.disarm()
    return None


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_lost_connection_leaves_all_or_nothing_and_the_same_call_again_ends_it(
    name: str, postgres_location: str, proxy: CuttingProxy
) -> None:
    operation = OPERATIONS[name]
    tries = in_doubt = 0
    with kept_open(postgres_location) as direct, Ledger(proxy.url) as through_proxy:
        whole = Names.new()
        operation.needs(direct, whole)
        before = state(direct, whole)
        answer = operation.call(direct, whole)
        after = state(direct, whole)
        assert (before != after) == (name in WRITES)
        for cut in cuts(writes=name in WRITES):
            names = whole
            if name in WRITES:  # of what is only read there is enough once
                names = Names.new()
                operation.needs(direct, names)
            error = lost(lambda: operation.call(through_proxy, names), proxy, cut)  # noqa: B023 - called at once
            if proxy.struck is None:
                assert error is None
                assert state(direct, names) == after
                break
            tries += 1
            committed = b"COMMIT\0" in proxy.struck and cut.moment == "after"
            in_doubt += committed
            assert error is not None
            assert "un the same command again" in error.cure
            assert ("was lost" in error.problem) != proxy.struck.startswith(LOGIN)
            assert state(direct, names) == (after if committed else before)
            assert operation.call(through_proxy, names) == answer
            assert state(direct, names) == after
    assert tries >= 4 * (1 + (name in WRITES))  # logging in, begin, a statement, commit
    assert in_doubt >= 1, "a commit whose answer is lost is among the cuts"


def test_a_connection_that_is_lost_while_a_ledger_is_made_leaves_one_that_can_be_made(
    postgres_location: str, proxy: CuttingProxy
) -> None:
    """The key, and whether it is strict, stay as they were committed."""
    tries = 0
    for cut in (cut for cut in cuts() if cut.moment == "after"):
        error = lost(lambda: Ledger.create(proxy.url).close(), proxy, cut)
        if proxy.struck is None:
            break
        tries += 1
        assert error is not None
        with Ledger.create(proxy.url) as ledger, Ledger(postgres_location) as direct:
            assert (ledger.id, ledger.fingerprint_key) == (direct.id, direct.fingerprint_key)
            assert direct.strict
            assert direct.datasets() == []
        if b"COMMIT\0" not in proxy.struck:
            _forget(postgres_location)
    assert tries > 10


def test_a_server_that_does_not_answer_is_given_up(
    postgres_location: str, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    with new_ledger(postgres_location), Ledger(proxy.url) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr("understudy.ledger.database.CONNECT_SECONDS", 2)
            error = lost(Ledger(proxy.url).datasets, proxy, Cut(0, "silent"))
        assert error is not None
        assert "timeout" in error.problem
        assert ledger.datasets() == []


def test_the_urls_own_settings_of_the_connection_hold(postgres_location: str) -> None:
    own = {"connect_timeout": "77", "keepalives_idle": "5"}
    url = sa.make_url(postgres_location).update_query_dict(own).render_as_string(hide_password=False)
    with Database(parse_location(url)).read() as connection:
        found = connection.connection.driver_connection.info.get_parameters()
    assert {name: found[name] for name in own} == own
    assert found["tcp_user_timeout"] == "120000"


def test_a_client_that_vanishes_with_the_lock_keeps_it_for_a_while_only(
    postgres_location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine is gone, and the server is not told."""
    monkeypatch.setattr("understudy.ledger.database.VANISHED_SECONDS", 1)
    with new_ledger(postgres_location) as ledger:
        with pytest.raises(LedgerError, match="lost"), Database(parse_location(postgres_location)).write():
            ledger.open_dataset("clinic", cap=CAP, unit=RECORD)
        assert ledger.dataset("clinic") is not None


@pytest.mark.parametrize(("servers", "ours"), [("off", "on"), ("on", "on"), ("remote_apply", "remote_apply")])
def test_a_commit_is_on_the_servers_disk_whatever_its_setting(postgres_location: str, servers: str, ours: str) -> None:
    url = sa.make_url(postgres_location).update_query_dict({"options": f"-c synchronous_commit={servers}"})
    database = Database(parse_location(url.render_as_string(hide_password=False)))
    for _ in range(2):
        with database.write() as connection:
            assert connection.exec_driver_sql("SHOW synchronous_commit").scalar_one() == ours


def _forget(location: str) -> None:
    with Database(parse_location(location)).write() as connection:
        postgres_cluster.empty(connection)


# -- the statements of docs/running-for-a-team.md give each role what the page says, and no more ----------------------

PAGE = Path(__file__).parents[2] / "docs" / "running-for-a-team.md"
BEFORE, AFTER = re.findall(r"```sql\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


@pytest.fixture
def as_role(postgres_server: str) -> Iterator[Callable[[str], str]]:
    """The location of the page's ledger, with the dataset ``notes`` open, for a role of the page."""
    mark = uuid.uuid4().hex[:8]
    server = sa.make_url(postgres_server).set(drivername="postgresql+psycopg")
    place = server.set(database=f"understudy_{mark}")

    def execute(url: sa.URL, statements: str) -> None:
        renamed = re.sub(r"\b(ledger_(?:owner|user|reader)|DATABASE understudy)\b", rf"\1_{mark}", statements)
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
        with engine.connect() as connection:
            for statement in filter(str.strip, renamed.split(";")):
                connection.exec_driver_sql(statement)

    def location(role: str) -> str:
        options = {"options": f"-c role={role}_{mark}"}
        return place.set(drivername="postgresql").update_query_dict(options).render_as_string(hide_password=False)

    execute(server, BEFORE)
    try:
        with Ledger.create(location("ledger_owner")) as ledger:
            assert ledger.strict
            ledger.open_dataset("notes", cap=CAP, unit=RECORD)
        execute(sa.make_url(location("ledger_owner")).set(drivername="postgresql+psycopg"), AFTER)
        yield location
    finally:
        execute(server, "DROP DATABASE understudy WITH (FORCE)")
        execute(server, "DROP ROLE ledger_owner; DROP ROLE ledger_user; DROP ROLE ledger_reader")


def test_a_user_runs_and_neither_opens_nor_raises(as_role: Callable[[str], str]) -> None:
    with Ledger(as_role("ledger_user")) as ledger:
        for sketch in (Sketch((1,)), Sketch((1, 2))):
            ledger.identify("notes", uuid.uuid4().hex, sketch=sketch)
        receipt = ledger.charge("notes", pure_plan("0.1"), run_id="one")
        ledger.confirm(receipt.seal("sums", noise="system", rows=""), "digest")
        with pytest.raises(LedgerError, match="permission denied"):
            ledger.open_dataset("letters", cap=CAP, unit=RECORD)
        with pytest.raises(LedgerError, match="permission denied"):
            ledger.raise_cap("notes", cap=Budget(100, "1e-6"))
    with pytest.raises(LedgerError, match="permission denied"):
        Ledger.create(as_role("ledger_user"), strict=False)


def test_a_reader_sees_what_was_spent_and_does_not_run(as_role: Callable[[str], str]) -> None:
    with Ledger(as_role("ledger_user")) as ledger:
        ledger.charge("notes", pure_plan("0.1"), run_id="one")
    with Ledger(as_role("ledger_reader")) as ledger:
        assert [entry.run_id for entry in ledger.history("notes")] == ["one"]
        with pytest.raises(LedgerError, match="permission denied"):
            ledger.charge("notes", pure_plan("0.1"), run_id="two")


def test_the_owner_raises_a_cap(as_role: Callable[[str], str]) -> None:
    with Ledger(as_role("ledger_owner")) as ledger:
        assert ledger.raise_cap("notes", cap=Budget(2, "1e-6")).cap == Budget(2, "1e-6")
