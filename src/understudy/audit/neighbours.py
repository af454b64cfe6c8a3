"""A table and its neighbours: a unit less, more, or replaced. The unit that changes is always the last one.

So the other units keep their places, and with them their coins, in both tables of a pair.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from understudy.audit.canaries import Canary, Values, row_of, rows_of
from understudy.base.errors import ConfigError
from understudy.corpus import Corpus
from understudy.corpus.secrets import SecretFinder, secrets_of_records
from understudy.privacy.unit import Unit

Row = dict[str, Any]
Rows = list[Row]

_FEWEST = 5
_HELD_OUT = {"record": 3, "owner": 3, "secret": 10}
_LONG = 20_000  # characters
_NEW = "someone new"
_STRANGE = "Zzyzx \u2603 \U0001f600 qwxv-7734 \u202e \u00df\u1e9e \u05d0\u05d1 0x1F\nname: 'quoted', <b> {brace} %s \\"


@dataclass(frozen=True, repr=False)
class Neighbour:
    """A table beside the first one. Private; its ``repr`` shows nothing.

    Args:
        units: by how many units it differs: 2 where one is replaced.
    """

    name: str
    rows: Rows
    units: int


def neighbours_of(
    corpus: Corpus, unit: Unit, finder: SecretFinder | None, *, skips: bool
) -> tuple[Rows, list[Neighbour]]:
    """Return the rows to begin with, and their neighbours, the telling ones first.

    Args:
        finder: of secrets, where these are protected.
        skips: whether bad rows are left out, so that an empty text and an unknown label are neighbours too.

    Raises ConfigError if the table has too few units.
    """
    values = Values(corpus.schema)
    units = _units(list(rows_of(corpus, values)), corpus, unit, finder)
    others = units.pop(None, [])  # of no secret
    names = sorted(units, key=lambda name: (len(json.dumps(units[name], default=str)), str(name)))
    if len(names) < _FEWEST:
        raise ConfigError("The table has too few units to replay a run on.", f"Give one with {_FEWEST} or more.")
    longest = names[-1]
    random_ones = random.Random(0).sample(names[1:-1], min(_HELD_OUT[unit.kind], len(names) - 3))
    rest = [row for name in units if name != longest and name not in random_ones for row in units[name]]
    without = [*others, *rest]
    last, first, shortest = units[longest], units[next(iter(units))], units[names[0]]
    base = [*without, *last]

    def more(name: str, rows: Rows) -> Neighbour:
        return Neighbour(f"one more: {name}", [*base, *rows], 1)

    def instead(name: str, rows: Rows) -> Neighbour:
        return Neighbour(f"the longest replaced by {name}", [*without, *rows], 2)

    found = [Neighbour("one less: the longest", without, 1)]
    for number, name in enumerate(random_ones, 1):
        found.append(more(f"random, {number}", units[name]))
    if unit.kind == "secret":
        return base, [*found, *(instead(f"random, {place}", units[random_ones[place - 1]]) for place in (1, 2))]

    def new(text: str, label: int = 0) -> Rows:
        named = corpus.labels[label] if corpus.labels else None
        return [row_of(corpus, Canary(_NEW, text, (), named, planted=True), values)]

    def again(rows: Rows) -> Rows:
        return [row | ({} if unit.column is None else {unit.column: _NEW}) for row in rows]

    end = len(corpus.labels) - 1 if corpus.labels else 0
    text = " ".join(batch.texts[0] for batch in corpus.batches() if batch.texts)
    long = (f"{text} " * _LONG)[:_LONG]
    several = [row for _ in range(unit.max_records + 2) for label in (0, end) for row in new(text, label)]
    told = [
        more("very long", new(long)),
        more("strange characters", new(_STRANGE, end)),
        more("of one character", new(".")),
        instead("one of one character", new(".")),
        more("the longest, a second time", again(last)),
        more("the first, a second time", again(first)),
        more("the shortest, a second time", again(shortest)),
        instead("a random one", units[random_ones[0]]),
        instead("a very long one", new(long, end)),
    ]
    if unit.kind == "owner":
        told.insert(0, more("of more records than are used", several))
    if skips:
        unknown = new(text)
        for column in (corpus.schema.label, *(column.name for column in corpus.schema.declared)):
            if column is not None and column in unknown[0]:
                told.insert(0, more(f"of an unknown value ({column})", [unknown[0] | {column: "no such value"}]))
        told.insert(0, more("empty", new("")))
    return base, [found[0], *told, *found[1:]]


def _units(rows: Rows, corpus: Corpus, unit: Unit, finder: SecretFinder | None) -> dict[Any, Rows]:
    """The rows of every unit; under None those of no secret."""
    found: dict[Any, Rows] = defaultdict(list)
    if unit.kind == "secret":
        assert finder is not None
        for row, secrets in zip(rows, secrets_of_records(corpus, finder), strict=True):
            found[min(secrets, default=None)].append(row)
        return found
    for number, row in enumerate(rows):
        found[row[unit.column] if unit.column is not None else number].append(row)
    return found
