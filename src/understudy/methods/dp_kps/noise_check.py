"""How much of a Release stands above its noise: post-processing, so that a tiny corpus does not pass for a good one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from understudy.methods.dp_kps.generate import scores
from understudy.methods.dp_kps.parameters import DPKPSParameters
from understudy.methods.dp_kps.plan import count_noise, score_noise
from understudy.methods.dp_kps.sequences import contrast_weights
from understudy.vocabulary.top_terms import noise_floor

SIGNIFICANT = 3.0
"""A score counts as signal above this many standard deviations of its noise."""
_LITTLE = 0.5
_WARNING = (
    "More than half of what will be drawn for some label does not stand above the noise: those texts will be largely "
    "chance. More records, a larger epsilon, a smaller public vocabulary or fewer top_terms would help."
)


def noise_check(
    parameters: DPKPSParameters,
    arrays: Mapping[str, NDArray[Any]],
    multipliers: Mapping[str, float],
    *,
    units: str,
    vocabulary_size: int,
    seed: int,
) -> dict[str, Any]:
    """Released values above the noise, and a ``warning`` if they are few.

    The vocabulary's floor is the level that noise alone reaches at about one of all public terms; that of a score
    is three standard deviations.
    """
    floor = noise_floor(count_noise(parameters, multipliers["vocabulary"]), vocabulary_size)
    counts = arrays["counts"]
    above = int((counts > floor).sum())
    check: dict[str, Any] = {
        "vocabulary terms released": len(counts),
        f"vocabulary noise floor ({units} a term must be in)": round(floor, 2),
        "vocabulary terms above the noise floor": above,
    }
    if parameters.mode == "iterative":
        return check if above else {**check, "warning": _WARNING}
    noise = score_noise(parameters, multipliers["density"])
    values = scores(parameters, arrays, seed)
    strong = values > SIGNIFICANT * noise
    weights = contrast_weights(values, temperature=parameters.temperature, contrast=parameters.contrast)
    share = (weights * strong).sum(axis=1) / weights.sum(axis=1)
    check[f"density score noise (std, {units})"] = round(noise, 3)
    check["density scores above 3 std, by label"] = [int(number) for number in strong.sum(axis=1)]
    check["share of drawn terms above 3 std, by label"] = [round(float(number), 2) for number in share]
    return {**check, "warning": _WARNING} if not above or share.min() < _LITTLE else check
