"""An attack on the votes of all rounds: was a record there that votes for a candidate of its own?

Many such canaries at once, half of them there: each has a candidate nobody else votes for, and the noise on it is
independent of the others', so each is one trial of the worst case. The attack adds the candidate's votes up over
the rounds. Clopper-Pearson bounds on its rates give a lower bound on mu, and so on epsilon, that holds but for one
chance in a million.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from understudy.evolution.embeddings import PrivateEmbeddings, integer_vectors
from understudy.methods.aug_pe.method import AugPE
from understudy.methods.aug_pe.plan import votes_name
from understudy.methods.aug_pe.votes import VoteHistogram
from understudy.methods.protocol import PublicFacts
from understudy.privacy.guarantee import GDP, Budget
from understudy.privacy.mechanisms import NoisySum
from understudy.privacy.noise import SystemNoise
from understudy.privacy.plan import Charge, Plan, Receipt
from understudy.privacy.unit import Unit

CANARIES = 4_000
CHANCE = 1e-6
ROUNDS = 4
BUDGET = Budget(4, "1e-6")
VECTORS = np.random.default_rng(1).standard_normal((CANARIES, 16)).astype(np.float32)
VECTORS /= np.linalg.norm(VECTORS, axis=1, keepdims=True)


class Numbered:
    """The vector of text ``"7"`` is VECTORS[7]."""

    model_id = "numbered"
    fingerprint = "2" * 64

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        return np.array([VECTORS[int(text)] if text.isdigit() else VECTORS[0] for text in texts])


def plan(rounds: int) -> Plan:
    return AugPE(rounds=rounds).plan(BUDGET, PublicFacts(Unit(), 1))


def votes_over_rounds(
    records: PrivateEmbeddings, made: Plan, *, multiplier: float | None = None
) -> NDArray[np.float64]:
    """``Float64[CANARIES]``: each candidate's noisy votes, added up over the rounds.

    Args:
        multiplier: of the noise, where it is another than is planned.
    """
    labels = np.zeros(CANARIES, dtype=np.int32)
    total = np.zeros(CANARIES)
    for charge in made.charges:
        query = VoteHistogram(integer_vectors(VECTORS), labels, made.unit, charge.name)
        mechanism = NoisySum(query, "gaussian", multiplier or charge.parameters["noise_multiplier"])
        receipt = Receipt("run", (Charge(charge.name, mechanism.event, {}, "to test"),))
        total += mechanism.run(records, receipt=receipt, source=SystemNoise())
    return total


def empirical_epsilon(there: NDArray[np.float64], away: NDArray[np.float64]) -> float:
    """The lower bound at the budget's delta, of the attack that decides half way between the two."""
    middle, trials = ROUNDS / 2, len(there)
    true, false = int((there > middle).sum()), int((away > middle).sum())
    lowest_true = stats.beta.ppf(CHANCE / 2, true, trials - true + 1)
    highest_false = stats.beta.isf(CHANCE / 2, false + 1, trials - false)
    mu = stats.norm.ppf(lowest_true) - stats.norm.ppf(highest_false)
    return GDP(max(0.0, float(mu))).epsilon(float(BUDGET.delta))


@pytest.fixture
def records(tmp_path: Path) -> PrivateEmbeddings:
    """Every other canary."""
    there = [str(number) for number in range(0, CANARIES, 2)]
    none = np.zeros(len(there), dtype=np.int32)
    batch = (there, none, np.arange(len(there), dtype=np.int64))
    return PrivateEmbeddings.build(iter([batch]), Numbered(), folder=tmp_path, key="k")


def test_every_canary_votes_for_its_own_candidate(records: PrivateEmbeddings) -> None:
    labels = np.zeros(CANARIES, dtype=np.int32)
    exact = VoteHistogram(integer_vectors(VECTORS), labels, Unit(), votes_name(1)).evaluate(records)
    assert exact.tolist() == [1 << 20, 0] * (CANARIES // 2)


def test_the_votes_of_all_rounds_tell_no_more_than_promised(records: PrivateEmbeddings) -> None:
    votes = votes_over_rounds(records, plan(ROUNDS))
    found = empirical_epsilon(votes[0::2], votes[1::2])
    assert found <= 4
    assert found > 1.5  # the attack is worth its name


def test_the_attack_breaks_rounds_with_the_noise_of_one(records: PrivateEmbeddings) -> None:
    one = float(plan(1).charges[0].parameters["noise_multiplier"])
    votes = votes_over_rounds(records, plan(ROUNDS), multiplier=one)
    assert empirical_epsilon(votes[0::2], votes[1::2]) > 4
