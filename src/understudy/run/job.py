"""A configuration resolved once: the parts of a run, each checked as it is made. Every step takes those it needs.

Whatever public facts can tell is told here, before a folder is touched, a model is loaded or anything is charged.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from understudy.base.columns import cross_labels, require_own_names
from understudy.base.errors import ConfigError, ReleaseError
from understudy.base.labels import LabelSet, undeclared
from understudy.base.transcript import PLAIN, TextForm, text_columns
from understudy.corpus import Corpus, TableSource, read_corpus
from understudy.corpus.read import proposed_name, require_header
from understudy.corpus.schema import require_told
from understudy.corpus.secrets import SecretFinder, make_detectors, secret_finder
from understudy.corpus.sources import Reading
from understudy.ledger.store import begun_settings
from understudy.methods.base import Method
from understudy.methods.public import PublicFacts
from understudy.methods.registry import load_release, make_method
from understudy.methods.shared.evolution.parameters import EvolutionParameters
from understudy.methods.shared.guide.plan import (
    GUIDE_SHARE,
    MOST_EMBEDDED,
    NO_EMBEDDER,
    TYPICAL_RECORDS,
    ChoosingParameters,
    GuideParameters,
    embedding_rate,
    plan_with_guide,
    sample_words,
    why_no_guide,
)
from understudy.methods.shared.labelling import COLUMN
from understudy.methods.shared.tables.plan import plan_with_columns
from understudy.methods.shared.tables.variables import COLUMNS_SHARE, RowsParameters, TablesParameters, Variables
from understudy.methods.topics.plan import LABELS_SHARE, SPARE, plan_with_topics, topics_that_pay
from understudy.methods.topics.plan import NAME as TOPICS
from understudy.models import catalog
from understudy.models.catalog import embedder_here
from understudy.models.causal import CausalModel
from understudy.models.machine import missing_packages
from understudy.models.presets import BATCH_DISCOUNT, preset_of
from understudy.models.types import Embedder
from understudy.models.vectors import ContentsEmbedder, remembering
from understudy.privacy.exact import as_typed
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.plan import Plan
from understudy.release.statement import require_readable_charges
from understudy.run import settings
from understudy.run.outputs import LABEL, PROVENANCE, TRANSCRIPT, OutputFolder
from understudy.run.session import Lasting
from understudy.run.settings import MOST_RECORDS, RunConfig
from understudy.text.prompts.template import PromptTemplate, WritingParameters, in_form, load_template
from understudy.text.vocabulary.terms import ALL_LANGUAGES, BUILT_IN, built_in_terms
from understudy.text.vocabulary.words import split_words


class FreeJob:
    """What is written without a private table: of a Release, or of nothing but labels.

    Args:
        config: as flags, YAML or Python give it; nobody sees it after this.
        form: the parts that texts have.
        guide, columns: whether the Release has, or is to have, a guide and typed columns.
        topics: whether its labels are topics.
        labels: how many it has; None: as the configuration declares.
        releases, generates: whether a Release is made, and texts of it.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        form: TextForm = PLAIN,
        guide: bool = False,
        columns: bool = False,
        topics: bool = False,
        labels: int | None = None,
        releases: bool = False,
        generates: bool = True,
    ) -> None:
        config = config.model_copy(update={"guide": bool(config.guide)})
        labels = config.label_set.size if labels is None else labels
        self.method = make_method(config.method, config.method_parameters)
        self.decided: tuple[str, ...] = ()
        if generates:
            shares = columns or topics  # the Release knows which
            config, self.decided = _decided(config, self.method, labels=labels, shares=shares, form=form)
        self.wanted = config.part(Wanted)
        labelled = (config.label is not None or labels > 1) and not (guide or columns or topics)
        if generates and self.wanted.like_private and labelled and not self.method.counts_labels:
            raise no_label_counts(self.method)
        if generates:
            self.wanted.require(self.method, labels=labels, guide=guide, columns=columns)
        self.texts = Texts(config.part(WritingParameters), form, config.record_columns)
        self.chat = Chat.of(config, self.method, self.texts, releases=releases, generates=generates)
        self.embedder = config.part(PublicEmbedder)
        self.private_model = config.part(PrivateModel)
        self.place = config.part(settings.OutputParameters)
        self.dataset = config.dataset
        self.lasting = Lasting(config.lasting, config.changeable, config.without_gone)
        _require_utf8({**self.lasting.settings, "dataset": self.dataset})


