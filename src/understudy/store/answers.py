"""Answers of language models, by the key of their request: a resumed run pays for none twice.

An answer without text may be a fault that passes (a content filter, a server that starts), so it is kept apart with
how often its request was answered so, and is an answer like any other only after MOST_BLANK times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from understudy.store.database import Database

MOST_BLANK = 3
"""How often a request is asked that is answered without text, over all runs of one output folder."""
_CHUNK = 400  # keys per query, each there twice; old SQLite libraries take 999
_TABLE = "CREATE TABLE IF NOT EXISTS blank_answer (key TEXT PRIMARY KEY, text TEXT NOT NULL, times INTEGER NOT NULL)"


class AnswerStore:
    """Made by :class:`understudy.store.RunStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database
        with database.transaction() as connection:
            connection.execute(_TABLE)

    def get_many(self, keys: Sequence[str]) -> dict[str, str]:
        """The stored answers among ``keys``; those without text once they were given MOST_BLANK times."""
        found: dict[str, str] = {}
        for start in range(0, len(keys), _CHUNK):
            chunk = keys[start : start + _CHUNK]
            marks = ",".join("?" * len(chunk))
            with self._database.reading() as connection:
                query = (
                    f"SELECT key, text FROM blank_answer WHERE times >= {MOST_BLANK} AND key IN ({marks}) "
                    f"UNION ALL SELECT key, text FROM answer WHERE key IN ({marks})"
                )
                found.update(connection.execute(query, [*chunk, *chunk]).fetchall())
        return found

    def put_many(self, answers: Mapping[str, str]) -> None:
        """Store answers in one transaction, on disk when this returns; a key that has one keeps its first.

        One call is one write to the disk: hand over some twenty at a time.
        """
        with self._database.transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO answer VALUES (?, ?)", answers.items())

    def put_blank(self, answers: Mapping[str, str]) -> None:
        """Count an answer without text to each key, in one transaction, on disk when this returns.

        Nothing is counted while no answer with text is stored: where a model writes nothing at all, the fault lies not
        in the questions, and all of them are asked again.
        """
        with self._database.transaction() as connection:
            connection.executemany(
                "INSERT INTO blank_answer SELECT ?, ?, 1 WHERE EXISTS (SELECT 1 FROM answer) "
                "ON CONFLICT (key) DO UPDATE SET times = times + 1, text = excluded.text",
                answers.items(),
            )
