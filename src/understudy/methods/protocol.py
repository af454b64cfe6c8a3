"""What every method offers: plan, release, generate, cut at the privacy boundary.

A new method is a class with these three, a frozen set of parameters
(:class:`~understudy.parameters.Parameters`) and an entry point in the group
``understudy.methods``. See ``docs/adding-a-method.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from numpy.typing import NDArray

from understudy.generation.records import SyntheticRecord
from understudy.generation.writing import Writer
from understudy.models.types import Embedder
from understudy.parameters import Parameters
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import NoiseSource
from understudy.privacy.plan import Plan, Receipt
from understudy.privacy.unit import Unit
from understudy.release import Release

if TYPE_CHECKING:
    from understudy.corpus.bounding import BoundedCorpus

Arrays = Mapping[str, NDArray[Any]]
Keep = Callable[[str, Callable[[], Arrays]], Arrays]
"""Returns the stored noisy value of this name, or draws it and stores it before anyone sees it."""


@dataclass(frozen=True)
class PublicFacts:
    """What a plan may depend on: nothing private.

    Args:
        unit: the privacy unit.
        labels: size of the label set, 1 without labels.
        expected_records: the corpus size as the user types it in; only for the forecast.
    """

    unit: Unit
    labels: int
    expected_records: int | None = None


@dataclass(frozen=True)
class ReleaseTools:
    """What a release may use besides the corpus.

    Args:
        labels: size of the label set, as in :class:`PublicFacts`.
        receipt: proof that the plan's charges are in the ledger.
        noise: where noise comes from.
        keep: stores a noisy value before it is used.
        embedder: the public embedder, if the method needs one.
        seed: public; steers public randomness only, never noise.
    """

    labels: int
    receipt: Receipt
    noise: NoiseSource
    keep: Keep
    embedder: Embedder | None
    seed: int


@dataclass(frozen=True)
class Released:
    """What a release hands on: noised and paid for, or public.

    Args:
        arrays, terms: the content of the Release.
        public_inputs: name -> {"source", "sha256"}, for the statement.
        noise_check: how much stands above the noise, by name; ``warning`` where it is little.
        notes: remarks for the statement.
    """

    arrays: Arrays
    terms: Sequence[str] = ()
    public_inputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    noise_check: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Method(Protocol):
    """A method with its parameters."""

    name: ClassVar[str]
    parameters: ClassVar[type[Parameters]]
    generation_parameters: ClassVar[type[Parameters]]
    """Those of the parameters that may change at every ``generate``."""

    @property
    def needs_embedder(self) -> bool:
        """Whether the release needs an embedder."""
        ...

    def dump(self) -> dict[str, Any]:
        """The parameters as JSON."""
        ...

    def plan(self, budget: Budget, facts: PublicFacts) -> Plan:
        """All charges, before a private record is read."""
        ...

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        """The only code that reads private records."""
        ...

    def generate(
        self, release: Release, counts: Sequence[int], *, writer: Writer, seed: int
    ) -> Iterator[SyntheticRecord]:
        """``counts[label]`` synthetic records of each label. Post-processing."""
        ...
