"""What every method offers: plan, release, generate, cut at the privacy boundary.

A new method is a class with these three, a frozen set of parameters
(:class:`~understudy.parameters.Parameters`) and an entry point in the group
``understudy.methods``. See ``docs/adding-a-method.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from numpy.typing import NDArray

from understudy.methods.contents import Contents
from understudy.models.types import Embedder
from understudy.parameters import Parameters
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import NoiseSource
from understudy.privacy.plan import Plan, Receipt
from understudy.privacy.secrets.budget import SecretBudget
from understudy.privacy.unit import Unit
from understudy.prompts.parameters import WritingParameters
from understudy.prompts.template import Prompts, PromptTemplate
from understudy.release import Release
from understudy.writing.records import SyntheticRecord
from understudy.writing.writer import Writer

if TYPE_CHECKING:
    from understudy.corpus import Corpus
    from understudy.corpus.bounding import BoundedCorpus
    from understudy.corpus.secrets import SecretFinder
    from understudy.models.causal import CausalModel

Arrays = Mapping[str, NDArray[Any]]
Keep = Callable[[str, Callable[[], Arrays]], Arrays]
"""Returns the stored noisy value of this name, or draws it and stores it before anyone sees it.

The name is that of a charge, or of a part of it: ``CHARGE/PART``. May be called by several threads at once.
"""


@dataclass(frozen=True)
class PublicFacts:
    """What a plan may depend on: nothing private.

    Args:
        unit: the privacy unit.
        labels: size of the label set, 1 without labels.
        expected_records: the corpus size as the user types it in; only for the forecast.
        label_names: the declared labels' canonical strings; empty without labels.
    """

    unit: Unit
    labels: int
    expected_records: int | None = None
    label_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Preparation:
    """What there is before anything is charged, to see that the release will run to its end.

    Args:
        labels, label_names, embedder, seed, say: as in :class:`ReleaseTools`.
        dimension: of the embedder's vectors; 0 without one.
    """

    labels: int
    label_names: tuple[str, ...]
    embedder: Embedder | None
    dimension: int
    seed: int
    say: Callable[[str], None]


@dataclass(frozen=True)
class ReleaseTools:
    """What a release may use besides the corpus.

    Args:
        labels: size of the label set, as in :class:`PublicFacts`.
        label_names: the label set's canonical strings; empty without labels.
        receipt: proof that the plan's charges are in the ledger.
        noise: where noise comes from.
        keep: stores a noisy value before it is used.
        embedder: the public embedder, if the method needs one; a text's vector depends on that text alone, as was
            tried (not where the method says that it embeds released texts only).
        seed: public; steers public randomness only, never noise.
        scratch: a private folder of the run (may not be there yet), for what must not lie in memory; removed at the
            end.
        run_key: names this run on these data: what lies in ``scratch`` under another key is another's.
        writer: the language model with its prompts, if the method asks for candidates; it must see public text,
            released values and its own answers only.
        model: the local model that reads private text, if the method needs one.
        prompts: what texts are asked for with, if the method needs a model or asks for candidates.
        record_columns: the columns of the JSON records that the texts are; empty where they are none.
        say: takes a line for the user: public facts only.
        diary: takes what only the private side may know, such as times; kept in the private folder.
        prepared: what the method's ``prepare`` gave; None in a run that goes on.
    """

    labels: int
    label_names: tuple[str, ...]
    receipt: Receipt
    noise: NoiseSource
    keep: Keep
    embedder: Embedder | None
    seed: int
    scratch: Path = Path()
    run_key: str = ""
    writer: Writer | None = None
    model: CausalModel | None = None
    prompts: Prompts | None = None
    record_columns: tuple[str, ...] = ()
    say: Callable[[str], None] = lambda _line: None
    diary: Callable[[Mapping[str, Any]], None] = lambda _entry: None
    prepared: Any = None


@dataclass(frozen=True)
class GenerationTools:
    """What turns a Release into texts.

    Args:
        writer: the language model with its prompts.
        embedder: the public embedder, if the method generates with one; the method sees that it is the Release's.
        seed: steers this draw.
        say: takes a line for the user.
    """

    writer: Writer
    embedder: Embedder | None = None
    seed: int = 0
    say: Callable[[str], None] = lambda _line: None


@dataclass(frozen=True)
class Released:
    """What a release hands on: noised and paid for, or public.

    Args:
        arrays, terms, strings: the content of the Release.
        public_inputs: name -> {"source", "sha256"}, for the statement.
        noise_check: how much stands above the noise, by name; ``warning`` where it is little.
        notes: remarks for the statement.
    """

    arrays: Arrays
    terms: Sequence[str] = ()
    public_inputs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    noise_check: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    strings: Mapping[str, Sequence[str]] = field(default_factory=dict)


_PHRASES = 10


@dataclass(frozen=True)
class CallEstimate:
    """Calls of a language model (``most`` if repairs may be fewer), and the characters of a prompt, about."""

    calls: int
    characters: int
    most: bool = False

    @classmethod
    def of_phrases(
        cls, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate, *, length: int
    ) -> CallEstimate:
        """One prompt a record around ``length`` phrases, sampled and repaired as ``writing`` says."""
        phrases = ["keyphrase"] * min(length, writing.prompt_terms or length)
        messages = template.messages(phrases, examples=template.examples[: writing.examples_per_prompt])
        calls = sum(counts) * (writing.samples + writing.repair)
        return cls(calls, sum(len(message.content) for message in messages), most=writing.repair > 0)


class Traits:
    """What most methods are not: inherit this, and say where yours differs."""

    embeds_private_texts: ClassVar[bool] = True
    """Whether the release's embedder, if it has one, is given private texts, and not released ones alone. Then it is
    tried before anything is charged, and must be local or trusted."""
    asks_for_candidates: ClassVar[bool] = False
    """Whether the release asks a language model (which never sees private text)."""
    generates_with_embedder: ClassVar[bool] = False
    """Whether ``generate`` needs the Release's embedder."""
    generates_with_llm: ClassVar[bool] = False
    """Whether ``generate`` makes nothing without a language model."""
    needs_private_model: ClassVar[bool] = False
    """Whether the release needs a local causal model, which reads private text."""
    exports: ClassVar[bool] = False
    """Whether the Release holds the synthetic texts themselves, so that ``generate`` hands them out and makes none."""
    stopping_parameters: ClassVar[frozenset[str]] = frozenset()
    """Those that say where a release stops before its charges are used up: ``release --continue`` goes on from there,
    and they may then be others. A method without any cannot be continued."""
    protects_secrets: ClassVar[bool] = False
    """Whether it can be run with a :class:`~understudy.privacy.secrets.budget.SecretBudget`; any other budget too is
    then its own affair."""

    def asks(self, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate) -> CallEstimate:
        """What a run that makes ``counts[label]`` records will ask of a language model. For the forecast."""
        return CallEstimate.of_phrases(counts, writing, template, length=_PHRASES)

    def check_prompts(
        self,
        model: CausalModel,
        prompts: Prompts,
        *,
        label_names: Sequence[str],
        record_columns: Sequence[str],
    ) -> None:
        """See that the private model can be asked for texts, before anything is charged; raise ConfigError where not.

        Args:
            model, prompts, label_names, record_columns: as in :class:`ReleaseTools`.
        """

    def available(self, release: Release) -> Sequence[int] | None:  # noqa: ARG002 - for methods that export
        """How many records of each label the Release holds; None where any number can be made."""
        return None

    def contents(self, release: Release) -> Contents | None:  # noqa: ARG002 - for methods that state it
        """What a Release of this method and these parameters holds; None leaves it unchecked when it is loaded."""
        return None

    def check_secrets(self, corpus: Corpus, finder: SecretFinder, plan: Plan) -> None:
        """What else must hold of the corpus's secrets before anything is charged; raise CorpusError where it does not.

        That no secret is in more records than declared has been checked.
        """

    def prepare(self, corpus: Corpus, plan: Plan, preparation: Preparation) -> Any:
        """What else could fail though public facts tell it, done before anything is charged; raise ConfigError there.

        Returns:
            What :class:`ReleaseTools` then has as ``prepared``. Not asked in a run that goes on.
        """


