"""Aug-PE: private evolution of texts by the votes of private records (Xie et al. 2024)."""

from __future__ import annotations

from typing import ClassVar

from understudy.base.parameters import Parameters
from understudy.methods.aug_pe import generate as generating
from understudy.methods.aug_pe import release as releasing
from understudy.methods.aug_pe.plan import NAME, AugPEParameters, make_plan
from understudy.methods.base import Method, Needs
from understudy.methods.shared.evolution.parameters import HarvestParameters


class AugPE(Method, AugPEParameters):
    """Private evolution with differential privacy.

    >>> AugPE(rounds=3).variations
    7
    """

    name: ClassVar[str] = NAME
    generation_parameters: ClassVar[type[Parameters]] = HarvestParameters
    protects_secrets: ClassVar[bool] = True
    needs: ClassVar[Needs] = Needs(embedder=True, candidates=True)

    plan = make_plan
    prepare = releasing.prepare
    release = releasing.release
    contents = releasing.contents
    longest_prompts = generating.longest_prompts
    estimate_calls = generating.estimate_calls
    generate = generating.generate
    label_counts = generating.label_counts
