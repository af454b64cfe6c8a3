"""How much of a Release stands above its noise: post-processing, so that a tiny corpus does not pass for a good one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from understudy.methods.dp_kps.generate import scores
from understudy.methods.dp_kps.parameters import DPKPSParameters
from understudy.methods.dp_kps.plan import VOCABULARY, score_noise
from understudy.methods.dp_kps.sequences import contrast_weights
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.plan import Plan
from understudy.vocabulary.top_terms import noise_floor

SIGNIFICANT = 3.0
"""A score counts as signal above this many standard deviations of its noise."""
_LITTLE = 0.5
_WARNING = (
    "More than half of what will be sampled for some label does not stand above the noise: those texts will be largely "
    "chance. More records, a larger epsilon, a smaller public vocabulary or fewer top_terms would help."
)


def noise_check(
    parameters: DPKPSParameters, arrays: Mapping[str, NDArray[Any]], plan: Plan, *, vocabulary_size: int, seed: int
) -> Facts:
    """Released values above the noise, and a warning if they are few.

    The vocabulary's floor is the level that noise alone reaches at about one of all public terms; that of a score
    is three standard deviations.
    """
    units = f"{plan.unit.kind}s"
    floor = noise_floor(plan.mechanism(VOCABULARY).noise_std, vocabulary_size)
    counts = arrays["counts"]
    above = int((counts > floor).sum())
    entries = [
        Fact("vocabulary_terms", len(counts), "vocabulary terms released"),
        Fact("vocabulary_noise_floor", round(floor, 2), f"vocabulary noise floor ({units} a term must be in)"),
        Fact("vocabulary_terms_above_floor", above, "vocabulary terms above the noise floor"),
    ]
    if parameters.mode == "iterative":
        return Facts(tuple(entries), () if above else (_WARNING,))
    noise = score_noise(parameters, plan.mechanism("density").noise_multiplier)
    values = scores(parameters, arrays, seed)
    strong = values > SIGNIFICANT * noise
    weights = contrast_weights(values, temperature=parameters.temperature, contrast=parameters.contrast)
    share = (weights * strong).sum(axis=1) / weights.sum(axis=1)
    entries += [
        Fact("density_score_noise", round(noise, 3), f"density score noise (std, {units})"),
        Fact("scores_above_3_std", tuple(map(int, strong.sum(axis=1))), "density scores above 3 std"),
        Fact(
            "share_sampled_above_3_std",
            tuple(round(float(number), 2) for number in share),
            "share of sampled terms above 3 std",
        ),
    ]
    return Facts(tuple(entries), (_WARNING,) if not above or share.min() < _LITTLE else ())
