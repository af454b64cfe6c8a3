"""What a method is: plan, release, generate, cut at the privacy boundary; and what it needs.

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
from understudy.privacy.plan import Plan
from understudy.privacy.sealed import Arrays, SealedValue
from understudy.release import Release
from understudy.schema.columns import Column
from understudy.schema.labels import LabelSet
from understudy.text.prompts.template import Prompts, PromptTemplate, WritingParameters
from understudy.text.writing import Rows, SyntheticRecord, Writer

T = TypeVar("T")
Chats = Iterable[tuple[Message, ...]]


def needed(value: T | None) -> T:
    """What the run loads as the method's :class:`Needs` say. Raises ConfigError if it is not there, as the method did
    not say so."""
    if value is None:
        raise bug("The method uses what its needs do not name.", "add it there", ConfigError)
    return value


@dataclass(frozen=True)
class Needs:
    """What a method asks for; the run loads it, probes it where a guarantee rests on it, and hands it on.

    Args:
        embedder: whether the release embeds private texts; it must then be local or trusted, and is probed before the
            charge.
        term_embedder: whether the release embeds public or released terms alone, with an embedder that may be anywhere.
        candidates: whether the release asks a language model for texts. That model never sees a private text.
        holds_texts: whether the Release holds the synthetic texts themselves, which ``generate`` hands out; there are
            only so many, and no language model is asked.
        generation_llm: whether ``generate`` asks a language model: ``never`` where it writes by itself;
            ``optional`` where phrases can take the place of texts, ``always`` where nothing can.
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
    """What there is before anything is charged.

    Args:
        embedder, model: if the method needs one (:func:`needed`); ``dimension`` is that of the embedder's vectors.
        record_columns: the columns of the JSON records that the texts are; empty where they are none.
        secrets: finds the secrets in a text, where these are protected. It has been checked that none is in more
            records than declared.
        progress: takes what is being done, how much of it is, and of how much: public numbers only.
        resuming: whether the run was charged before. What was made then need not be made again; what was probed must,
            as the machine may be another.
    """

    labels: LabelSet
    seed: int  # public; steers public randomness only, never noise
    embedder: Embedder | None = None
    dimension: int = 0
    model: CausalModel | None = None
    prompts: Prompts | None = None  # what texts are asked for with, if the method needs a model or candidates
    record_columns: tuple[str, ...] = ()
    columns: tuple[Column, ...] = ()  # typed columns beside the texts, which batches hold the cells of
    secrets: SecretFinder | None = None
    say: Callable[[str], None] = lambda _line: None  # takes a line for the user: public facts only
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None
    resuming: bool = False


class Door(Protocol):
    """What stands between private records and released values: :class:`~understudy.run.door.Measurements`."""

    def measure(
        self, name: str, query: Query[Any] | OpenQuery, data: Batches[Any], *, rates: Rates | None = None
    ) -> SealedValue: ...

    def open(self, name: str) -> Any: ...

    def seal(self, name: str, make: Callable[[], Arrays]) -> SealedValue: ...

    def keep(self, name: str, make: Callable[[], Arrays]) -> Arrays: ...