class Job(FreeJob):
    """What is released of a private table, and written of it.

    Args:
        config: as flags, YAML or Python give it; nobody sees it after this.
        charges: whether the ledger is charged, in which the dataset then has a name.
        generates: whether texts are made; None: if it is said how many.
    """

    def __init__(self, config: RunConfig, *, charges: bool = False, generates: bool | None = None) -> None:
        self.topics_decision = TopicsDecision.of(config)
        config = self.topics_decision.applied(config)
        self.topics, self.label_set = config.topics is not None, config.label_set
        self.table = Table.of(config)
        config, self.fitted_line = fitted(config, self.table)
        self.guide_decision = GuideDecision.of(config, self.table)
        config = config.model_copy(update={"guide": self.guide_decision.on})
        super().__init__(
            config,
            form=config.form,
            guide=self.guide_decision.on,
            columns=config.columns is not None,
            topics=self.topics,
            releases=True,
            generates=config.part(Wanted).said if generates is None else generates,
        )
        self.promise = Promise.of(config, self.method, charges=charges)
        if self.topics:
            _require_labels_anew(self.method)
            self.method.require_guidable()
            self.table.require_no(COLUMN)
        if self.promise.guide or self.table.columns:
            self.method.require_guidable()
        self.engine = config.part(settings.EngineParameters)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """What public facts warn of."""
        method = self.method
        english = getattr(method, "vocabulary", "") == BUILT_IN and not getattr(method, "discover_terms", True)
        return (*self.promise.warnings, *([_ENGLISH] * (english and self.table.looks_foreign)))

    def plan(self, labels: LabelSet | None = None) -> Plan:
        """What is released and charged, with the table's labels or the declared ones. Reads no private data."""
        method, promise, table = self.method, self.promise, self.table
        beside = () if table.record_columns else table.typed_columns
        facts = PublicFacts(promise.unit, labels or self.label_set, promise.expected_records, beside)

        def plan_text(rest: Budget | SecretBudget) -> Plan:
            """The method, and its guide if there is to be one."""
            if not promise.guide:
                return method.plan(rest, facts)
            return plan_with_guide(
                lambda left: method.plan(left, facts),
                rest,
                share=GUIDE_SHARE,
                labels=facts.labels.size,
                expected_records=facts.expected_records,
                unit=facts.unit,
            )

        def plan_table(rest: Budget | SecretBudget) -> Plan:
            """The same, with the typed columns if there are any."""
            variables = table.variables(facts.labels)
            if variables is None:
                return plan_text(rest)
            return plan_with_columns(
                plan_text,
                rest,
                variables=variables,
                parameters=promise.part(TablesParameters),
                share=COLUMNS_SHARE,
                expected_records=facts.expected_records,
            )

        if self.topics:
            plan = plan_with_topics(plan_table, promise.budget, topics=facts.labels.size, unit=facts.unit)
        else:
            plan = plan_table(promise.budget)
        require_readable_charges(plan.charges)
        return plan

    @cached_property
    def declared_plan(self) -> Plan:
        """The plan with the declared labels."""
        return self.plan()

    @property
    def embeds_private_texts(self) -> bool:
        return self.promise.guide or self.topics or self.method.needs.embedder == "private"


def _require_labels_anew(method: Method) -> None:
    """Raises ConfigError for a method whose charges need a record to keep its label.

    A topic is computed in each session, and another machine, or another model behind an endpoint's name, may round
    otherwise: the record would count for two labels under a charge that pays for one.
    """
    if method.labels_in_parallel:
        raise ConfigError(
            f"Topics cannot be the labels of {method.name}: one charge pays for all its labels, because a record keeps "
            "its own, and its topic is computed anew whenever a run is resumed.",
            "Take another method (dp-kps, aug-pe, dp-finetune), or declare labels (--label, --labels).",
        )


