"""What a user may choose in Aug-PE: in the evolution (it is part of the release), and when texts are taken out."""

from __future__ import annotations

from pydantic import Field

from understudy.evolution.harvest import HarvestParameters
from understudy.evolution.parameters import EvolutionParameters
from understudy.evolution.voting import Distance
from understudy.methods.aug_pe.sizes import UNIFORM
from understudy.parameters import Parameters, public_file
from understudy.vocabulary.terms import BUILT_IN


class VotingParameters(Parameters):
    """How the private records vote, and what else is released of them."""

    nearest: int = Field(1, ge=1, le=1000)
    """Candidates that each record votes for (k); the vote is split so that its L2 norm stays 1."""
    distance: Distance = "centred"
    """What near means: ``centred`` (cosine about the mean of a label's candidates), ``cosine`` or ``l2``; on unit
    vectors, which means of several (lookahead) are too, the last two choose alike up to rounding."""
    label_sizes: str = UNIFORM
    """Texts of each label: ``uniform``, declared proportions ``A=3,B=1``, or ``noisy`` counts (they cost)."""
    label_share: float = Field(0.05, gt=0, lt=1)
    """Share of mu^2 that noisy label counts get."""
    private_keywords: bool = False
    """Draw the keywords of random prompts from a privatised vocabulary as DP-KPS's (AugPE+V~); it costs."""
    vocabulary_share: float = Field(0.2, gt=0, lt=1)
    """Share of mu^2 that the privatised vocabulary gets."""
    vocabulary: str = public_file(BUILT_IN)
    """Private keywords: a public list of terms, a file or the built-in English word list."""
    vocabulary_is_public: bool = False
    """Your word that your own vocabulary was not made from private data."""
    vocabulary_size: int | None = Field(None, ge=1)
    """Private keywords: keep only the most frequent terms of the vocabulary."""
    top_terms: int = Field(200, ge=1)
    """Private keywords: size of the privatised vocabulary (N)."""
    terms_per_record: int = Field(10, ge=1, le=100)
    """Private keywords: the first distinct terms of a record that count (S)."""


class AugPEParameters(EvolutionParameters, VotingParameters, HarvestParameters):
    """All parameters of Aug-PE."""
