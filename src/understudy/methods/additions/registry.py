"""The additions, in the order in which they take their shares of a budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from understudy.base.parameters import Parameters
from understudy.methods.additions.base import Addition, NoisyCounts
from understudy.methods.additions.columns.addition import Columns
from understudy.methods.additions.guide.addition import GuideAddition
from understudy.methods.additions.topics.addition import TopicsAsLabels
from understudy.methods.facts import PublicFacts
from understudy.methods.release_schema import Contents
from understudy.release import Release

ADDITIONS: tuple[type[Addition], ...] = (TopicsAsLabels, Columns, GuideAddition)


def additions_of(settings: Parameters, facts: PublicFacts) -> tuple[Addition, ...]:
    """Return the additions that a run's settings and the declared table ask for."""
    return tuple(found for each in ADDITIONS if (found := each.of(settings, facts)) is not None)


def additions_in(release: Release) -> tuple[type[Addition], ...]:
    """Return the additions that a Release has."""
    return tuple(each for each in ADDITIONS if each.is_in(release))


def complete(contents: Contents, release: Release) -> Contents:
    """Return the expected contents of a Release, extended by those of its additions."""
    for each in additions_in(release):
        contents = each.contents(contents, release)
    return contents


def label_counts(release: Release) -> NoisyCounts | None:
    """Return the noisy number of records of each label, from the first addition of a Release that has it; else None."""
    return next((found for each in additions_in(release) if (found := each.label_counts(release))), None)


def own_parameters(release: Release) -> Mapping[str, Any]:
    """Return the parameters of a Release that belong to its method (without the seed and the additions')."""
    others = {"seed", *(name for each in additions_in(release) for name in each.parameters.model_fields)}
    return {name: value for name, value in release.parameters.items() if name not in others}
