"""The prompt of the built-in writer: one short turn, in the form that it was trained on (``training/``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations, cycle, islice

from understudy.models.types import Message
from understudy.text.vocabulary.terms import load_vocabulary

ANSWERS = 3
"""Answers to each seed by default, each around another pair of its three rarest phrases; the best one is kept.

More phrases than two in one short text, and frequent words ("when", "get"), were what made texts of so small a model
senseless; the best of three reads better than one (measured by blind reading, docs/decisions/068)."""
TEMPERATURE = 0.5
"""Its default sampling temperature."""
_RAREST, _AROUND = 3, 2  # phrases of a seed, and of an answer

_ANSWERS = frozenset({"true", "false", "yes", "no", "none", "other"})


def _subject(label: str) -> str:
    """Return the subject of a text with this label, in words; "" if the label's name does not show it.

    >>> _subject("card_arrival"), _subject("5"), _subject("true")
    ('card arrival', '', '')
    """
    words = " ".join(label.replace("_", " ").split())
    return words if sum(map(str.isalpha, words)) > 1 and words.lower().partition(" (")[0] not in _ANSWERS else ""


@cache
def _ranks() -> dict[str, int]:
    return {term: rank for rank, term in enumerate(load_vocabulary().terms)}


def choices(phrases: Sequence[str], answers: int) -> list[tuple[str, ...]]:
    """Return the phrases to ask for in each of a seed's answers: pairs of its rarest phrases, in their order.

    >>> choices(["when", "mastercard", "get", "pin", "accepted"], 3)
    [('mastercard', 'pin'), ('mastercard', 'accepted'), ('pin', 'accepted')]
    """
    rank = _ranks()
    rarest = sorted(phrases, key=lambda phrase: rank.get(phrase, len(rank)), reverse=True)[:_RAREST]
    pairs = list(combinations([phrase for phrase in phrases if phrase in rarest], _AROUND))
    return list(islice(cycle(pairs or [tuple(phrases)]), answers))


@dataclass(frozen=True)
class Brief:
    """A kind of text, and its required content."""

    kind: str
    label: str = ""  # as the table names it
    words: int | None = None  # about how many
    phrases: tuple[str, ...] = ()
    details: str = ""
    blanks: str = ""  # a text whose words are partly blanks

    @property
    def prompt(self) -> str:
        """Return the prompt, as in training.

        >>> Brief("news item", label="motor_sport", words=20, phrases=("cup", "final")).prompt
        'news item about motor sport, 20 words\\nWords: cup, final'
        """
        about = f" about {subject}" if (subject := _subject(self.label)) else ""
        length = f", {self.words} words" if self.words else ""
        lines = [f"{self.kind}{about}{length}", self.details]
        lines += [f"Words: {', '.join(self.phrases)}"] if self.phrases else []
        lines += [f"Blanks: {self.blanks}"] if self.blanks else []
        return "\n".join(line for line in lines if line)

    @property
    def messages(self) -> tuple[Message, ...]:
        """Sent as a system turn, because the model's template puts one before a user turn."""
        return (Message("system", self.prompt),)
