"""DP-KPS as published (Nagesh et al. 2025)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from understudy.base.parameters import Parameters
from understudy.methods.base import Method, Needs
from understudy.methods.dp_kde import generate as generating
from understudy.methods.dp_kde import release as releasing
from understudy.methods.dp_kde.plan import NAME, DPKDEParameters, SequenceParameters, make_plan


class DPKDE(Method, DPKDEParameters):
    """Keyphrase seeding from private kernel densities, as published."""

    name: ClassVar[str] = NAME
    needs: ClassVar[Needs] = Needs(term_embedder=True)
    generation_parameters: ClassVar[type[Parameters]] = SequenceParameters
    pure: ClassVar[Mapping[str, Any]] = {"noise": "laplace", "features": 300}

    plan = make_plan
    prepare = releasing.prepare
    release = releasing.release
    contents = releasing.contents
    longest_prompts = generating.longest_prompts
    generate = generating.generate
