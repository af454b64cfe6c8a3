"""Canaries: records that nobody wrote, each with a coin that says whether it is planted.

A canary begins like a record of the corpus (in-distribution prefix) and ends in rare public terms that are in no record
of the corpus and in no other canary (rare suffix). Prefix, suffix and label are chosen before the coins, and the coins
come from the operating system: nothing but the run's output tells them.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.labels import Label
from understudy.errors import ConfigError, ResumeError
from understudy.files import PRIVATE_MODE, atomic_file
from understudy.vocabulary.matcher import TermMatcher


@dataclass(frozen=True, repr=False)
class Canary:
    """A record that may be planted. Private; its ``repr`` shows nothing.

    Args:
        name: unique; the owner of this record, where owners are protected.
        prefix: the first words of a record of the corpus; may be empty.
        terms: rare public terms, in no other canary.
        label: the label of the record that the prefix is from; None without labels.
        planted: the coin.
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
        """``Bool[m]``: the coins."""
        return np.array([canary.planted for canary in self.all], dtype=bool)

    def save(self, path: Path, *, settings: str) -> None:
        """Write them for their owner's eyes only, under a digest of the settings that they were made with."""
        with atomic_file(path, mode=PRIVATE_MODE) as file:
            fields = {"settings": settings, "canaries": [asdict(canary) for canary in self.all]}
            file.write(json.dumps(fields, ensure_ascii=False).encode())


def load_canaries(path: Path, *, settings: str) -> Canaries:
    """Read what :meth:`Canaries.save` wrote.

    Raises:
        ResumeError: if they were made with other settings, or the file is damaged.
    """
    try:
        fields = json.loads(path.read_text("utf-8"))
        made = tuple(Canary(**{**each, "terms": tuple(each["terms"])}) for each in fields["canaries"])
    except (OSError, ValueError, KeyError, TypeError):
        raise ResumeError(
            "The canaries of this audit cannot be read.", "Start anew with --fresh, at no charge."
        ) from None
    if fields["settings"] != settings:
        raise ResumeError(
            "The folder holds an audit with other settings.",
            "Use the settings it began with, another --output, or --fresh to start anew, at no charge.",
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
    """Make ``count`` canaries and toss their coins.

    Args:
        terms: a public vocabulary, the most frequent terms first.
        taken: indices of the terms that are in the corpus, and so in no suffix.
        per_canary: terms a suffix.
        prefixes: of canary 0, 1, ..., with their labels; used again from the start where there are fewer.

    Raises:
        ConfigError: if the vocabulary has too few terms that the corpus does not hold.
    """
    matcher = TermMatcher(terms)
    free = [index for index in range(len(terms)) if index not in taken]
    rarest = free[-count * per_canary * 2 :]  # the rare half of what is there, or less
    secrets.SystemRandom().shuffle(rarest)
    suffixes: list[tuple[str, ...]] = []
    pool = iter(rarest)
    while len(suffixes) < count:
        chosen = list(islice(pool, per_canary))
        if len(chosen) < per_canary:
            raise ConfigError(
                f"The public vocabulary has too few terms that the corpus does not hold for {count} canaries of "
                f"{per_canary} terms.",
                "Plant fewer canaries, give each fewer terms (--suffix-terms), or use a larger vocabulary.",
            )
        suffix = tuple(terms[index] for index in chosen)
        if matcher.find(" ".join(suffix)) == chosen:  # side by side they are not read as other terms
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
