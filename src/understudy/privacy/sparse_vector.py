"""The sparse vector: many yes-or-no questions about integers, of which only a "yes" costs.

``AboveThreshold`` (Dwork and Roth 2014, Algorithm 1; Lyu, Su and Li 2017) on integers with exact discrete Laplace
noise.
"""

from __future__ import annotations

from dataclasses import dataclass

from understudy.errors import PrivacyError
from understudy.privacy.exact import require_positive
from understudy.privacy.mechanisms import LARGEST_SCALE, out_of_range
from understudy.privacy.noise import NoiseSource


@dataclass(frozen=True)
class SparseVector:
    """Say of one integer answer after another whether it is above ``threshold``, up to the first that is.

    Guarantee:
        Unit: whatever ``sensitivity`` is of; neighbours add or remove one.
        Sensitivity: each answer changes by at most ``sensitivity`` (an integer, of integers), in either direction.
        Noise: discrete Laplace of scale b = ``scale`` on the threshold, once a run, and of scale 2b on each answer.
        Event: one run, however long, is epsilon-DP with epsilon = 2 sensitivity / b: moving the threshold's noise by
        one sensitivity and that of the answer that ended the run by two turns a run on one dataset into the same run
        on its neighbour, and costs sensitivity / b each. On integers the moves are integers, so discrete noise pays
        exactly what continuous noise does. rho = epsilon^2 / 2. A run that is broken off costs no more than a whole
        one. After an answer above the threshold its noise is used up: a new run draws a new one and is a new charge.
        Source: Dwork and Roth 2014, Theorem 3.23; Lyu, Su and Li 2017 (what goes wrong in six variants).

    Args:
        threshold: in the answers' units.
        sensitivity: of one answer, in the same units; an owner's rows together.
        scale: b, the threshold's noise, in the same units.

    Raises:
        ConfigError: if the noise does not fit into 64-bit integers.
    """

    threshold: int
    sensitivity: int
    scale: float

    def __post_init__(self) -> None:
        require_positive(sensitivity=self.sensitivity)
        require_positive(scale=self.scale)
        if 2 * self.scale > LARGEST_SCALE:
            raise out_of_range(
                f"the noise of the test does not fit into 64-bit integers (scale {2 * self.scale:g})",
                cure="Test with less noise, or in smaller batches.",
            )

    @property
    def epsilon(self) -> float:
        """What one run costs as pure DP."""
        return 2 * self.sensitivity / self.scale

    @property
    def rho(self) -> float:
        """What one run costs as zCDP."""
        return self.epsilon**2 / 2

    def begin(self, source: NoiseSource) -> Run:
        """A new run with a threshold of its own; whoever calls it has paid for it."""
        return Run(self, source)


class Run:
    """One run of a :class:`SparseVector`; over once an answer was above."""

    def __init__(self, vector: SparseVector, source: NoiseSource) -> None:
        self._vector = vector
        self._source = source
        self._threshold = vector.threshold + int(source.draw("laplace", scale=vector.scale, size=1)[0])
        self.open = True

    def is_above(self, answer: int) -> bool:
        """Whether ``answer`` with its noise reaches the noisy threshold; if so the run is over.

        Raises:
            PrivacyError: if the run is over.
        """
        if not self.open:
            raise PrivacyError(
                "This run of the sparse vector is over: its threshold has been answered.",
                "Begin a new run, which has a noise and a charge of its own.",
            )
        noise = int(self._source.draw("laplace", scale=2 * self._vector.scale, size=1)[0])
        above = int(answer) + noise >= self._threshold
        self.open = not above
        return above
