"""The parameters of an evaluation."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, field_validator

from understudy.base.parameters import CommaSeparated, Parameters, public_file
from understudy.run.settings import EngineParameters, ExactNumber, LedgerParameters, TableParameters

FAMILIES = ("fidelity", "utility", "leakage")
CLASSIFIERS = ("tf-idf", "embedding", "network", "encoder")


def _among(known: tuple[str, ...], name: str) -> AfterValidator:
    def check(value: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [each for each in value if each not in known]:
            raise ValueError(f"{name} has no {unknown[0]!r}; there are {', '.join(known)}")
        return value

    return AfterValidator(check)


class EvaluationParameters(Parameters):
    """What to measure."""

    holdout: str | None = None
    """Real texts that were never used for the synthetic ones: the reference for every metric."""
    beside: CommaSeparated = ()
    """Other synthetic tables or output folders to train on and compare, as NAME=PATH: ``baseline=baseline.parquet``."""
    metrics: Annotated[CommaSeparated, _among(FAMILIES, "metrics")] = FAMILIES
    """Which families of metrics: ``fidelity``, ``utility``, ``leakage``."""
    classifiers: Annotated[CommaSeparated, _among(CLASSIFIERS, "classifiers")] = CLASSIFIERS[:3]
    """Which are trained: ``tf-idf``, ``embedding``, ``network``, ``encoder`` (slow)."""
    column_classifiers: bool = True
    """Train a classifier of each typed column on the texts (some minutes with many columns)."""
    recipient: str | None = public_file(None)
    """Unlabelled texts of the recipient, to which the network is aligned (Deep CORAL)."""
    language_model: bool = False
    """Tune a small language model on the synthetic texts and test it on real ones (minutes)."""
    in_context: CommaSeparated = ()
    """Accuracy of a local model that is shown this many synthetic examples: ``0,4,8`` (minutes)."""
    local_model: str = "builtin"
    """The model for both, and the base of a released language model: ``builtin``, ``hf:ORG/NAME`` or
    ``hf:./FOLDER``."""
    detectors: CommaSeparated = ("email", "phone", "url", "iban", "credit_card", "us_ssn")
    """Detectors of personal data that may be replayed (docs/secrets.md)."""
    public_texts: str | None = public_file(None)
    """A file of public text, such as a prompt's examples: personal data in it are counted separately."""
    json_schema: str | None = public_file(None)
    """JSON Schema that texts should fit."""
    max_texts: int = Field(10_000, ge=2)
    """Most texts of a table that are used, a random sample."""
    seeds: int = Field(3, ge=1)
    """How often each training is repeated, with different seeds."""
    embedder: str = "builtin"
    """``builtin``, ``hf:ORG/NAME`` or ``none`` (metrics on embeddings are left out)."""
    trust_endpoint: bool = False
    """Let the endpoint of an embedder that is not local read the real texts."""
    seed: int = Field(0, ge=0)
    """Seed of samples, training and intervals."""

    @field_validator("in_context")
    @classmethod
    def _numbers_of_shots(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(each.isdecimal() for each in value):
            raise ValueError("expected numbers of examples such as 0,4,8")
        return value

    @field_validator("beside")
    @classmethod
    def _named_tables(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        names = [each.partition("=")[0] for each in value]
        if not all(each.partition("=")[2] for each in value) or len(set(names)) != len(names):
            raise ValueError("expected NAME=PATH, each name once")
        if taken := {"synthetic", "real", "real (all)", "holdout", "most frequent", "untuned"} & set(names):
            raise ValueError(f"the name {min(taken)!r} is taken")
        return value

    @property
    def shots(self) -> tuple[int, ...]:
        return tuple(int(each) for each in self.in_context)


class ChargeParameters(Parameters):
    """Metrics that may be shared, for a charge."""

    charge_metrics: ExactNumber = None
    """Release label proportions, lengths and accuracy on the real table for this epsilon (pure, delta 0)."""
    charged_classifiers: Annotated[CommaSeparated, _among(CLASSIFIERS[:3], "charged_classifiers")] = ("tf-idf",)
    """The classifiers whose accuracy is released: ``tf-idf``, ``embedding``, ``network``."""


class ResultParameters(Parameters):
    """Where results are written."""

    output: str | None = None
    """Folder for the results. Default: the output folder that is evaluated."""
    fresh: bool = False
    """Release metrics again in a folder that contains some; charges again."""


class EvaluationConfig(
    TableParameters, EvaluationParameters, ChargeParameters, LedgerParameters, EngineParameters, ResultParameters
):
    """Every setting of an evaluation."""