class Method(Protocol):
    """A method with its parameters, and its :class:`Traits`."""

    name: ClassVar[str]
    parameters: ClassVar[type[Parameters]]
    generation_parameters: ClassVar[type[Parameters]]
    """Those of the parameters that may change at every ``generate``."""

    embeds_private_texts: ClassVar[bool]
    asks_for_candidates: ClassVar[bool]
    generates_with_embedder: ClassVar[bool]
    generates_with_llm: ClassVar[bool]
    needs_private_model: ClassVar[bool]
    exports: ClassVar[bool]
    stopping_parameters: ClassVar[frozenset[str]]
    protects_secrets: ClassVar[bool]

    def asks(self, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate) -> CallEstimate: ...

    def check_prompts(
        self,
        model: CausalModel,
        prompts: Prompts,
        *,
        label_names: Sequence[str],
        record_columns: Sequence[str],
    ) -> None: ...

    def available(self, release: Release) -> Sequence[int] | None: ...

    def contents(self, release: Release) -> Contents | None: ...

    def check_secrets(self, corpus: Corpus, finder: SecretFinder, plan: Plan) -> None: ...

    def prepare(self, corpus: Corpus, plan: Plan, preparation: Preparation) -> Any: ...

    @property
    def needs_embedder(self) -> bool:
        """Whether the release needs an embedder."""
        ...

    def dump(self) -> dict[str, Any]:
        """The parameters as JSON."""
        ...

    def plan(self, budget: Budget | SecretBudget, facts: PublicFacts) -> Plan:
        """All charges, before a private record is read.

        A method without ``protects_secrets`` is given a :class:`~understudy.privacy.guarantee.Budget` only.
        """
        ...

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        """The only code that reads private records."""
        ...

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        """``counts[label]`` synthetic records of each label, with no text where none could be had. Post-processing."""
        ...