@dataclass(frozen=True)
class ReleaseTools(Preparation):
    """What a release may use in addition to the corpus; its functions are those of the ``door``.

    Args:
        door: pays, adds noise, stores, has the ledger seal.
        writer: the language model with its prompts, if the method asks for candidates; it must see public text,
            released values and its own answers only.
        prepared: what :meth:`Method.prepare` gave.
        scratch: a private folder of this run on these data (may not be there yet), for what must not lie in memory;
            removed at the end.
        note: takes what only the private side may know, such as times; kept in the private folder.
        rows: rows sampled from the released columns, for a part of the release that these numbers name; the same ones
            at every call. None without typed columns, or where the method does not say that it needs them.
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
        """The noisy sum of ``query`` over ``data``, under the charge ``name``; the stored one where there is one."""
        return self.door.measure(name, query, data, rates=rates)

    def open(self, name: str) -> Any:
        """Pay the charge ``name``, for values that are made in parts."""
        return self.door.open(name)

    def seal(self, name: str, make: Callable[[], Arrays]) -> SealedValue:
        """The value ``CHARGE/PART``: the stored one, or what ``make`` returns, stored and sealed before it is used.
        Several threads may call it at once."""
        return self.door.seal(name, make)

    def keep(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """Something public, or made from sealed values, that a resumed run must find as it was."""
        return self.door.keep(name, make)

    def require_same(self, name: str, sha256: str) -> None:
        """See that a public input is the one that the run began with: stored values are told by their places in it.
        Raises ResumeError where it is not: another version of a package, say, has another list."""
        kept = self.keep(f"public {name}", lambda: {"sha256": np.frombuffer(bytes.fromhex(sha256), dtype=np.uint8)})
        if kept["sha256"].tobytes().hex() != sha256:
            raise ResumeError(
                f"The {name} is not the one that this run began with.",
                "Install the versions of understudy and its packages that it began with, or start over with --fresh, "
                "which charges again.",
            )


@dataclass(frozen=True)
class Released:
    """What a release hands on: made from sealed values and public inputs alone.

    Args:
        arrays, terms, strings: the content of the Release.
        public_inputs: name -> {"source", "sha256"}, for the statement.
    """

    arrays: Arrays
    terms: Sequence[str] = ()
    public_inputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    noise_check: Facts = field(default_factory=Facts)  # how much stands above the noise
    notes: tuple[str, ...] = ()  # remarks for the statement, besides the plan's
    strings: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __or__(self, beside: Released) -> Released:
        """This with the arrays, strings, public inputs and noise check of what was released beside it."""
        return replace(
            self,
            arrays={**self.arrays, **beside.arrays},
            strings={**self.strings, **beside.strings},
            public_inputs={**self.public_inputs, **beside.public_inputs},
            noise_check=self.noise_check + beside.noise_check,
        )


class Method(ABC):
    """A method with its parameters: inherit this and your :class:`~understudy.base.parameters.Parameters`.

    It must have a ``name``, ``plan`` and ``release``. Everything else has a default.
    A function that has a module to itself takes the parameters first, and is assigned in the class:
    ``release = releasing.release``.
    """

    name: ClassVar[str]
    """Its name on the command line."""
    needs: ClassVar[Needs] = Needs()
    parameters: ClassVar[type[Parameters]] = Parameters
    """Those that the class inherits, unless it names others."""
    generation_parameters: ClassVar[type[Parameters]] = Parameters
    """The parameters that may change at every ``generate``."""
    stopping_parameters: ClassVar[frozenset[str]] = frozenset()
    """The parameters that say where a release stops before its charges are used up: ``release --continue`` resumes
    there, and they may then be others. A method without any cannot be continued."""
    private: ClassVar[bool] = True
    """False for a yardstick without privacy: it runs only where the user says that there is no noise."""
    protects_secrets: ClassVar[bool] = False
    """Whether it can be run with a :class:`~understudy.privacy.guarantee.SecretBudget`; a method that cannot is
    never given one."""
    pure: ClassVar[Mapping[str, Any]] = {}
    """Parameters that are so where the budget has no delta and nobody gives them."""
    guided: ClassVar[bool] = False
    """Whether it has a guide without being asked: one that chooses among what is sampled, before a text is written."""
    labels_in_parallel: ClassVar[bool] = False
    """Whether one charge pays for all labels, label by label, because a unit lies in one (parallel composition). It
    must then lie in the same one in every session of the run, which a label that is computed anew need not."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "parameters" not in vars(cls):
            own = (base for base in cls.__mro__ if issubclass(base, Parameters) and not issubclass(base, Method))
            cls.parameters = next(own, Parameters)

    def fitted(self, expected_records: int, labels: int) -> Mapping[str, Any]:
        """Parameters that nobody gave, as the declared size of the corpus and the number of labels suggest: public
        facts. They become the run's, and hold when it is resumed."""
        return {}

    def require_guidable(self) -> None:  # noqa: B027 - optional
        """Raises ConfigError if the method promises something that would not hold for a guide released beside it."""

    @abstractmethod
    def plan(self, budget: Budget, facts: PublicFacts) -> Plan:
        """All charges, before a private record is read. :meth:`plan_of` makes the plan of noisy sums.

        If the method ``protects_secrets``, ``budget`` may be a :class:`~understudy.privacy.guarantee.SecretBudget`.
        Raises ConfigError if the budget or the parameters cannot be planned with.
        """

    def plan_of(self, budget: Budget, facts: PublicFacts, sums: Mapping[str, tuple[Query[Any], float, str]]) -> Plan:
        """Plan a noisy sum per entry: the name of its charge, and its query, share of the budget and purpose.

        Sensitivity and shape are those that the query states; ``release`` measures ``plan.query(name)``, or a query
        that is built from it. The shares may have any scale. The noise is Gaussian; it
        is Laplace noise if the budget has no delta and every query states an L1 sensitivity.
        Raises ConfigError if the budget cannot be spent on these sums.
        """
        return usual.plan_sums(self.name, budget, facts, sums)

    @abstractmethod
    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        """The only code that reads private records, through ``tools``."""

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        """``counts[label]`` records of each label, with no text where none could be generated. Post-processing.

        By default, if the Release holds its texts: the first of the strings ``texts``, of which the array ``label`` has
        the labels. Else texts are written around eight of its terms, drawn for each label in proportion to what is
        above 0 in the array ``counts``, of a row per label and a column per term; equally without such an array.
        """
        return usual.generate(release, counts, tools, holds_texts=self.needs.holds_texts)

    def prepare(self, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> Any:  # noqa: B027 - optional
        """What else could fail though public facts tell it, done before anything is charged.

        ``corpus`` is there to check rules of the schema, and to read records that are declared public. What is returned
        is the ``prepared`` of :class:`ReleaseTools`.
        Raises ConfigError, CorpusError or ModelError for what would fail after the charge.
        """

    def longest_prompts(self, release: Release, writer: Writer) -> Chats:
        """For each label the language model's longest prompts, as far as these are public. ``release``: as planned."""
        return ()

    def estimate_calls(
        self, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate
    ) -> CallEstimate:
        """What a run that makes ``counts[label]`` records will ask of a language model. For the forecast."""
        return CallEstimate.of_phrases(counts, writing, template)

    def contents(self, release: Release) -> Contents | None:
        """What a Release of this method and these parameters holds; None leaves it unchecked when it is loaded."""
        return None

    def available(self, release: Release) -> Sequence[int] | None:
        """How many records of each label the Release holds; None where any number can be made, or nobody knows."""
        return usual.available(release) if self.needs.holds_texts and self._usual else None

    @property
    def knows_how_many(self) -> bool:
        """Whether a Release of this method says how many records it holds, so that nobody has to."""
        return self.needs.holds_texts and (self._usual or type(self).available is not Method.available)

    @property
    def _usual(self) -> bool:
        """Whether texts are made as :meth:`generate` does by default."""
        return type(self).generate is Method.generate

    def require_content(self, release: Release) -> None:
        """Raises ReleaseError if the default ``generate`` cannot make texts of what the Release holds."""
        if self._usual:
            usual.require_content(release, holds_texts=self.needs.holds_texts)

    def label_weights(self, release: Release) -> Sequence[float] | None:
        """How ``records`` are shared out over labels; None for equal shares."""
        return None

    @property
    def counts_labels(self) -> bool:
        """Whether a Release of these parameters tells how many records each label has (:meth:`label_counts`)."""
        return type(self).label_counts is not Method.label_counts

    def label_counts(self, release: Release) -> tuple[Sequence[float], float] | None:
        """Noisy numbers in proportion to the records of each label, and the standard deviation of their noise; None
        where it does not tell."""
        return None

    def tuned_model(self, release: Release, base: CausalModel) -> TunedModel | None:
        """The tuned model that the Release holds, on its base model; None where it holds none. Raises ReleaseError if
        ``base`` is another model than the Release was tuned on."""
        return None

    def dump(self) -> dict[str, Any]:
        """The parameters as JSON."""
        assert isinstance(self, Parameters)
        return self.model_dump(mode="json")
