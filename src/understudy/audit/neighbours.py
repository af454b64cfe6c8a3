"""A table and its neighbours: one privacy unit less, more, or replaced. The unit that changes is always the last one,
so that the other units keep their positions, and with these their random decisions, in both tables of a pair.
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

_FEWEST = 3
_LESS = {"record": 3, "owner": 3, "secret": 12}
_LONG = 20_000  # characters
_NEW = "someone new"
_STRANGE = "Zzyzx \u2603 \U0001f600 qwxv-7734 \u202e \u00df\u1e9e \u05d0\u05d1 0x1F\nname: 'quoted', <b> {brace} %s \\"


@dataclass(frozen=True, repr=False)
class Neighbour:
    """A pair of neighbouring tables: the given table with one unit moved to the end, and the same table with that unit
    changed. Private; its ``repr`` shows nothing.

    Args:
        last: the name of the last unit of ``before``; pairs with the same ``last`` share the table ``before``.
        units: by how many units the tables differ: 2 if one is replaced.
    """

    name: str
    last: Any
    before: Rows
    after: Rows
    units: int


def neighbours_of(corpus: Corpus, unit: Unit, finder: SecretFinder | None, *, skips: bool) -> list[Neighbour]:
    """Return pairs of the table and a neighbour, the most revealing ones first.

    Args:
        finder: of secrets, if these are protected.
        skips: whether bad rows are left out, so that an empty text and an unknown label are neighbours too.

    Raises ConfigError if the table has too few units.
    """
    schema, values = corpus.schema, Values(corpus.schema)
    units = _units(list(rows_of(corpus, values)), corpus, unit, finder)
    others = units.pop(None, [])  # without a secret
    names = sorted(units, key=lambda name: (len(json.dumps(units[name], default=str)), str(name)))
    if len(names) < _FEWEST:
        raise ConfigError(
            "The table has too few records, owners or secrets to replay a run on.", f"Give one with {_FEWEST} or more."
        )

    def without(name: Any) -> Rows:
        return [*others, *(row for other in units if other != name for row in units[other])]

    def less(what: str, name: Any) -> Neighbour:
        return Neighbour(f"one less: {what}", name, [*without(name), *units[name]], without(name), 1)

    longest, shortest = names[-1], names[0]
    of_labels = {} if schema.label is None else {str(units[name][-1].get(schema.label)): name for name in names[1:-1]}
    chance = random.Random(0).sample(names[1:-1], len(names) - 2)
    chosen = list(dict.fromkeys([*of_labels.values(), *chance]))[: _LESS[unit.kind]]
    fewer = [less(f"random, {number}", name) for number, name in enumerate(chosen, 1)]
    found, fewer = [less("the longest", longest)], [*fewer, less("the shortest", shortest)]
    if unit.kind == "secret":
        return [*found, *fewer]
    base = found[0].before

    def more(name: str, rows: Rows) -> Neighbour:
        return Neighbour(f"one more: {name}", longest, base, [*base, *rows], 1)

    def instead(name: str, rows: Rows) -> Neighbour:
        return Neighbour(f"the longest replaced: {name}", longest, base, [*without(longest), *rows], 2)

    def new(text: str, label: int = 0) -> Rows:
        named = corpus.labels[label] if corpus.labels else None
        return [row_of(corpus, Canary(_NEW, text, (), named, planted=True), values)]

    def again(name: Any) -> Rows:
        return [row | ({} if unit.column is None else {unit.column: _NEW}) for row in units[name]]

    end = len(corpus.labels) - 1 if corpus.labels else 0
    text = " ".join(batch.texts[0] for batch in corpus.batches() if batch.texts)
    long = (f"{text} " * _LONG)[:_LONG]
    found += [more("very long", new(long)), more("strange characters", new(_STRANGE, end))]
    if unit.kind == "owner":
        several = [row for _ in range(unit.max_records + 2) for label in (0, end) for row in new(text, label)]
        found.append(more("of more records than are used", several))
    if skips:
        found.append(more("empty", new("")))
        for column in {schema.label, *(column.name for column in schema.declared)} & new(text)[0].keys():
            found.append(more(f"of an unknown value ({column})", [new(text)[0] | {str(column): "no such value"}]))
    found += [
        instead("one of one character", new(".")),
        more("of one character", new(".", end)),
        more("the longest, a second time", again(longest)),
        more("the shortest, a second time", again(shortest)),
        instead("a random one, a second time", again(chosen[0])),
        instead("a very long one", new(long, end)),
    ]
    return [*found, *fewer]


def _units(rows: Rows, corpus: Corpus, unit: Unit, finder: SecretFinder | None) -> dict[Any, Rows]:
    """Return the rows of every unit; under None those without a secret."""
    found: dict[Any, Rows] = defaultdict(list)
    if unit.kind == "secret":
        assert finder is not None
        for row, secrets in zip(rows, secrets_of_records(corpus, finder), strict=True):
            found[min(secrets, default=None)].append(row)
        return found
    for number, row in enumerate(rows):
        found[row[unit.column] if unit.column is not None else number].append(row)
    return found
