"""What a user may choose in SecPE: for the release, and for the evolution against it (which is free)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from understudy.evolution.harvest import HarvestParameters
from understudy.evolution.parameters import EvolutionParameters
from understudy.evolution.voting import Distance
from understudy.parameters import Parameters, public_file

_OF_INCIDENCE = {
    "private": ("inclusion",),
    "public": (
        *("incidence_file", "expected_sample", "secret_weight", "secret_budgets"),
        "records_without_secrets_are_public",
    ),
}


class FreeParameters(EvolutionParameters, HarvestParameters):
    """How texts evolve against the released centres: post-processing, free, changeable at every ``generate``."""

    distance: Distance = "centred"
    """What a centre's nearest candidate is: ``centred`` (cosine about the mean of a label's candidates), ``cosine`` or
    ``l2``."""


class ReleaseParameters(Parameters):
    """What SecPE releases, and from which public texts its clusters come."""

    incidence: Literal["private", "public"] = "private"
    """Whether it is known which record holds which secret. ``private``: it is protected too."""
    incidence_file: str | None = public_file(None)
    """Public incidence: the file of ``understudy secrets incidence``, which you thereby declare public."""
    inclusion: float = Field(1.0, gt=0, le=1)
    """Private incidence: probability with which each record is sampled (rho). Less than 1 never pays: the noise falls
    more slowly than the number of sampled records."""
    expected_sample: float | None = Field(None, gt=0, le=1e12)
    """Public incidence: expected number of sampled records (V). Default: the sum of the weights over the largest."""
    secret_weight: float = Field(1.0, gt=0, le=1e6)
    """Public incidence: most weight that the records of one secret may have together (eta of the linear program)."""
    secret_budgets: str | None = public_file(None)
    """A CSV file ``number,prior,posterior`` with stricter promises for some secrets; public incidence only."""
    releases: int = Field(1, ge=1, le=100)
    """Fresh releases of the same sums, which are averaged; the printed algorithm makes one a round. More than one pays
    only where records are not all sampled."""
    public_corpus: str | None = public_file(None)
    """A public table of similar texts, whose clusters the private records are counted in."""
    public_corpus_is_public: bool = False
    """Your word that the public corpus was not made from private data."""
    public_text: str = "text"
    """The public corpus's text column."""
    public_label: str | None = None
    """The public corpus's label column, with the same labels. Default: one set of clusters for all labels."""
    records_without_secrets_are_public: bool = False
    """Public incidence: take the records without secrets for the public corpus. They get no protection at all."""
    clusters: int = Field(100, ge=1, le=1_000_000)
    """Clusters of each label (K)."""
    residual_clip: float = Field(1.0, ge=0.01, le=2)
    """Largest distance of an embedding from its centre that counts (C); unit vectors are at most 2 apart."""
    size_share: float = Field(0.8, ge=0.01, le=0.99)
    """Share of a record's squared norm that the sizes get; the centres get the rest."""


class SecPEParameters(ReleaseParameters, FreeParameters):
    """All parameters of SecPE."""

    @model_validator(mode="after")
    def _incidence_fits(self) -> Self:
        if self.incidence == "public" and self.incidence_file is None:
            raise ValueError("public incidence needs an incidence_file")
        other = "public" if self.incidence == "private" else "private"
        for name in _OF_INCIDENCE[other]:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} belongs to {other} incidence")
        return self

    @model_validator(mode="after")
    def _one_public_corpus(self) -> Self:
        if self.records_without_secrets_are_public and self.public_corpus is not None:
            raise ValueError("there are two public corpora: a file, and the records without secrets")
        if self.public_label is not None and self.public_corpus is None:
            raise ValueError("public_label is a column of the public corpus, and there is none")
        if self.public_corpus is not None and not self.public_corpus_is_public:
            raise ValueError(
                "a public corpus must not be made from the private data; if it is public, set public_corpus_is_public"
            )
        return self
