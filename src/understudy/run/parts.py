"""The parts of a run, typed and checked when they are made. Each step takes those that it needs."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import PrivateAttr

from understudy.base.errors import ConfigError
from understudy.corpus import Corpus, TableSource, read_corpus
from understudy.corpus.read import proposed_name, require_header
from understudy.corpus.schema import require_told
from understudy.corpus.secrets import SecretFinder, make_detectors, secret_finder
from understudy.corpus.sources import Reading
from understudy.methods.additions.columns.variables import RowsParameters, TablesParameters
from understudy.methods.additions.guide.plan import ChoosingParameters, GuideParameters
from understudy.methods.base import Method
from understudy.models import catalog
from understudy.models.causal import CausalModel
from understudy.models.presets import BATCH_DISCOUNT, preset_of
from understudy.models.types import Embedder
from understudy.models.vectors import ContentsEmbedder, remembering
from understudy.privacy.exact import as_typed
from understudy.privacy.guarantee import SecretBudget
from understudy.run import settings
from understudy.run.settings import MOST_RECORDS, RunConfig
from understudy.schema.columns import Column, cross_labels, require_own_names
from understudy.schema.labels import LabelSet, undeclared
from understudy.schema.transcript import PLAIN, TextForm
from understudy.text.prompts.template import PromptTemplate, WritingParameters, in_form, load_template
from understudy.text.vocabulary.terms import COMMON, built_in_terms
from understudy.text.vocabulary.words import split_words


def writes_around_phrases(method: Method, form: TextForm, record_columns: tuple[str, ...]) -> bool:
    """Return whether texts without parts are written around phrases, which can replace them."""
    return method.needs.generation_llm == "optional" and not (method.needs.candidates or form or record_columns)


def _place(file: str, root: Path) -> str:
    try:
        return file if "://" in file or file == "-" else os.path.relpath(Path(file).resolve(), root)
    except ValueError:  # on another drive
        return str(Path(file).resolve())


# Parts appear in no help or schema; reading their fields' docstrings would double the import time of this file.


class Wanted(
    settings.OutputParameters, GuideParameters, ChoosingParameters, RowsParameters, use_attribute_docstrings=False
):
    """How many synthetic records to write, and with which conditions."""

    @property
    def said(self) -> bool:
        """Return whether the user gave a number of records."""
        return self.records is not None or self.records_per_label is not None

    def counts(self, labels: int) -> list[int]:
        """Return the number of synthetic records of each label."""
        if (self.records is None) == (self.records_per_label is None):
            raise ConfigError(
                "The number of records is given by two options, or by neither.",
                "Give one of --records-per-label N and --records N.",
            )
        if self.records_per_label is not None:
            if (asked := self.records_per_label * labels) > MOST_RECORDS:
                raise ConfigError(
                    f"{asked} synthetic records are requested, but the limit is {MOST_RECORDS}.",
                    "Ask for fewer; `understudy generate` makes more of the same Release with another --seed.",
                )
            return [self.records_per_label] * labels
        assert self.records is not None
        return [self.records // labels + (label < self.records % labels) for label in range(labels)]

    def require(self, method: Method, *, labels: int, additions: Collection[str]) -> None:
        """Raise ConfigError if the requested records cannot be made, before anything is done.

        Args:
            additions: the names of the Release's additions.
        """
        if (self.said or not method.knows_how_many) and (
            sum(self.counts(labels)) * (self.guide_candidates or 1) > MOST_RECORDS
        ):
            raise ConfigError(
                f"More than {MOST_RECORDS} candidates would be made.", "Ask for fewer records or guide_candidates."
            )
        if self.like_private and self.records is None:
            raise ConfigError(
                "With like_private, the labels share a total number of records, but none is given.",
                "Give --records N instead of --records-per-label.",
            )
        asked = "guide" if self.guide else "guide_candidates" if self.guide_candidates else None
        if asked and "guide" not in additions:
            raise ConfigError(
                f"The option {asked!r} needs a Release with a guide, but this one has none.",
                "Leave it out, or release with --guide.",
            )
        if self.where and "columns" not in additions:
            raise ConfigError(
                "A condition on rows is given (--where), but there are no typed columns.",
                "Leave it out, or declare --columns for the release.",
            )
        if self.where and method.needs.rows:
            name = method.name
            raise ConfigError(
                f"The Release of {name} already contains the texts and their rows, so no condition can be applied now.",
                "Leave --where out, and select rows from the synthetic table instead.",
            )


def no_data() -> ConfigError:
    return ConfigError(
        "No private data given.",
        "Name the table with --data SOURCE (a file, a folder or a pattern), for example `understudy run --data "
        "tickets.csv --text message --epsilon 3 --expected-records 5000`; `understudy run --help` lists the options.",
    )


def no_label_counts(method: Method) -> ConfigError:
    """Return the error for labels that should follow counts that a Release does not contain."""
    sizes = ", or --label-sizes noisy" if "label_sizes" in method.dump() else ""
    return ConfigError(
        f"A Release of {method.name} with these settings contains no label counts (like_private).",
        f"Leave --like-private out, or release with --guide{sizes}.",
    )


class Chat(settings.ModelParameters, settings.PlanParameters, use_attribute_docstrings=False):
    """The language model that writes the texts, with its settings; prices are halved for batches."""

    asks: bool
    """Whether it is asked to write texts."""
    trained: bool
    """Whether it is the built-in writer, which writes texts around phrases unless the user gives a prompt."""
    seed: int
    """The seed of its sampling."""
    in_a_row: int
    """Smallest number of batches that wait for each other: one, and one more for each round of an evolution and each
    repair."""

    @classmethod
    def of(cls, config: RunConfig, method: Method, texts: Texts, *, releases: bool, generates: bool) -> Chat:
        """Return the settings of the language model.

        Raises ConfigError if the method needs a model and none is named, or if ``llm_batch`` is set for a model
        without batches."""
        needs, rounds = method.needs, method.dump().get("rounds")
        must = (releases and needs.candidates) or (generates and needs.generation_llm == "always")
        if must and config.llm == "none":
            raise ConfigError(
                f"The method {method.name} needs a language model that writes texts, but none is named.",
                "Name one with --llm; it never sees a private text.",
            )
        asks = must or (generates and needs.generation_llm != "never")
        if asks and config.llm_batch and ((preset := preset_of(config.llm)) is None or not preset.batches):
            raise ConfigError(
                f"The language model {config.llm} has no batch interface.",
                "Leave --llm-batch out, or name a model that has one: openai:NAME.",
            )
        prices = {name: getattr(config, name) for name in ("price_input", "price_output")}
        in_a_row = 1 + (rounds if isinstance(rounds, int) else 0)
        if config.llm_batch:
            prices = {name: price and BATCH_DISCOUNT * price for name, price in prices.items()}
            in_a_row += texts.template.settings.repair
        plain = writes_around_phrases(method, texts.form, texts.record_columns) and not config.asks_itself
        trained = config.llm == "builtin" and plain
        return config.part(cls, asks=asks, trained=trained, in_a_row=in_a_row, **prices)

    @property
    def waiting(self) -> str:
        """Return a warning if batches depend on each other."""
        return (
            f"Rounds and repairs wait for the answers before them: {self.in_a_row} batches one after another, each "
            "within a day. Without --llm-batch the answers come at once."
        )


class PublicEmbedder(settings.EmbedderParameters, use_attribute_docstrings=False):
    """The embedder that the user named."""

    _loaded: dict[Path, Embedder] = PrivateAttr(default_factory=dict)

    def load(self, private: Path, form: TextForm = PLAIN, *, say: Callable[[str], None]) -> Embedder:
        """Return the embedder, loaded once, which stores vectors in ``private`` and embeds the contents of texts of
        this form."""
        if private not in self._loaded:
            say(f"Loading the embedder {self.embedder}.")
            self._loaded[private] = remembering(catalog.load_embedder(self.embedder), private)
        found = self._loaded[private]
        return ContentsEmbedder(found, form) if form else found


class PrivateModel(settings.PrivateModelParameters, use_attribute_docstrings=False):
    """The named local model, which reads private text or is the base of a tuned Release. A Release's own entry for it
    is ignored, because a Release may come from anybody."""

    def load(self) -> CausalModel:
        return catalog.load_causal(self.private_model or "builtin")


@dataclass(frozen=True)
class Texts:
    """What the texts look like: their parts, or the columns of JSON records."""

    parameters: WritingParameters
    form: TextForm
    record_columns: tuple[str, ...]
    foreign: bool = False
    """Whether the user says that they are not English."""

    @cached_property
    def template(self) -> PromptTemplate:
        """Return the prompts for the texts. The shipped ones of a document type are for plain texts."""
        named = self.parameters
        return in_form(load_template(named.document_type, file=named.prompt, general=bool(self.form)), self.form)


_WEAK_EPSILON = 20


class Promise(
    settings.ProtectionParameters,
    settings.LedgerParameters,
    settings.SizeParameters,
    settings.PlanParameters,
    use_attribute_docstrings=False,
):
    """The guarantee of a release, and the ledger that is charged for it."""

    dataset: str
    """The dataset's name in the ledger; empty if nothing is charged."""

    @classmethod
    def of(cls, config: RunConfig, method: Method, *, charges: bool) -> Promise:
        """Return the guarantee. Raises ConfigError if the method cannot give it, or the dataset has no name."""
        if charges and config.dataset is None and len(config.data) > 1:
            raise ConfigError(
                "Several files are given, so the ledger needs a name for the dataset that they form.",
                "Name it with --dataset NAME.",
            )
        name = config.dataset or (proposed_name(config.data[0]) if len(config.data) == 1 else None)
        promise = config.part(cls, dataset=name or "")
        if not method.private and not promise.insecure_no_noise:
            raise ConfigError(
                f"The method {method.name} protects nobody: it is only a baseline for comparison.",
                "Confirm with --insecure-no-noise, which marks all results NOT PRIVATE.",
            )
        if isinstance(promise.budget, SecretBudget) and not method.protects_secrets:
            raise ConfigError(
                f"The method {method.name} guarantees (epsilon, delta), not secret protection.",
                "Give --epsilon and --delta, or choose --method sec-pe or aug-pe.",
            )
        if promise.unit.kind == "secret" and promise.unit.recognised_by is None:
            raise ConfigError(
                "Secrets are to be protected, but no option says how to find them.",
                "Name columns (--secrets), a file (--secrets-file), or detectors (--secret-detectors).",
            )
        if charges and name is None:
            raise ConfigError(
                "The ledger needs a name for the dataset, and there is no single file to name it after.",
                "Name it with --dataset NAME.",
            )
        return promise

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return warnings if the budget promises next to nothing: a large epsilon, or a delta so large that publishing
        each record with that probability would publish one or more."""
        budget, expected = self.budget, self.expected_records
        if isinstance(budget, SecretBudget) or self.insecure_no_noise:
            return ()
        warnings = []
        if budget.epsilon >= _WEAK_EPSILON:
            warnings.append(
                f"Epsilon is {as_typed(budget.epsilon)}: one {self.unit.kind} may change the probability of a result "
                f"by a factor of {math.exp(min(float(budget.epsilon), 700)):.0e}, which "
                "is next to no protection. Choose 10 or less."
            )
        if expected is not None and budget.delta * expected >= 1:
            warnings.append(
                f"Delta is at least 1 over the number of records: publishing each of the {expected} unchanged with "
                f"probability {float(budget.delta):.3g} would keep this promise too. Choose a far smaller delta."
            )
        return tuple(warnings)


class Table(settings.DataParameters, use_attribute_docstrings=False):
    """The private table, as the user declares it."""

    secrets: tuple[str, ...]
    """Columns that list a record's secrets."""
    secrets_file: str | None
    secret_detectors: tuple[str, ...]

    @classmethod
    def of(cls, config: RunConfig, *, look: bool = False) -> Table:
        """Return the table. Raises ConfigError if its declarations contradict each other.

        Args:
            look: check that the header of the files, which is public, has the named columns, before its labels.
        """
        table, asked = config.part(cls), config.part(TablesParameters)
        if table.secret_detectors:
            make_detectors(table.secret_detectors)
        columns, crossed = table.all_columns, table.crossed
        if table.form and table.record_columns:
            raise ConfigError(
                "The parts of a text are separate columns, but record columns are one text in JSON.",
                "Give either --text A,B,C or --record-columns A,B,C.",
            )
        require_told(table.form, columns, crossed=crossed)
        if look:
            table.require_header()
        if table.label is not None and not (table.labels or crossed or table.labels_from_data):
            raise undeclared(table.label, [column.name for column in columns])
        if not columns and asked != TablesParameters():
            raise ConfigError(
                "Settings of typed columns are given, but no columns.",
                "Declare columns with --columns, or leave these settings out.",
            )
        if crossed and table.label_set.names != cross_labels(crossed):
            raise ConfigError(
                "The label is made of typed columns, but its labels are declared as well.",
                "Leave --labels out: the columns' own values are the labels.",
            )
        label = None if crossed else table.label
        others = (*table.text_columns, *table.record_columns, label, table.owner, *table.secrets)
        require_own_names([each for each in columns if not (each.made_up and each.name == table.owner)], others)
        return table

    def open(self, private: Path | None, source: TableSource | None = None) -> Corpus:
        """Open the corpus.

        Args:
            private: the folder for standard input and for the numbers of bad rows.
            source: the table, instead of the named files.
        """
        if source is None and not self.data:
            raise no_data()
        if source is None:
            source = self.data[0] if len(self.data) == 1 else self.data
        return read_corpus(source, **self.reading, secrets=self.secrets, private_dir=private)

    def places(self, root: Path) -> bytes:
        """Return the paths of the table's files relative to ``root``, or their addresses; empty if it has no files."""
        return "\n".join(_place(each, root.resolve()) for each in self.data).encode("utf-8", "surrogatepass")

    def require_header(self) -> None:
        """Raise CorpusError if there are no such files, or their header lacks a named column."""
        if not self.data or "-" in self.data:
            return
        label = None if "*" in (self.label or "") else self.label  # several columns
        typed = [column.name for column in (*self.crossed, *self.typed_columns) if column.name not in self.form.told]
        names = (*self.text_columns, *self.record_columns, label, self.owner, *self.secrets, *typed)
        reading = Reading(format=self.format, delimiter=self.delimiter, encoding=self.encoding)
        require_header(self.data, [name for name in names if name is not None], reading)

    @property
    def is_in_english(self) -> bool:
        """Return :func:`is_in_english` of the declarations."""
        return is_in_english((*self.text_columns, self.label or ""), self.all_columns, self.label_set)

    def finder(self, corpus: Corpus) -> SecretFinder:
        """Return the finder of the secrets in the texts."""
        return secret_finder(corpus, file=self.secrets_file, detectors=self.secret_detectors)


def is_in_english(names: Sequence[str], columns: Sequence[Column], labels: LabelSet) -> bool:
    """Return whether the declarations are evidence of English texts: at least half of the words in the labels and
    values are common English words, and so are half of those in all names together. Column names alone are not
    evidence, because tables in any language have English ones."""
    common = built_in_terms()[:COMMON]
    values = [str(value) for each in columns if each.kind == "category" for value in each.values]
    said = _words((*labels.names, *values))
    told = said | _words((*names, *(each.name for each in columns)))
    return bool(said) and all(2 * len(each.intersection(common)) >= len(each) for each in (said, told))


def _words(names: Iterable[str]) -> set[str]:
    return {word for name in names for word in split_words(name) if word.isalpha() and len(word) > 3}
