"""How near the synthetic texts are to the real ones, as a whole: :func:`measure_fidelity`."""

from understudy.metrics.fidelity.measure import measure_fidelity

__all__ = ["measure_fidelity"]
