"""The interface of a method: plan, release and generate, with the privacy boundary between the last two.

A new method is a class with these three functions, a frozen set of parameters
(:class:`~understudy.base.parameters.Parameters`), a :class:`Needs` and an entry point in the group
``understudy.methods``. See ``docs/adding-a-method.md``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol, TypeVar

import numpy as np

from understudy.base.errors import ConfigError, ResumeError, bug
from understudy.base.parameters import Parameters
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.secrets import SecretFinder
from understudy.methods import usual
from understudy.methods.facts import CallEstimate, GenerationTools, PublicFacts
from understudy.methods.release_schema import Contents
from understudy.methods.shared.decoding.tuned import TunedModel
from understudy.models.causal import CausalModel
from understudy.models.types import Embedder, Message
from understudy.privacy.facts import Facts
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import Batches, OpenQuery, Query, Rates
from understudy.privacy.mechanisms import QuerySpec
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Arrays, Seal, SealedValue
from understudy.privacy.verdict import Verdict
from understudy.release import Release
from understudy.schema.columns import Column
from understudy.schema.labels import LabelSet
from understudy.text.prompts.template import Prompts, PromptTemplate, WritingParameters
from understudy.text.records import Rows, SyntheticRecord
from understudy.text.writing import Writer

T = TypeVar("T")
Chats = Iterable[tuple[Message, ...]]


def needed(value: T | None) -> T:
    """Return ``value``, which the run loads if the method's :class:`Needs` declare it. Raises ConfigError if it is
    None."""
    if value is None:
        raise bug("The method uses something that its Needs do not declare.", "declare it in Needs", ConfigError)
    return value


@dataclass(frozen=True)
class Needs:
    """What a method needs; the run loads it, probes it if a guarantee depends on it, and passes it on.

    Args:
        embedder: whether the release embeds private texts; it must then be local or trusted, and is probed before the
            charge.
        term_embedder: whether the release embeds public or released terms alone, with an embedder that may be anywhere.
        candidates: whether the release asks a language model for texts. That model never sees a private text.
        holds_texts: whether the Release contains the synthetic texts themselves, which ``generate`` returns; their
            number is limited, and no language model is asked.
        generation_llm: whether ``generate`` asks a language model: ``never`` if it writes by itself; ``optional`` if
            phrases can replace texts, ``always`` if nothing can.
    """

    embedder: bool = False
    term_embedder: bool = False
    candidates: bool = False
    private_model: bool = False  # whether the release needs a local causal model, which reads private texts
    generation_embedder: bool = False  # whether ``generate`` needs the Release's embedder
    generation_model: bool = False  # whether ``generate`` needs the local causal model that the Release was tuned on
    generation_llm: Literal["never", "optional", "always"] = "optional"
    rows: bool = False  # whether the release shows rows of typed columns to its model, which are then released first
    holds_texts: bool = False

    def __post_init__(self) -> None:
        if self.holds_texts:
            object.__setattr__(self, "generation_llm", "never")


@dataclass(frozen=True)
class Preparation:
    """The parts of a run that a method may use before anything is charged.

    Args:
        embedder, model: loaded if the method needs them, else None (use :func:`needed`).
        dimension: of the embedder's vectors.
        record_columns: the columns of the texts' JSON records; empty if texts are not records.
        secrets: finds the secrets in a text, if these are protected. The run checked that none is in more records than
            declared.
        progress: reports the current step, how much of it is done, and of how much: public numbers only.
        resuming: whether the run was charged before. Then prepared files exist already, but probes must be repeated,
            since the machine may be a different one.
    """

    labels: LabelSet
    seed: int  # public; steers public randomness only, never noise
    embedder: Embedder | None = None
    dimension: int = 0
    model: CausalModel | None = None
    prompts: Prompts | None = None  # the prompts' template, if the method needs a model or candidates
    record_columns: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()  # typed columns besides the text, whose cells are in batches
    secrets: SecretFinder | None = None
    say: Callable[[str], None] = lambda _line: None  # takes a line for the user: public facts only
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None
    resuming: bool = False


class Door(Protocol):
    """The gate between private records and released values: :class:`~understudy.run.door.Measurements`."""

    def measure(
        self, name: str, query: Query[Any] | OpenQuery, data: Batches[Any], *, rates: Rates | None = None
    ) -> SealedValue: ...

    def open(self, name: str) -> Any: ...

    def seal(self, name: str, make: Callable[[], Arrays]) -> SealedValue: ...

    def keep(self, name: str, make: Callable[[], Arrays]) -> Arrays: ...


@dataclass(frozen=True)
class ReleaseTools(Preparation):
    """What a method's ``release`` may use besides the corpus. The methods of this class call the ``door``.

    Args:
        door: charges, adds noise, stores values, and has the ledger seal them.
        writer: the language model with its prompts, if the method asks for candidates; it must see public text,
            released values and its own answers only.
        prepared: what :meth:`Method.prepare` returned.
        scratch: a private folder of this run and these data (it may not exist yet), for what does not fit into memory;
            removed at the end.
        note: writes an entry to ``private/diary.jsonl``, such as how long something took.
        rows: returns, for numbers that name a part of the release (such as a label and a batch), the source of that
            part's rows: typed columns, sampled from their released distribution. Equal numbers give equal rows. None
            without typed columns, or if the method does not declare ``Needs.rows``.
    """

    door: Door = field(kw_only=True)
    writer: Writer | None = None
    prepared: Any = None
    scratch: Path = Path()
    note: Callable[[Mapping[str, Any]], None] = lambda _entry: None
    rows: Callable[[tuple[int, ...]], Rows] | None = None

    def measure(
        self, name: str, query: Query[Any] | OpenQuery, data: Batches[Any], *, rates: Rates | None = None
    ) -> SealedValue:
        """Return the noisy sum of ``query`` over ``data``, under the charge ``name``; the stored one, if any."""
        return self.door.measure(name, query, data, rates=rates)

    def open(self, name: str) -> Any:
        """Open the charge ``name``, whose values are made in parts. Return the object that makes them, which depends on
        the charge's mechanism."""
        return self.door.open(name)

    def seal(self, name: str, make: Callable[[], Arrays]) -> SealedValue:
        """Return the value named ``CHARGE/PART``: the stored one or, if there is none, the result of ``make``, which is
        stored and sealed first. Several threads may call this at once."""
        return self.door.seal(name, make)

    def keep(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """Return public data, or data made from sealed values, that a resumed run must find unchanged. ``make`` is
        called once, and its result stored."""
        return self.door.keep(name, make)

    def require_same(self, name: str, sha256: str) -> None:
        """Check that a public input is the one that the run began with, because stored values are indexed by it. Raises
        ResumeError if it is not (for instance, a new version of a package has another list)."""
        kept = self.keep(f"public {name}", lambda: {"sha256": np.frombuffer(bytes.fromhex(sha256), dtype=np.uint8)})
        if kept["sha256"].tobytes().hex() != sha256:
            raise ResumeError(
                f"The {name} is not the one that this run began with.",
                "Install the versions of understudy and its packages that it began with, or start over with --fresh, "
                "which charges again.",
            )


@dataclass(frozen=True)
class Released:
    """The result of a release, made from sealed values and public inputs only.

    Args:
        arrays, terms, strings: the content of the Release.
        public_inputs: name -> {"source", "sha256"}, for the statement.
    """

    arrays: Arrays
    terms: Sequence[str] = ()
    public_inputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    noise_check: Facts = field(default_factory=Facts)  # how much is above the noise
    notes: tuple[str, ...] = ()  # remarks for the statement, besides the plan's
    strings: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __or__(self, beside: Released) -> Released:
        """Merge another release into this one: its arrays, strings, public inputs and noise check."""
        return replace(
            self,
            arrays={**self.arrays, **beside.arrays},
            strings={**self.strings, **beside.strings},
            public_inputs={**self.public_inputs, **beside.public_inputs},
            noise_check=self.noise_check + beside.noise_check,
        )

    def sealed(self, planned: Release, seals: Sequence[Seal], verdict: Verdict | None = None) -> Release:
        """Return the planned Release with this content, and its statement with the seals of all values.

        Raises PrivacyError if a charge has no value.
        """
        stated = planned.statement
        notes = (*stated.notes, *self.notes)
        statement = replace(stated, public_inputs=self.public_inputs, notes=notes, verdict=verdict)
        return replace(
            planned,
            statement=statement.with_seals(seals),  # by its values, not by this process
            arrays={name: np.asarray(array) for name, array in self.arrays.items()},
            terms=list(self.terms),
            noise_check=replace(self.noise_check, verdict=None),
            strings={name: list(strings) for name, strings in self.strings.items()},
        )


class Method(ABC):
    """A method with its parameters: inherit this and your :class:`~understudy.base.parameters.Parameters`.

    It must have a ``name``, ``plan`` and ``release``. Everything else has a default. A function that has a module to
    itself takes the parameters first, and is assigned in the class: ``release = releasing.release``.
    """

    name: ClassVar[str]
    """Its name on the command line."""
    needs: ClassVar[Needs] = Needs()
    parameters: ClassVar[type[Parameters]] = Parameters
    """The class of its parameters; by default the one that it inherits."""
    generation_parameters: ClassVar[type[Parameters]] = Parameters
    """The parameters that may change at every ``generate``."""
    stopping_parameters: ClassVar[frozenset[str]] = frozenset()
    """The parameters that let a release stop before its charges are used up. They may change for ``release
    --continue``, which resumes there. A method without any cannot be continued."""
    private: ClassVar[bool] = True
    """False for a yardstick without privacy: it runs only if the user confirms that there is no noise."""
    protects_secrets: ClassVar[bool] = False
    """Whether it can be run with a :class:`~understudy.privacy.guarantee.SecretBudget`; a method that cannot is
    never given one."""
    pure: ClassVar[Mapping[str, Any]] = {}
    """Defaults of parameters if the budget has no delta."""
    guided: ClassVar[bool] = False
    """Whether it has a guide by default: one that chooses among samples, before a text is written."""
    labels_in_parallel: ClassVar[bool] = False
    """Whether one charge pays for all labels, label by label, because a unit has one label (parallel composition). It
    must have the same label in every session of the run, which recomputed labels do not ensure."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "parameters" not in vars(cls):
            own = (base for base in cls.__mro__ if issubclass(base, Parameters) and not issubclass(base, Method))
            cls.parameters = next(own, Parameters)

    def fitted(self, expected_records: int, labels: int) -> Mapping[str, Any]:
        """Return parameters that the user did not give, derived from public facts: the declared corpus size and the
        number of labels. A resumed run keeps them."""
        return {}

    @property
    def alone(self) -> tuple[str, str] | None:
        """Return why a guide or typed columns cannot be released with the method (its promise would not cover them),
        and what to do instead; None if they can."""
        return None

    @abstractmethod
    def plan(self, budget: Budget, facts: PublicFacts) -> Plan:
        """Plan all charges, before a private record is read. :meth:`plan_of` does this for noisy sums.

        If the method ``protects_secrets``, ``budget`` may be a :class:`~understudy.privacy.guarantee.SecretBudget`.
        Raises ConfigError if the budget or the parameters cannot be planned with.
        """

    def plan_of(self, budget: Budget, facts: PublicFacts, sums: Mapping[str, tuple[QuerySpec, float, str]]) -> Plan:
        """Plan a noisy sum per entry: the name of its charge, and its query, share of the budget and purpose.

        Sensitivity and shape are those that the query states; ``release`` measures ``plan.query(name)``, or a query
        that is built from it. The shares may have any scale. The noise is Gaussian; it
        is Laplace noise if the budget has no delta and every query states an L1 sensitivity.
        Raises ConfigError if the budget cannot be spent on these sums.
        """
        return usual.plan_sums(self.name, budget, facts, sums)

    @abstractmethod
    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        """Read the private records through ``tools``, and return the content of the Release. Nothing else in a method
        reads them."""

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        """Return ``counts[label]`` records of each label, without a text if none could be generated. Post-processing.

        By default, if the Release contains its texts, return the first of the strings ``texts``, with labels in the
        array ``label``. Else write texts around eight of its terms, sampled for each label in proportion to the
        positive values of the array ``counts`` (a row per label, a column per term); uniformly without that array.
        """
        return usual.generate(release, counts, tools, holds_texts=self.needs.holds_texts)

    def prepare(self, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> Any:  # noqa: B027 - optional
        """Do everything that could fail and depends on public facts only, before anything is charged.

        ``corpus`` is there to check rules of the schema, and to read records that are declared public. The result is
        the ``prepared`` of :class:`ReleaseTools`. Raises ConfigError, CorpusError or ModelError if a later step would
        fail.
        """

    def longest_prompts(self, release: Release, writer: Writer) -> Chats:
        """Return the longest public prompts for the language model, of each label. ``release`` is the planned one,
        without content."""
        return ()

    def estimate_calls(
        self, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate
    ) -> CallEstimate:
        """Estimate the language model's calls in a run of ``counts[label]`` records, for the forecast."""
        return CallEstimate.of_phrases(counts, writing, template)

    def contents(self, release: Release) -> Contents | None:
        """Describe the content of a Release of this method and these parameters. If this returns None, a loaded Release
        is not checked."""
        return None

    def available(self, release: Release) -> Sequence[int] | None:
        """Return how many records of each label the Release contains; None if unlimited or unknown."""
        return usual.available(release) if self.needs.holds_texts and self.is_usual else None

    @property
    def knows_how_many(self) -> bool:
        """Return whether a Release of this method states its number of records, so that the user need not."""
        return self.needs.holds_texts and (self.is_usual or type(self).available is not Method.available)

    @property
    def is_usual(self) -> bool:
        """Return whether texts are made as :meth:`generate` does by default."""
        return type(self).generate is Method.generate

    def label_weights(self, release: Release) -> Sequence[float] | None:
        """Return weights by which a requested total of records is divided among labels; None: equally."""
        return None

    @property
    def counts_labels(self) -> bool:
        """Return whether a Release estimates each label's number of records (:meth:`label_counts`)."""
        return type(self).label_counts is not Method.label_counts

    def label_counts(self, release: Release) -> tuple[Sequence[float], float] | None:
        """Return noisy numbers proportional to each label's records, and the standard deviation of the noise; None if
        unknown."""
        return None

    def tuned_model(self, release: Release, base: CausalModel) -> TunedModel | None:
        """Return the Release's tuned model, on its base model; None if it has none. Raises ReleaseError if
        ``base`` is another model than the Release was tuned on."""
        return None

    def dump(self) -> dict[str, Any]:
        """Return the parameters as JSON values."""
        assert isinstance(self, Parameters)
        return self.model_dump(mode="json")