@dataclass(frozen=True)
class TopicsDecision:
    """How many topics a run looks for, from public facts; and why, where nobody said so. Or the file of known ones."""

    count: int | str | None
    why: str = ""

    @classmethod
    def of(cls, config: RunConfig) -> TopicsDecision:
        """As it was said, as the run in the output folder began, or as the records carry.

        Raises:
            ConfigError: if there are labels too, or the topics are too few to tell anything apart.
            ReleaseError: if what shall be counted again is no Release of topics.
        """
        own = config.method == TOPICS
        asked = make_method(config.method, config.method_parameters).dump()["topics"] if own else config.topics
        if asked is None:
            return cls(None)
        if not own and (config.label is not None or config.labels is not None or config.labels_from_data):
            raise ConfigError(
                "Topics take the place of labels, and there are labels.",
                "Leave out --topics; or leave out --label, --labels and --labels-from-data.",
            )
        if isinstance(asked, str) and asked != "auto":
            return cls(_known_topics(Path(asked)))
        if not isinstance(asked, str):
            if not own and asked == 1:
                raise ConfigError("One topic tells no texts apart.", "Give --topics 2 or more, or leave it out.")
            return cls(asked)
        if begun := settings_begun(config):
            return cls(begun.get("topics"), "as this run began")
        budget, expected = config.budget, config.expected_records
        if isinstance(budget, SecretBudget) or not budget.delta:
            return cls(2)  # refused, with its own message, when it is planned
        records = expected or TYPICAL_RECORDS
        share, spare = (1.0, 1.0) if own else (LABELS_SHARE, SPARE)
        count = topics_that_pay(budget, share=share, records=records / spare)
        told = f"{records:,} {'declared' if expected else 'assumed'} {config.unit.kind}s"
        told += "" if expected else " (declare how many: --expected-records)"
        if count:
            return cls(count, f"for {told}")
        return cls(2, f"though two are too many for {told}") if own else cls(None, f"two are too many for {told}")

    def applied(self, config: RunConfig) -> RunConfig:
        """The configuration with as many."""
        if config.method != TOPICS:
            return config.model_copy(update={"topics": self.count})
        own = {} if self.count is None else {"topics": self.count}
        return config.model_copy(update={"method_parameters": {**config.method_parameters, **own}})

    @property
    def line(self) -> str:
        """What was decided, for people; empty where nothing was."""
        return f"Topics: {self.count or 'none'}, {self.why}." if self.why else ""


def fitted(config: RunConfig, table: Table) -> tuple[RunConfig, str]:
    """The configuration with what the method takes from the declared size, and from names that are not English, where
    nobody gives it; and a line on it.

    A run that began keeps what it began with. The size is rounded, so that a Release hardly tells it, should it have
    been counted. Where labels are read from the data, their number is private, and nothing that rests on it is taken.
    """
    method = make_method(config.method, config.method_parameters)
    records = int(float(f"{config.expected_records or TYPICAL_RECORDS:.2g}"))
    known = not (config.labels_from_data and method.labels_in_parallel)
    found = method.fitted(records, config.label_set.size) if known else {}
    begun = settings_begun(config)
    if config.expected_records is None:
        found = {name: begun.get(name) for name in found}
    taken = {name: value if begun.get(name) is None else begun[name] for name, value in found.items()}
    told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in taken.items() if value is not None)
    lines = [f"From the declared size of the corpus: {told}."] if told else []
    if config.delta and method.foreign and table.looks_foreign:
        language = {name: begun.get(name) if begun else value for name, value in method.foreign.items()}
        taken |= language
        if any(language.values()):
            lines.append(_FOREIGN)
    parameters = {**config.method_parameters, **taken}
    return config.model_copy(update={"method_parameters": parameters}), " ".join(lines)


_FOREIGN = (
    "Hardly a name of the columns and labels is an English word, and what is built in is: 30 % of the budget finds the "
    "texts' own terms (--discover-terms), so that what dozens of records share can appear word for word, and stop "
    "words are those of 33 languages."
)


