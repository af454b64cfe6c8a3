"""Parameters and plan of the terms that a method counts: those of a public list, and others found in the texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

from pydantic import Field

from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters, public_file
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.selection import NoisySelection
from understudy.text.vocabulary.terms import BUILT_IN, Vocabulary, load_vocabulary, stop_word_languages


class TermListParameters(Parameters):
    """Where the list of terms of a method comes from."""

    vocabulary: str = public_file(BUILT_IN)
    """A public list of terms: a file, or the built-in English word list."""
    vocabulary_is_public: bool = False
    """Confirms that your own vocabulary and stop words were not made from private data."""
    stop_words: str | None = public_file(None)
    """Words to leave out: a file, ``built-in``, ``none``, the two letters of a language (``de``), or ``all-languages``:
    those of 33 languages, which also says that the texts are not English. Default: those of ``language``."""

    @property
    def tongue(self) -> str:
        """Return the language that the stop words name; ``en`` if they name none."""
        return self.stop_words if self.stop_words and stop_word_languages(self.stop_words) else "en"

    @property
    def not_english(self) -> bool:
        """Return whether the texts are declared to be in another language than the built-in vocabulary."""
        return self.tongue != "en"


class VocabularyParameters(TermListParameters):
    """Where the terms of a method come from: a list, and discovery in the texts."""

    discover_terms: float | None = Field(None, ge=0, le=0.9)
    """Share of the budget (of mu^2) for finding terms of one to three words that are in no public list: those in many
    records join the vocabulary, word for word. Words with digits are never found. Default: 0; 0.3 if ``language`` is
    not English, ``owner`` is protected and no ``vocabulary`` is named."""


class WordsParameters(Parameters):
    """Which words people may read."""

    allow_words: bool = False
    """Use words of a public list of obscenities, slurs and sexual words like all others. Otherwise they are used only
    if at least one text in a hundred surely contains them."""


DISCOVERED = "discovered-terms"
REAL = "real"
"""Array of a Release: the probability that the texts contain a term, by its count."""
FOREIGN_SHARE = 0.3
"""Share of the budget (of mu^2) for finding terms if the built-in list has another language."""
FEWEST = 5
"""Terms that surely occur in the texts: with fewer, the vocabulary hardly fits them."""
_PER_UNIT = 100
"""Largest number of terms of one unit that count."""
_LONE_DELTA = Fraction(1, 10)
"""Share of delta: the probability that a term of one unit alone is shown."""


def public_vocabulary(parameters: TermListParameters) -> Vocabulary:
    """Return the public terms. Raises ConfigError if they are not declared public."""
    named = parameters.stop_words in (None, BUILT_IN, "none") or stop_word_languages(parameters.stop_words)
    if (parameters.vocabulary != BUILT_IN or not named) and not parameters.vocabulary_is_public:
        raise ConfigError(
            "Your own vocabulary or stop word list must not be made from the private data.",
            "If it is public, say so with --vocabulary-is-public.",
        )
    return load_vocabulary(parameters.vocabulary, stop_words=parameters.stop_words)


def split_off(budget: Budget, share: float, shares: Sequence[float]) -> tuple[Charge, list[float]]:
    """Return the charge for discovering terms, with ``share`` of the budget (of mu^2) and a part of delta, and the
    noise multipliers of Gaussian sums that divide the rest by ``shares``."""
    lone = budget.delta * _LONE_DELTA
    rest = Budget.of(budget.epsilon, budget.delta - lone)
    first, *others = gaussian_split(rest, [share, *((1 - share) * each for each in shares)])
    why = "noisy weighted counts of terms that are in no list; those above a threshold stay"
    return Charge(DISCOVERED, NoisySelection(first, float(lone), _PER_UNIT), why), others


def word_for_word(plan: Plan) -> str:
    """Return a sentence for the statement: how many records must have a term before it is likely to be discovered."""
    found, unit = plan.mechanism(DISCOVERED), plan.unit
    alone = max(1, round(found.threshold / COUNT_GRID))
    among = round(alone * math.sqrt(found.most))
    several = "" if unit.kind == "owner" else " One person with that many records is enough."
    return (
        "Terms that are in no public list were found in the private texts and appear word for word. A term is found "
        f"if about {alone} or more {unit.kind}s have it and no other such term, or if {among} or more have it and "
        f"{found.most} such terms each.{several}"
    )
