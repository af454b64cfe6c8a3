"""The protocol of an addition: it is released with a share of a method's budget, and helps to write the texts.

A new addition is a folder here with a class that extends :class:`Addition`, and a name in
:data:`~understudy.methods.additions.registry.ADDITIONS`. Runs loop over that list: no other code names an addition.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters
from understudy.methods.base import Method, Preparation, Released, ReleaseTools
from understudy.methods.facts import Chooser, PublicFacts
from understudy.methods.release_schema import Contents
from understudy.models.types import Embedder
from understudy.privacy.plan import Plan
from understudy.release import Release
from understudy.text.records import Rows, SyntheticRecord

NoisyCounts = tuple[Sequence[float], float]
"""Numbers proportional to the records of each label, and the standard deviation of their noise."""


@dataclass(frozen=True)
class Releasing:
    """The state of a release, which each part (method or addition) takes and returns.

    Args:
        corpus: the private records.
        planned: the Release without content; an addition may change its labels.
        released: the values of the parts that came before.
    """

    corpus: Any  # a BoundedCorpus; plan and generate may import this module, but not that one
    tools: ReleaseTools
    planned: Release
    released: Released = field(default_factory=lambda: Released({}))


@dataclass(frozen=True)
class Writing:
    """The parts of a run that an addition may use while texts are generated.

    Args:
        wanted: how many texts, and the additions' settings of writing.
        embedder: loads the embedder of this name.
        prompted: the columns of a row that prompts show.
        say, progress: show the user a line, and how far a step is.
    """

    wanted: Any
    method: Method
    embedder_name: str
    embedder: Callable[[], Embedder]
    prompted: str | Sequence[str]
    seed: int
    say: Callable[[str], None] = lambda _line: None
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None


class Use:
    """An addition's part in generating texts. This base class does nothing."""

    rows: Rows | None = None
    """The rows that texts are written for."""
    chooser: Chooser | None = None
    """Chooses among a method's samples before texts are written."""
    condition: str = ""
    """The condition that all texts meet; empty for none."""

    def share_out(self, _records: int) -> list[int] | None:
        """Return how many of the records each label gets; None if the addition does not decide that."""
        return None

    def require(self, counts: Sequence[int]) -> None:
        """Raise ConfigError if ``counts[label]`` texts of each label cannot be made."""

    def candidates(self, counts: Sequence[int], _held: Sequence[int] | None) -> list[int]:
        """Return how many texts to make of each label. ``held`` is how many of each the Release contains."""
        return list(counts)

    def lines(self) -> Sequence[str]:
        """Return lines for the user, shown before texts are written."""
        return ()

    def chosen(self, records: Sequence[SyntheticRecord], _counts: Sequence[int]) -> list[SyntheticRecord]:
        """Return ``counts[label]`` of the records of each label, those without a text last."""
        return list(records)

    def completed(self, written: Sequence[SyntheticRecord]) -> list[SyntheticRecord]:
        """Return the texts with what the addition adds to each (such as a row); texts that it cannot complete are left
        out."""
        return list(written)


class Addition(ABC):
    """Something that is released besides a method's values. Instances are frozen and contain public values only."""

    name: ClassVar[str]
    parameters: ClassVar[type[Parameters]]
    """Settings of a run that say whether and how it is released."""
    writing: ClassVar[type[Parameters] | None] = None
    """Settings that may change at every ``generate``."""
    finds_labels: ClassVar[bool] = False
    """Whether it gives the records their labels."""
    embeds: ClassVar[bool] = False
    """Whether the embedder reads the private texts for it."""

    @classmethod
    @abstractmethod
    def of(cls, settings: Parameters, facts: PublicFacts) -> Self | None:
        """Return the addition if a run's settings and the declared table ask for it, else None."""

    def require(self, method: Method) -> None:
        """Raise ConfigError if the addition cannot be used with this method."""
        if method.alone is not None:
            raise ConfigError(*method.alone)

    def is_first(self, _method: Method) -> bool:
        """Return whether the addition is released before the method's values."""
        return False

    @abstractmethod
    def plan(self, facts: PublicFacts, plan_rest: Callable[[Any], Plan], budget: Any) -> Plan:
        """Plan the addition with a share of ``budget``, and the rest with ``plan_rest``. Return all charges in one
        plan."""

    def prepare(self, _preparation: Preparation) -> Self:
        """Do what could fail, before anything is charged; return the addition with the results.

        Raises ConfigError or ModelError for what would fail after the charge.
        """
        return self

    @abstractmethod
    def release(self, at: Releasing, plan: Plan) -> Releasing:
        """Measure the private records, through ``at.tools``."""

    def made_each(self, _wanted: Any, _method: Method) -> int:
        """Return how many texts are made for each requested one, for the forecast."""
        return 1

    @property
    def stored(self) -> Mapping[str, Any]:
        """Return the parameters that the Release stores."""
        return {}

    def planned(self, planned: Release) -> Release:
        """Return the planned Release (without content) as this addition changes it."""
        return planned

    def details(self, _prompted: str | Sequence[str]) -> str:
        """Return the longest text that the addition adds to a prompt."""
        return ""

    @classmethod
    @abstractmethod
    def is_in(cls, release: Release) -> bool:
        """Return whether a Release has this addition."""

    @classmethod
    def check(cls, release: Release) -> None:
        """Raise ConfigError if the addition's parameters in a Release, which may come from anybody, contradict each
        other."""
        assert cls.is_in(release)

    @classmethod
    @abstractmethod
    def contents(cls, contents: Contents, release: Release) -> Contents:
        """Return the expected contents of a Release that has this addition, given those of its method."""

    @classmethod
    def label_counts(cls, _release: Release) -> NoisyCounts | None:
        """Return the noisy number of records of each label, if the addition releases it; else None."""
        return None

    @classmethod
    def use(cls, _release: Release, _writing: Writing) -> Use | None:
        """Return the addition's part in generating texts from a Release; None if it has none."""
        return None
