"""Whether a release has a guide, and what generating does with it."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from understudy.base.parameters import Gone, GoneOnes, Parameters

GUIDE_SHARE = 0.3
"""Of the budget (of mu^2): what the guide gets."""


class GuideParameters(Parameters):
    """The guide: noisy sums of the private texts' embeddings, by which texts are chosen."""

    guide: bool = False
    """Release a guide beside what the method releases; it takes 30 % of the budget (of mu^2), and the embedder reads
    the private texts. ``plan`` says what that buys."""

    gone: ClassVar[GoneOnes] = {"guide_share": Gone(GUIDE_SHARE, "the guide gets 30 % of the budget (of mu^2)")}


class ChoosingParameters(Parameters):
    """What generating does with a Release's guide."""

    guide_candidates: int | None = Field(None, ge=1, le=1000)
    """Texts made for each one that is kept; the guide chooses among them. Default: 3, and 1 where phrases stand for
    texts, which are chosen by themselves."""
    guide_moves: bool = False
    """Texts that speak for another label may be moved to it, where it lacks texts of its own."""
    ignore_guide: bool = False
    """Make texts as if the Release had no guide."""
