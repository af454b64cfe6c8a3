"""All that a method of your own needs, in one place: ``docs/adding-a-method.md`` shows a whole one.

Every name is defined in the module that describes it; this one only brings them together.

>>> from understudy.method import Sensitivity
>>> Sensitivity.of_counts(4, grid=1).l2 >= 2.0
True
"""

from pydantic import Field

from understudy.base.errors import ConfigError, ReleaseError
from understudy.base.parameters import Parameters
from understudy.corpus.bounding import BoundedBatch, BoundedCorpus
from understudy.methods.base import Method, Needs, Preparation, Released, ReleaseTools
from understudy.methods.facts import GenerationTools, PublicFacts
from understudy.methods.release_schema import Contents, Held
from understudy.privacy.accountant import gaussian_split, pure_split
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.measurement import Query, exact_sum
from understudy.privacy.mechanisms import COUNT_GRID, NoisySum, Sensitivity
from understudy.privacy.plan import Charge, Plan, charges_of
from understudy.privacy.unit import Unit
from understudy.privacy.verdict import Verdict
from understudy.release import Release
from understudy.text.records import Seed, SyntheticRecord
from understudy.text.vocabulary.terms import Vocabulary, load_vocabulary

__all__ = [
    "COUNT_GRID",
    "BoundedBatch",
    "BoundedCorpus",
    "Budget",
    "Charge",
    "ConfigError",
    "Contents",
    "Fact",
    "Facts",
    "Field",
    "GenerationTools",
    "Held",
    "Method",
    "Needs",
    "NoisySum",
    "Parameters",
    "Plan",
    "Preparation",
    "PublicFacts",
    "Query",
    "Release",
    "ReleaseError",
    "ReleaseTools",
    "Released",
    "SecretBudget",
    "Seed",
    "Sensitivity",
    "SyntheticRecord",
    "Unit",
    "Verdict",
    "Vocabulary",
    "charges_of",
    "exact_sum",
    "gaussian_split",
    "load_vocabulary",
    "pure_split",
]
