"""Attacks on the queries of DP-KPS: term counts, and densities of terms."""

from __future__ import annotations

from understudy.audit.mechanisms.corpora import Row, corpus
from understudy.audit.mechanisms.noisy_sums import SumAttack
from understudy.corpus.bounding import BoundedCorpus
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import IntegerSum, NoisySum
from understudy.privacy.noise import NoiseKind, NoiseSource, SystemNoise
from understudy.privacy.unit import Unit
from understudy.vocabulary.matcher import TermMatcher
from understudy.vocabulary.top_terms import TermCounts

TERMS = ("ache", "burn", "cough", "dizzy")
"""The vocabulary. The worst record holds all of it."""
OTHERS = (Row("a cough and an ache"), Row("a burn"))
WORST = Row("dizzy, a burn, an ache, a cough, and again a cough")


def sum_of_terms(
    query: IntegerSum[BoundedCorpus], noise: NoiseKind, budget: Budget, source: NoiseSource | None = None
) -> SumAttack[BoundedCorpus]:
    """One query of the corpus, whose neighbour has one record more, with the noise that ``budget`` asks for."""
    multiplier = gaussian_split(budget, [1.0])[0] if noise == "gaussian" else 1 / float(budget.epsilon)
    return SumAttack(
        [NoisySum(query, noise, multiplier)],
        corpus(OTHERS, Unit()),
        corpus([*OTHERS, WORST], Unit()),
        float(budget.delta) if noise == "gaussian" else 0.0,
        source or SystemNoise(),
    )


def term_counts() -> TermCounts:
    """How many records hold each term."""
    return TermCounts(TermMatcher(TERMS), len(TERMS), len(TERMS))
