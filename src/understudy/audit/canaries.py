"""Canaries: made-up records, each planted with probability 1/2.

A canary begins like a record of the corpus (in-distribution prefix) and ends in rare public terms that are in no record
of the corpus and in no other canary (rare suffix). Prefix, suffix and label are chosen first. Then the operating
system's randomness decides which canaries are planted, so that only the run's output can reveal it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, CorpusError, ResumeError
from understudy.base.files import PRIVATE_MODE, write_file
from understudy.corpus import Corpus
from understudy.corpus.schema import Schema
from understudy.corpus.secrets import SecretFinder, read_secrets
from understudy.corpus.write import write_table
from understudy.methods.additions.columns.variables import cells_of_label
from understudy.methods.base import Method
from understudy.privacy.unit import Unit
from understudy.run.parts import Table
from understudy.run.settings import RunConfig
from understudy.schema.labels import Label, canonical
from understudy.schema.transcript import Part
from understudy.text.vocabulary.terms import BUILT_IN, Vocabulary, load_vocabulary
from understudy.text.vocabulary.words import TermMatcher


@dataclass(frozen=True, repr=False)
class Canary:
    """A record that may be planted. Private; its ``repr`` shows nothing.

    Args:
        name: unique; the owner of this record, if owners are protected.
        prefix: the first words of a record of the corpus; may be empty.
        terms: rare public terms, in no other canary.
        label: the label of the record that the prefix is from; None without labels.
        planted: whether it was planted, decided by a fair coin.
    """

    name: str
    prefix: str
    terms: tuple[str, ...]
    label: Label | None
    planted: bool

    @property
    def suffix(self) -> str:
        return " ".join(self.terms)

    @property
    def text(self) -> str:
        return f"{self.prefix} {self.suffix}".lstrip()


@dataclass(frozen=True, repr=False)
class Canaries:
    """All canaries of an audit. Private; its ``repr`` shows nothing."""

    all: tuple[Canary, ...]

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Canary]:
        return iter(self.all)

    @property
    def planted(self) -> NDArray[np.bool_]:
        """Return which canaries were planted, ``Bool[m]``."""
        return np.array([canary.planted for canary in self.all], dtype=bool)

    def save(self, path: Path, *, settings: str) -> None:
        """Write the canaries to a private file, with a digest of the settings that made them."""
        fields = {"settings": settings, "canaries": [asdict(canary) for canary in self.all]}
        write_file(path, json.dumps(fields, ensure_ascii=False), mode=PRIVATE_MODE)


def load_canaries(path: Path, *, settings: str) -> Canaries:
    """Read what :meth:`Canaries.save` wrote.

    Raises ResumeError if they were made with other settings, or the file is damaged.
    """
    try:
        fields = json.loads(path.read_text("utf-8"))
        made = tuple(Canary(**{**each, "terms": tuple(each["terms"])}) for each in fields["canaries"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ResumeError(
            "The canaries of this audit cannot be read.", "Start over with --fresh, at no charge."
        ) from None
    if fields["settings"] != settings:
        raise ResumeError(
            "The folder contains an audit with other settings.",
            "Use the settings it began with, another --output, or --fresh to start over, at no charge.",
        )
    return Canaries(made)


def make_canaries(
    count: int,
    *,
    terms: Sequence[str],
    taken: frozenset[int],
    per_canary: int,
    prefixes: Sequence[tuple[str, Label | None]],
) -> Canaries:
    """Make ``count`` canaries, and decide at random which of them are planted.

    Args:
        terms: a public vocabulary, the most frequent terms first.
        taken: indices of the terms that are in the corpus, and so in no suffix.
        prefixes: first words with the label of their record; repeated in turn if there are fewer than canaries.

    Raises ConfigError if the vocabulary has too few terms that are not in the corpus.
    """
    matcher = TermMatcher(terms)
    free = [index for index in range(len(terms)) if index not in taken]
    rarest = free[-count * per_canary * 2 :]  # at most the rare half of the terms
    secrets.SystemRandom().shuffle(rarest)
    suffixes: list[tuple[str, ...]] = []
    pool = iter(rarest)
    while len(suffixes) < count:
        chosen = list(islice(pool, per_canary))
        if len(chosen) < per_canary:
            raise ConfigError(
                f"The public vocabulary has too few terms that are not in the corpus for {count} canaries of "
                f"{per_canary} terms.",
                "Plant fewer canaries, give each fewer terms (--suffix-terms), or use a larger vocabulary.",
            )
        suffix = tuple(terms[index] for index in chosen)
        if matcher.find(" ".join(suffix)) == chosen:  # next to each other they are not read as other terms
            suffixes.append(suffix)
    return Canaries(
        tuple(
            Canary(
                name=f"canary-{secrets.token_hex(8)}",
                prefix=prefixes[number % len(prefixes)][0],
                terms=suffix,
                label=prefixes[number % len(prefixes)][1],
                planted=bool(secrets.randbits(1)),
            )
            for number, suffix in enumerate(suffixes)
        )
    )


CORPUS, SECRETS, LEDGER, RUN = "corpus.jsonl", "secrets.txt", "ledger.sqlite", "run"


def vocabulary_of(method: Method) -> Vocabulary:
    """Return the source of rare terms: the public vocabulary of the method, if it has one, else the built-in list."""
    own = method.dump()
    names = {"source": "vocabulary", "stop_words": "stop_words"}
    given: dict[str, Any] = {ours: own[theirs] for ours, theirs in names.items() if own.get(theirs) is not None}
    return load_vocabulary(**{"source": BUILT_IN, **given})


def choose_canaries(
    corpus: Corpus,
    terms: Sequence[str],
    *,
    finder: SecretFinder | None = None,
    count: int,
    prefix_words: int,
    suffix_terms: int,
) -> Canaries:
    """Make canaries for this corpus, in one pass. With a ``finder`` of secrets, no canary begins with a secret."""
    matcher = TermMatcher(terms)
    taken: set[int] = set()
    prefixes: list[tuple[str, Label | None]] = []
    for batch in corpus.batches():
        for text, label, *_ in batch.rows:
            taken.update(matcher.find(text))
            if len(prefixes) < count:
                said = "" if corpus.schema.record_columns else corpus.schema.form.contents(text)
                words = " ".join(said.split()[:prefix_words])
                clean = words if finder is None or not finder.find(words) else ""
                prefixes.append((clean, corpus.labels[label] if corpus.labels else None))
    if not prefixes:
        raise CorpusError("The table has no record, so canaries cannot be hidden in it.", "Give a table with records.")
    return make_canaries(count, terms=terms, taken=frozenset(taken), per_canary=suffix_terms, prefixes=prefixes)


def plant(table: Table, unit: Unit, corpus: Corpus, canaries: Canaries, private: Path) -> None:
    """Write the corpus with the planted canaries in it into ``private``: one pass, all rows in memory.

    A canary is a whole unit of the greatest weight: one record, even for an owner, whose records would be averaged. If
    its suffix is a secret, it has as many records as may contain one secret.
    """
    copies = 1
    if unit.kind == "secret":
        copies = unit.max_records
        theirs = [] if table.secrets_file is None else read_secrets(Path(table.secrets_file))
        write_file(private / SECRETS, "\n".join([*theirs, *(canary.suffix for canary in canaries)]), mode=PRIVATE_MODE)
    values = Values(corpus.schema)
    planted = [canary for canary in canaries if canary.planted for _ in range(copies)]
    rows = [*rows_of(corpus, values), *(row_of(corpus, canary, values) for canary in planted)]
    write_table(private / CORPUS, {name: [row[name] for row in rows] for name in corpus.schema.columns})
    (private / CORPUS).chmod(PRIVATE_MODE)


def on_the_copy(config: RunConfig, private: Path) -> RunConfig:
    """Return the configuration of a run on the table of :func:`plant`.

    It has a separate ledger, so that the user's dataset is not charged, and all its results are under ``private``.
    """
    changes: dict[str, Any] = {
        "data": (str(private / CORPUS),),
        "format": "jsonl",
        "delimiter": None,
        "quotes": None,
        "encoding": "utf-8",
        "max_bad_rows": 0.0,
        "dataset": "audit",
        "ledger": str(private / LEDGER),
        "ledger_id": None,
        "output": str(private / RUN),
        "fresh": False,
        "sign": None,
        "responsible": "",
    }
    if config.unit.kind == "secret":
        changes["secrets_file"] = str(private / SECRETS)
    return config.model_copy(update=changes)


class Values:
    """Gives the values of a row's columns, from its cells and label."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._generator = np.random.default_rng(0)

    def of(self, label: int, cells: Sequence[int], owner: str | None, secrets: Sequence[str]) -> dict[str, object]:
        """Return all values but those of the text by name: those of typed columns from their cells, and those of the
        label's columns from the label."""
        schema = self._schema
        row: dict[str, object] = {name: list(secrets) for name in schema.secrets}
        row |= {} if schema.owner is None else {schema.owner: owner}
        row |= {} if schema.label is None else {schema.label: schema.labels[label]}
        crossed = zip(schema.crossed, cells_of_label(schema.crossed, label).values(), strict=True)
        named = [*crossed, *zip(schema.typed, cells, strict=True)]
        values = ((column.name, column.sample(cell, self._generator)) for column, cell in named)
        return row | {name: value.isoformat() if isinstance(value, date) else value for name, value in values}


def rows_of(corpus: Corpus, values: Values) -> Iterator[dict[str, object]]:
    """Return the records as rows of a table that is declared in the same way."""
    schema = corpus.schema
    for batch in corpus.batches():
        for text, label, owner, listed, own in batch.rows:
            row = json.loads(text) if schema.record_columns else schema.form.cells(schema.text or "", text)
            yield row | values.of(label, own or (), owner, listed)


def row_of(corpus: Corpus, canary: Canary, values: Values) -> dict[str, object]:
    """Return a canary as a row of the table.

    Its text is in the last text column, or in the only turn of a dialogue; each typed column has the first of its
    possible values."""
    schema = corpus.schema
    row: dict[str, object] = dict.fromkeys(schema.record_columns, "")
    if schema.record_columns:
        row[schema.record_columns[-1]] = canary.text
    else:
        fields = [Part(name, "") for name in schema.form.fields[:-1]]
        last = schema.form.names[-1] if schema.form else ""
        text = schema.form.render([*fields, Part(last, canary.text)]) if schema.form else canary.text
        row = schema.form.cells(schema.text or "", text)
    label = 0 if canary.label is None else schema.label_index[canonical(canary.label)]
    return row | values.of(label, [0] * len(schema.typed), canary.name, ())
