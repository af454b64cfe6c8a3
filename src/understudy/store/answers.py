"""Answers of language models, by the key of their request: a resumed run pays for none twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from understudy.store.database import Database

_CHUNK = 500  # keys a query; old SQLite libraries take 999


class AnswerStore:
    """Made by :class:`understudy.store.RunStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get_many(self, keys: Sequence[str]) -> dict[str, str]:
        """The stored answers among ``keys``."""
        found: dict[str, str] = {}
        for start in range(0, len(keys), _CHUNK):
            chunk = keys[start : start + _CHUNK]
            marks = ",".join("?" * len(chunk))
            with self._database.reading() as connection:
                found.update(
                    connection.execute(f"SELECT key, text FROM answer WHERE key IN ({marks})", chunk).fetchall()
                )
        return found

    def put_many(self, answers: Mapping[str, str]) -> None:
        """Store answers in one transaction, on disk when this returns; a key that has one keeps its first.

        One call is one write to the disk: hand over some twenty at a time.
        """
        with self._database.transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO answer VALUES (?, ?)", answers.items())