def _known_topics(path: Path) -> str:
    """The file of a Release of topics."""
    file = OutputFolder(path).release_file(TOPICS) if path.is_dir() else path
    known = load_release(file)
    if known.method != TOPICS or not known.statement.private:
        raise ReleaseError(
            "Topics to count again are those of `understudy topics`, and made with noise.", "Name such a Release."
        )
    return str(file)


@dataclass(frozen=True)
class GuideDecision:
    """Whether a Release has a guide, from public facts; and why, where nobody said so."""

    on: bool
    why: str = ""

    @classmethod
    def of(cls, config: RunConfig, table: Table) -> GuideDecision:
        """As it was said, as the run in the output folder began, or as it pays."""
        if config.guide is not None:
            return cls(config.guide)
        if "guide" in (begun := settings_begun(config)):
            return cls(bool(begun["guide"]))
        method = make_method(config.method, config.method_parameters)
        if not method.guided or config.epsilon is None or config.delta is None:
            return cls(False)
        budget, labels = config.budget, config.label_set.size
        if isinstance(budget, SecretBudget) or not budget.delta or method.dump().get("noise") == "laplace":
            return cls(False)
        if labels < 2:  # it has nothing to tell apart
            return cls(False)
        unit, expected = config.unit, config.expected_records
        if why := why_no_guide(budget, labels=labels, expected_records=expected, unit=unit):
            return cls(False, why)
        if not embedder_here(config.embedder):
            return cls(False, NO_EMBEDDER)
        if config.embedder == "builtin" and table.looks_foreign:
            return cls(False, "the built-in embedder reads English, and hardly a name of columns and labels is")
        told = "" if expected else f", if there are about {TYPICAL_RECORDS} records"
        reads, rate, costs = "each text", embedding_rate(expected, unit), "30 %"
        if expected and rate < 1:
            size = sample_words(expected, unit)
            reads, costs = f"a random sample of the {unit.kind}s at rate {rate:g} ({size})", "less than 30 %"
        elif not expected:
            reads += f" (--expected-records lets it sample tables of more than {MOST_EMBEDDED})"
        return cls(True, f"it pays{told}: the embedder reads {reads}, and {costs} of the budget is the guide's")


def settings_begun(config: RunConfig) -> dict[str, Any]:
    """The settings that the run in the output folder began with, if one did and is not to start over."""
    if config.output is None or config.fresh:
        return {}
    return begun_settings(Path(config.output) / "private", config.part(settings.LedgerParameters).noise_source.origin)


