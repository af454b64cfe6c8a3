"""The prompt of the built-in writer: one short turn, in the form that it was trained on (``training/``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle, islice, pairwise

from understudy.models.types import Message
from understudy.text.vocabulary.terms import is_telling, load_vocabulary

ANSWERS, SEEDS = 2, 2
"""Answers to each seed by default, the better of which is kept, and seeds for each text that is wanted.

One answer is around the seed's four rarest phrases, another around two of them: more phrases in one short text, and
frequent words ("when", "get"), made texts of so small a model senseless."""
FOR_GUIDE = 0.75
"""The share of the texts, those that make the most sense, among which a guide chooses."""
TEMPERATURE = 0.5
"""Its default sampling temperature."""
SHARE_WORTH, PHRASE_WORTH = 3.0, 0.2
"""What all phrases that were asked for are worth in an answer, and each of them, in log-odds of making sense."""


def weighed(sense: float, *, share: float, kept: int) -> float:
    """Return the log-odds of making sense, with what it adds that a text keeps this share and number of its phrases."""
    return sense + SHARE_WORTH * share + PHRASE_WORTH * kept


_ANSWER_TO = re.compile(r"(answer|reply|response) to (?:an? |the )?(.+) question", re.IGNORECASE)
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
    """Return the phrases to ask for in each of a seed's answers, in the seed's order: its four rarest, then pairs, each
    with a phrase that has content.

    >>> choices(["when", "mastercard", "get", "pin", "accepted"], 3)
    [('mastercard', 'get', 'pin', 'accepted'), ('mastercard', 'pin'), ('pin', 'accepted')]
    >>> choices(["guitar", "looking", "know"], 3)
    [('guitar', 'looking', 'know'), ('guitar', 'looking'), ('guitar', 'looking', 'know')]
    """
    rank = _ranks()
    ordered = sorted(phrases, key=lambda phrase: rank.get(phrase, len(rank)), reverse=True)
    four, three = ([phrase for phrase in phrases if phrase in ordered[:count]] for count in (4, 3))
    pairs = [pair for pair in pairwise(three) if any(map(is_telling, pair))] if len(three) > 2 else [three]
    return list(islice(cycle([tuple(four), *map(tuple, pairs)]), answers))


@dataclass(frozen=True)
class Brief:
    """What the built-in writer is asked for: the kind of text and its required content."""

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
        >>> Brief("answer to a medical question").prompt
        'medical answer'
        """
        about = f" about {subject}" if (subject := _subject(self.label)) else ""
        length = f", {self.words} words" if self.words else ""
        kind = _ANSWER_TO.sub(r"\2 \1", self.kind)  # as in training; "question" would make it ask one
        lines = [f"{kind}{about}{length}", self.details]
        lines += [f"Words: {', '.join(self.phrases)}"] if self.phrases else []
        lines += [f"Blanks: {self.blanks}"] if self.blanks else []
        return "\n".join(line for line in lines if line)

    @property
    def messages(self) -> tuple[Message, ...]:
        """Return the prompt as a system turn, because the model's chat template puts one before a user turn."""
        return (Message("system", self.prompt),)
