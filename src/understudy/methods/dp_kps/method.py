"""DP-KPS: private keyphrases seed the prompts of any language model (Nagesh et al. 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from understudy.base.parameters import Parameters
from understudy.methods.base import Method
from understudy.methods.dp_kps import generate as generating
from understudy.methods.dp_kps import release as releasing
from understudy.methods.dp_kps.plan import NAME, DPKPSParameters, SequenceParameters, make_plan


class DPKPS(Method, DPKPSParameters):
    """Keyphrase seeding with differential privacy.

    >>> DPKPS(length=4).noise
    'gaussian'
    """

    name: ClassVar[str] = NAME
    generation_parameters: ClassVar[type[Parameters]] = SequenceParameters
    pure: ClassVar[Mapping[str, Any]] = {"noise": "laplace"}
    guided: ClassVar[bool] = True

    plan = make_plan
    release = releasing.release
    contents = releasing.contents
    longest_prompts = generating.longest_prompts
    estimate_calls = generating.estimate_calls
    generate = generating.generate
    label_counts = generating.label_counts

    def dump(self) -> dict[str, Any]:
        """Return the parameters as JSON values, without ``discover_terms`` if it is not given, so that runs that began
        before the option existed can resume."""
        return {name: value for name, value in super().dump().items() if (name, value) != ("discover_terms", None)}