def _decided(
    config: RunConfig, method: Method, *, labels: int, shares: bool, form: TextForm
) -> tuple[RunConfig, tuple[str, ...]]:
    """What writing takes where nobody says it: how many texts, and no language model where none can be loaded.

    A run that began goes on as it did: texts that are there are not replaced by those of another model.

    Returns:
        The configuration with it, and a line on each.
    """
    changes: dict[str, Any] = {}
    lines = []
    needs = method.needs
    optional = _writes_around_phrases(method, form, config.record_columns)
    begun = settings_begun(config)
    if optional and "llm" not in config.model_fields_set and begun.get("llm") in ("builtin", "none"):
        changes["llm"] = begun["llm"]
    elif optional and "llm" not in config.model_fields_set and (missing_packages() or not _in_english(method)):
        changes["llm"] = "none"
        why = _NOT_HERE if _in_english(method) else "writes English"
        lines.append(
            f"Texts are the phrases themselves: no language model is named (--llm), and the built-in one {why}."
        )
    if config.samples is None and changes.get("llm", config.llm) == "builtin" and optional and config.asks_itself:
        changes["samples"] = _SAMPLES
    said = config.records is not None or config.records_per_label is not None
    if not said and (begun.get("records") or begun.get("records_per_label")):
        changes |= {name: begun.get(name) for name in ("records", "records_per_label")}
    elif not (said or needs.holds_texts):
        number = str(_TEXTS_IN_ALL)
        if shares or config.like_private:  # labels have the shares of the released distribution
            changes["records"] = _TEXTS_IN_ALL
        else:
            changes["records_per_label"] = each = max(_TEXTS_IN_ALL // labels, _TEXTS_OF_LABEL)
            number = f"{each} per label" if labels > 1 else str(each)
        lines.append(f"Texts to write: {number}, since no number is given (--records, --records-per-label).")
    return config.model_copy(update=changes), tuple(lines)


_NOT_HERE = "is not on this machine (pip install 'understudy[local]')"


def _in_english(method: Method) -> bool:
    """False where the method leaves out the stop words of every language: what is built in is English."""
    return getattr(method, "stop_words", None) != ALL_LANGUAGES


def _writes_around_phrases(method: Method, form: TextForm, record_columns: tuple[str, ...]) -> bool:
    """Whether texts without parts are written around phrases, which can stand for them."""
    return method.needs.generation_llm == "optional" and not (method.needs.candidates or form or record_columns)


_SAMPLES = 4
"""Answers of the built-in model to a prompt of the user's own around phrases, of which the best is taken."""
_TEXTS_IN_ALL, _TEXTS_OF_LABEL = 100, 10
"""Texts that are written where nobody says how many; those of a label are no fewer than the second number."""


# Parts are in no help and no schema: reading their fields' docstrings would double the time to import this file.


class Wanted(
    settings.OutputParameters, GuideParameters, ChoosingParameters, RowsParameters, use_attribute_docstrings=False
):
    """Which synthetic records."""

    @property
    def said(self) -> bool:
        """Whether it is said how many."""
        return self.records is not None or self.records_per_label is not None

    def counts(self, labels: int) -> list[int]:
        """Synthetic records of each label."""
        if (self.records is None) == (self.records_per_label is None):
            raise ConfigError(
                "Not exactly one option says how many records to write.",
                "Give one of --records-per-label N and --records N.",
            )
        if self.records_per_label is not None:
            if (asked := self.records_per_label * labels) > MOST_RECORDS:
                raise ConfigError(
                    f"{asked} synthetic records are asked for, and {MOST_RECORDS} are the most.",
                    "Ask for fewer; `understudy generate` makes more of the same Release with another --seed.",
                )
            return [self.records_per_label] * labels
        assert self.records is not None
        return [self.records // labels + (label < self.records % labels) for label in range(labels)]

    def candidates(self, method: Method) -> int:
        """Texts made for each one that is kept."""
        if not self.guide or self.guide_candidates == 0:
            return 1
        return self.guide_candidates or (1 if method.guided else _TEXTS)

    def require(self, method: Method, *, labels: int, guide: bool, columns: bool) -> None:
        """See that this can be had, before anything is done; else ConfigError.

        Args:
            guide, columns: as the Release has them.
        """
        if (self.said or not method.needs.holds_texts) and (
            sum(self.counts(labels)) * (self.guide_candidates or 1) > MOST_RECORDS
        ):
            raise ConfigError(
                f"More than {MOST_RECORDS} candidates would be made.", "Ask for fewer records or guide_candidates."
            )
        if self.like_private and self.records is None:
            raise ConfigError(
                "Labels are to have the shares of the private table (like_private), and no total is given.",
                "Give --records N, in place of --records-per-label.",
            )
        asked = "guide" if self.guide else "guide_candidates" if self.guide_candidates else None
        if asked and not guide:
            raise ConfigError(
                f"{asked!r} is about the guide of a Release, and there is none.",
                "Leave it out, or release with --guide.",
            )
        if self.where and not columns:
            raise ConfigError(
                "A condition on rows is given (--where), and there are no typed columns.",
                "Leave it out, or declare --columns for the release.",
            )
        if self.where and method.needs.rows:
            name = method.name
            raise ConfigError(
                f"The texts of {name} are in the Release, each behind its own row: no condition can be met later.",
                "Leave --where out, and select the rows you want from the synthetic table.",
            )


def no_data() -> ConfigError:
    return ConfigError("No private data given.", "Name them with --data SOURCE: a file, a folder or a pattern.")


def no_label_counts(method: Method) -> ConfigError:
    """The error where labels are to be shared by counts that a Release does not hold."""
    sizes = ", or --label-sizes noisy" if "label_sizes" in method.dump() else ""
    return ConfigError(
        f"A Release of {method.name} with these settings holds no counts of the labels (like_private).",
        f"Leave --like-private out, or release with --guide{sizes}.",
    )


_TEXTS = 3
"""Made for each one that a guide keeps."""


class Chat(settings.ModelParameters, use_attribute_docstrings=False):
    """The language model that writes the texts, and on which terms."""

    asks: bool
    """Whether it is asked for texts at all."""
    trained: bool
    """Whether it is the built-in writer, which plain texts are asked of, around phrases or to evolve, unless a prompt
    of one's own asks."""
    seed: int
    """Of its sampling."""
    price_input: float | None
    """Per million tokens, halved for batches; so is the other one."""
    price_output: float | None
    in_a_row: int
    """Batches of which each waits for the one before, at least: one, and one more for each round of an evolution and
    each repair."""

    @classmethod
    def of(cls, config: RunConfig, method: Method, texts: Texts, *, releases: bool, generates: bool) -> Chat:
        """Raises ConfigError if there is none where the method cannot do without, or it has no batches to be asked
        through."""
        needs, rounds = method.needs, method.dump().get("rounds")
        must = (releases and needs.candidates) or (generates and needs.generation_llm == "always")
        if must and config.llm == "none":
            raise ConfigError(
                f"The method {method.name} needs a language model that writes texts, and there is none.",
                "Name one with --llm; it never sees a private text.",
            )
        asks = must or (generates and needs.generation_llm != "never")
        if asks and config.llm_batch and ((preset := preset_of(config.llm)) is None or not preset.batches):
            raise ConfigError(
                f"The language model {config.llm} has no batches.",
                "Leave --llm-batch out, or name a model that has some: openai:NAME.",
            )
        prices = {name: getattr(config, name) for name in ("price_input", "price_output")}
        in_a_row = 1 + (rounds if isinstance(rounds, int) else 0)
        if config.llm_batch:
            prices = {name: price and BATCH_DISCOUNT * price for name, price in prices.items()}
            in_a_row += texts.template.settings.repair
        around = _writes_around_phrases(method, texts.form, texts.record_columns)
        evolves = isinstance(method, EvolutionParameters) and not (texts.form or texts.record_columns)
        trained = config.llm == "builtin" and not config.asks_itself and (around or evolves)
        return config.part(cls, asks=asks, trained=trained, in_a_row=in_a_row, **prices)

    @property
    def waiting(self) -> str:
        """A warning that batches depend on each other."""
        return (
            f"Rounds and repairs wait for the answers before them: {self.in_a_row} batches one after another, each "
            "within a day. Without --llm-batch the answers come at once."
        )


class PublicEmbedder(settings.EmbedderParameters, use_attribute_docstrings=False):
    """The embedder that is named."""

    def load(self, private: Path, form: TextForm = PLAIN) -> Embedder:
        """It keeps its vectors in the run's ``private`` folder, and embeds the contents of texts of this form."""
        found = remembering(catalog.load_embedder(self.embedder), private)
        return ContentsEmbedder(found, form) if form else found


class PrivateModel(settings.PrivateModelParameters, use_attribute_docstrings=False):
    """The local model that is named: reads private text, or is what a Release was tuned on. What a Release says of it
    is not followed: it may come from anybody."""

    def load(self) -> CausalModel:
        return catalog.load_causal(self.private_model or "builtin")


@dataclass(frozen=True)
class Texts:
    """What texts are to be written: the parts that they have, and the columns of those that are JSON records."""

    parameters: WritingParameters
    form: TextForm
    record_columns: tuple[str, ...]

    @cached_property
    def template(self) -> PromptTemplate:
        """The prompts for them. The shipped ones of a document type are about plain texts."""
        named = self.parameters
        return in_form(load_template(named.document_type, file=named.prompt, general=bool(self.form)), self.form)


_WEAK_EPSILON = 20


_ENGLISH = (
    "Hardly a name of the columns and labels is an English word, and the built-in vocabulary is English: if the texts "
    "are in another language too, what comes out is noise whatever the budget. Name a list of their words with "
    "--vocabulary, or let --discover-terms 0.3 find them (docs/languages.md)."
)


class Promise(
    settings.ProtectionParameters,
    settings.LedgerParameters,
    settings.SizeParameters,
    settings.PlanParameters,
    GuideParameters,
    TablesParameters,
    use_attribute_docstrings=False,
):
    """What a release promises, and in which ledger it is charged."""

    dataset: str
    """In the ledger; empty where nothing is charged."""

    @classmethod
    def of(cls, config: RunConfig, method: Method, *, charges: bool) -> Promise:
        """Raises ConfigError if the method cannot keep it, or the dataset has no name."""
        if charges and config.dataset is None and len(config.data) > 1:
            raise ConfigError(
                "Several files are given, and the dataset that they are together has no name for the ledger.",
                "Name it with --dataset NAME.",
            )
        name = config.dataset or (proposed_name(config.data[0]) if len(config.data) == 1 else None)
        promise = config.part(cls, dataset=name or "")
        if not method.private and not promise.insecure_no_noise:
            raise ConfigError(
                f"The method {method.name} protects nobody: it is a yardstick without privacy.",
                "Say so with --insecure-no-noise, which stamps all that it makes NOT PRIVATE.",
            )
        if isinstance(promise.budget, SecretBudget) and not method.protects_secrets:
            raise ConfigError(
                f"The method {method.name} promises (epsilon, delta), not secret protection.",
                "Give --epsilon and --delta, or choose --method sec-pe or aug-pe.",
            )
        if promise.unit.kind == "secret" and promise.unit.recognised_by is None:
            raise ConfigError(
                "No way to recognise secrets given.",
                "Name columns (--secrets), a file (--secrets-file), or detectors (--secret-detectors).",
            )
        if charges and name is None:
            raise ConfigError(
                "This dataset has no name for the ledger, as one file's stem would be.", "Name it with --dataset NAME."
            )
        return promise

    @property
    def warnings(self) -> tuple[str, ...]:
        """Of a budget that promises next to nothing: a large epsilon, or a delta with which publishing each record
        with that probability publishes one or more."""
        budget, expected = self.budget, self.expected_records
        if isinstance(budget, SecretBudget) or self.insecure_no_noise:
            return ()
        warnings = []
        if budget.epsilon >= _WEAK_EPSILON:
            warnings.append(
                f"Epsilon is {as_typed(budget.epsilon)}: the probability of an outcome may be "
                f"{math.exp(min(float(budget.epsilon), 700)):.0e} times that without a given {self.unit.kind}, which "
                "is next to no protection. Choose 10 or less."
            )
        if expected is not None and budget.delta * expected >= 1:
            warnings.append(
                f"Delta is at least 1 over the number of records: publishing each of the {expected} as it is with "
                f"probability {float(budget.delta):.3g} would keep this promise too. Choose a far smaller delta."
            )
        return tuple(warnings)


class Table(settings.DataParameters, use_attribute_docstrings=False):
    """The private table, as it is declared."""

    secrets: tuple[str, ...]
    """Columns that list a record's secrets."""
    secrets_file: str | None
    secret_detectors: tuple[str, ...]

    @classmethod
    def of(cls, config: RunConfig) -> Table:
        """Raises ConfigError if what is declared does not fit together."""
        table, asked = config.part(cls), config.part(TablesParameters)
        if table.secret_detectors:
            make_detectors(table.secret_detectors)
        if table.form:
            table._require_writable()
        columns, crossed = table.all_columns, table.crossed
        if table.label is not None and not (table.labels or crossed or table.labels_from_data):
            raise undeclared(table.label, [column.name for column in columns])
        if not columns and asked != TablesParameters():
            raise ConfigError(
                "Settings of typed columns are given, and no columns.",
                "Declare them with --columns, or leave these out.",
            )
        if crossed and table.label_set.names != cross_labels(crossed):
            raise ConfigError(
                "The label is made of typed columns, and its labels are declared a second time.",
                "Leave --labels out: the columns' own values are the labels.",
            )
        label = None if crossed else table.label
        others = (*text_columns(table.text), *table.record_columns, label, table.owner, *table.secrets)
        require_own_names(columns, others)
        return table

    def open(self, private: Path | None, source: TableSource | None = None) -> Corpus:
        """The corpus.

        Args:
            private: the folder for standard input and for the numbers of bad rows.
            source: the table, in place of the files that are named.
        """
        if source is None and not self.data:
            raise no_data()
        if source is None:
            source = self.data[0] if len(self.data) == 1 else self.data
        return read_corpus(source, **self.reading, secrets=self.secrets, private_dir=private)

    def require_header(self) -> None:
        """See that the files' header, which is public, has the columns that are named, before anything is made."""
        if not self.data or "-" in self.data:
            return
        label = None if self.crossed else self.label
        typed = [column.name for column in (*self.crossed, *self.typed_columns) if column.name not in self.form.told]
        names = (*text_columns(self.text), *self.record_columns, label, self.owner, *self.secrets, *typed)
        reading = Reading(format=self.format, delimiter=self.delimiter, encoding=self.encoding)
        require_header(self.data, [name for name in names if name is not None], reading)

    @property
    def looks_foreign(self) -> bool:
        """Whether fewer than half of the words of what is declared, columns, labels and values, are common English."""
        values = (value for each in self.all_columns if each.kind == "category" for value in each.values)
        named = (*text_columns(self.text), self.label or "", *(each.name for each in self.all_columns))
        told = (*named, *self.label_set.names, *map(str, values))
        words = {word for name in told for word in split_words(name) if word.isalpha() and len(word) > 3}
        return len(words) > 3 and 2 * len(words.intersection(built_in_terms()[:_COMMON])) < len(words)

    def variables(self, labels: LabelSet) -> Variables | None:
        """The label, with these labels, and the typed columns; None without typed columns."""
        label = self.label or (COLUMN if labels.names else None)
        return Variables(label, labels, self.all_columns, self.crossed) if self.columns else None

    def require_no(self, column: str) -> None:
        """Raises ConfigError if a column that is written has this name."""
        typed = (each.name for each in self.all_columns)
        if column in (*text_columns(self.text), *self.record_columns, *typed):
            raise ConfigError(f"A column is called {column!r}, as the one of topics is.", "Rename it in the table.")

    def finder(self, corpus: Corpus) -> SecretFinder:
        """What tells the secrets in its texts."""
        return secret_finder(corpus, file=self.secrets_file, detectors=self.secret_detectors)

    def _require_writable(self) -> None:
        """See that the columns of texts with parts can be written beside those that every table has."""
        if self.record_columns:
            raise ConfigError(
                "The parts of a text are columns of their own, and record columns are one text of JSON.",
                "Give --text A,B,C or --record-columns A,B,C.",
            )
        columns = self.all_columns
        require_told(self.form, columns, crossed=self.crossed)
        if taken := sorted({*text_columns(self.text)}.intersection((TRANSCRIPT, LABEL, PROVENANCE))):
            raise ConfigError(
                f"A text column is called {taken[0]!r}, as a column that is written besides.", "Rename it in the table."
            )
        if TRANSCRIPT in {column.name for column in columns}:
            raise ConfigError(
                f"A typed column is called {TRANSCRIPT!r}, as a column that is written besides.",
                "Rename it in the table.",
            )


_COMMON = 20_000
"""Of the English list, by frequency: among all its 82,500 are "etat" and "rubrik". The labels of eight English tables
had .57 of their words or more among these, those of ten in other languages .40 at most (docs/decisions/081)."""


def _require_utf8(settings: Mapping[str, Any]) -> None:
    """Names of files may hold bytes that are no text, and JSON halves of characters: no statement can name those."""
    for name, value in settings.items():
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise ConfigError(
                f"The setting {name!r} holds characters that UTF-8 cannot write.",
                "Write it, or name the file, in whole characters of UTF-8.",
            ) from None
