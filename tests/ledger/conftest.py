from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import postgres_cluster
import pytest
import sqlalchemy as sa

from understudy.ledger import Ledger


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    try:
        with postgres_cluster.server() as url:
            yield url
    except postgres_cluster.NotThere as why:
        pytest.skip(str(why))


@pytest.fixture(scope="session")
def postgres_database(postgres_server: str) -> Iterator[sa.Engine]:
    """A database for the tests of this process."""
    url = sa.make_url(postgres_server).set(drivername="postgresql+psycopg")
    name = f"understudy_{uuid.uuid4().hex}"
    admin = sa.create_engine(url, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with admin.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
    yield sa.create_engine(url.set(database=name), isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with admin.connect() as connection:
        connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))


@pytest.fixture
def postgres_location(postgres_database: sa.Engine) -> Iterator[str]:
    """A database that is empty. Whoever uses it is thrown out at the end: making another one takes longer."""
    yield postgres_database.url.set(drivername="postgresql").render_as_string(hide_password=False)
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with postgres_database.connect() as connection:
        connection.execute(sa.text(f"SELECT pg_terminate_backend(pid) {others}"))
        postgres_cluster.empty(connection)


@pytest.fixture(params=["sqlite", "postgresql"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A new ledger's place, on every kind of database."""
    if request.param == "sqlite":
        return str(tmp_path / "state" / "ledger.sqlite")
    return str(request.getfixturevalue("postgres_location"))


@pytest.fixture
def ledger(location: str) -> Iterator[Ledger]:
    with Ledger.create(location, strict=False) as opened:
        yield opened


@pytest.fixture(autouse=True)
def ledgers_begin_by_themselves() -> None:
    """They do not, here."""
