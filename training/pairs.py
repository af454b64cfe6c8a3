"""Pairs of what is asked and the text that answers it, from public texts: the writer's one task.

A pair asks for a kind of text, sometimes with a label, a length, or details, and for a few phrases of the text in any
order, taken by the vocabulary that DP-KPS counts; now and then for one that is not in it, as noise adds them.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from training.judged import load_judged
from training.sources import SOURCES, Text
from understudy.text.prompts.writer import Brief
from understudy.text.vocabulary.terms import load_vocabulary
from understudy.text.vocabulary.words import TermMatcher, split_words

_SENTENCE = re.compile(r".+?(?:[.!?][\"')\]]*(?=\s+[A-Z\"'(0-9])|$)", re.DOTALL)
_BAD = re.compile(r"https?:|www\.|[<>{}|@_\\]|[^\x00-\x7fé°]|\s[%+,.;:]|``")
SHORTEST, LONGEST = 4, 95  # words of a piece
DRAWS, HELD_OUT = 4, 20  # pairs of one piece; pieces of each source that are not trained on
REPLAYED = 6  # of so many pieces of an earlier round, a later one sees one
_RUN = 8  # words in a row that a judge's text must not share with one of ours


@dataclass(frozen=True)
class Pair:
    """What is asked, and the text."""

    asked: str
    text: str


def build(mirrors: Path, *, seed: int, judges: Path | None = None, added: int = 1) -> tuple[list[Pair], list[Pair]]:
    """Pairs to train on and pairs of pieces held out, in an order drawn by ``seed``.

    The first round has several pairs of each piece. A later one has one pair of each piece of the sources that it
    ``added``, of a part of the earlier sources' pieces, so that nothing is forgotten, and the writer's own texts that
    readers found sensible. No piece shares eight words in a row with a set in ``judges``.
    """
    draw = random.Random(seed)
    taken = frozenset() if judges is None else frozenset(_judged(judges))
    pairs: list[Pair] = []
    held: list[Pair] = []
    for source in SOURCES:
        if source.added > added:
            continue
        pieces = sorted({piece.text: piece for text in source.texts(mirrors) for piece in _pieces(text, draw)}.items())
        good = [piece for _, piece in pieces if taken.isdisjoint(_runs(split_words(piece.text)))]
        draw.shuffle(good)
        held += [pair(piece, good, draw) for piece in good[:HELD_OUT]]
        chosen = good[HELD_OUT : source.pieces]
        if source.added < added:
            chosen = chosen[: len(chosen) // REPLAYED]
        draws = DRAWS if added == 1 else 1
        pairs += [pair(piece, good, draw) for piece in chosen for _ in range(draws)]
    if added > 1:
        pairs += [Pair(each.prompt, each.text) for each in load_judged() if each.sensible]
    draw.shuffle(pairs)
    return pairs, held


def _pieces(text: Text, draw: random.Random) -> Iterator[Text]:
    """The text where it is short, else runs of its sentences, most of them of one to three."""
    if "\n" in text.text and "dialogue" in text.kinds[0]:
        if SHORTEST <= len(text.text.split()) <= LONGEST and not _BAD.search(text.text):
            yield text
        return
    sentences = [each.strip() for each in _SENTENCE.findall(" ".join(text.text.split()))]
    start = 0
    while start < len(sentences):
        count = draw.choices((1, 2, 3, 5), (4, 5, 3, 2))[0]
        piece = " ".join(sentences[start : start + count])
        start += count
        clean = not _BAD.search(piece) and sum(map(str.isdigit, piece)) < len(piece) / 10
        if SHORTEST <= len(piece.split()) <= LONGEST and clean and piece.count("(") == piece.count(")"):
            yield Text(piece[:1].upper() + piece[1:] if count > 1 else piece, text.kinds, text.label)


@cache
def _vocabulary() -> tuple[TermMatcher, Sequence[str]]:
    terms = load_vocabulary().terms
    return TermMatcher(terms), terms


def pair(piece: Text, others: Sequence[Text], draw: random.Random) -> Pair:
    """One pair: mostly four phrases, rarer words first."""
    matcher, terms = _vocabulary()
    words = len(piece.text.split())
    kind = "document" if draw.random() < 0.15 else draw.choice(piece.kinds)
    label = piece.label if piece.label and draw.random() < 0.35 else ""
    length = max(5, 5 * round(words / 5)) if draw.random() < 0.3 else None
    if draw.random() < 0.1 and words > 5:
        blanks = (0.3, 0.5, 0.7)[draw.randrange(3)]
        shown = " ".join("_" if draw.random() < blanks else word for word in piece.text.split())
        return Pair(Brief(kind, label=label, words=length, blanks=shown).prompt, piece.text)
    known = list(dict.fromkeys(matcher.find(piece.text)))
    count = min(draw.choices((0, 1, 2, 3, 4, 5, 6, 8), (4, 4, 10, 20, 34, 14, 9, 5))[0], max(1, words // 3))
    weighted = sorted(known, key=lambda index: draw.random() ** (1 / (1 + min(index, 8000) ** 0.5)), reverse=True)
    phrases = [terms[index] for index in weighted[:count]]
    if len(phrases) > 1 and draw.random() < 0.12:  # a longer one, as glossaries have them
        split = split_words(piece.text)
        at = draw.randrange(max(1, len(split) - 1))
        phrases[0] = " ".join(split[at : at + 2])
    if len(phrases) > 2 and draw.random() < 0.05:
        found = matcher.find(draw.choice(others).text)
        phrases += [terms[draw.choice(found)]] if found else []
    draw.shuffle(phrases)
    return Pair(Brief(kind, label=label, words=length, phrases=tuple(phrases)).prompt, piece.text)


def _runs(words: Sequence[str]) -> set[bytes]:
    joined = (" ".join(words[start : start + _RUN]) for start in range(len(words) - _RUN + 1))
    return {hashlib.blake2b(run.encode(), digest_size=8).digest() for run in joined}


def _judged(folder: Path) -> Iterator[bytes]:
    """Runs of the texts that judge: every column of words in every table below ``folder``, MedQuAD's left out."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for path in sorted(folder.rglob("*.parquet")):
        if path.parent.name in ("medquad", "vocab"):
            continue
        table = pq.read_table(path)
        for column in table.columns:
            if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
                yield from _of(column.to_pylist())


def _of(texts: Iterable[str | None]) -> Iterator[bytes]:
    for text in texts:
        yield from _runs(split_words(text or ""))
