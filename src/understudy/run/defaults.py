"""Decisions about options that are not given, from public facts, before any private record is read.

Each decision is reported in one line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.base.errors import ConfigError, ReleaseError
from understudy.ledger.store import begun_settings
from understudy.methods.additions.guide.plan import (
    MOST_EMBEDDED,
    NO_EMBEDDER,
    TYPICAL_RECORDS,
    embedding_rate,
    sample_words,
    why_no_guide,
)
from understudy.methods.additions.topics.plan import A_COUNT, LABELS_SHARE, SPARE, topics_that_pay
from understudy.methods.additions.topics.plan import NAME as TOPICS
from understudy.methods.base import Method
from understudy.methods.registry import load_release
from understudy.methods.shared.vocabulary import FOREIGN_SHARE, TermListParameters, VocabularyParameters
from understudy.models.catalog import embedder_here
from understudy.models.machine import missing_packages
from understudy.privacy.guarantee import SecretBudget
from understudy.run import settings
from understudy.run.outputs import OutputFolder
from understudy.run.parts import Table, no_data, writes_around_phrases
from understudy.run.settings import RunConfig
from understudy.schema.transcript import TextForm
from understudy.text.vocabulary.terms import BUILT_IN

Begun = dict[str, Any]
"""The settings that the run in the output folder began with, which a resumed run keeps; empty if there is none."""


@dataclass(frozen=True)
class TopicsDecision:
    """The number of topics that a run looks for, decided from public facts, or the file of known topics.

    Args:
        line: the decision in words; empty if the user decided.
    """

    count: int | str | None
    line: str = ""

    @classmethod
    def of(cls, config: RunConfig, begun: Begun) -> TopicsDecision:
        """Return the decision: the user's number, else that of the run in the output folder, else as many topics as the
        declared number of records supports.

        Raises ConfigError if there are labels too, or fewer than two topics; ReleaseError if the topics to count again
        are not those of a Release of topics.
        """
        own = config.method == TOPICS
        asked = config.chosen_method.dump()["topics"] if own else config.topics
        if asked is None:
            return cls(None)
        if not own and (config.label is not None or config.labels is not None or config.labels_from_data):
            raise ConfigError(
                "Topics are found in place of labels, but labels are declared.",
                "Leave out --topics; or leave out --label, --labels and --labels-from-data.",
            )
        if isinstance(asked, str) and asked != "auto":
            return cls(_known_topics(Path(asked)))
        if not isinstance(asked, str):
            if not own and asked == 1:
                raise ConfigError("At least two topics are needed.", "Give --topics 2 or more, or leave it out.")
            return cls(asked)
        if begun:
            count = begun.get("topics")
            return cls(count, f"Using {count or 'no'} topics, because this folder's run began that way.")
        budget, expected = config.budget, config.expected_records
        if isinstance(budget, SecretBudget) or not budget.delta:
            return cls(2)  # planning refuses it with its own message
        records = expected or TYPICAL_RECORDS
        share, spare = (1.0 - (config.method_parameters.get("discover_terms") or 0.0), 1.0) if own else _BESIDE
        count = topics_that_pay(budget, share=share, records=records / spare)
        size = f"about {records:,} {config.unit.kind}s"
        size += "" if expected else " (an assumption: declare the size with --expected-records)"
        if count:
            return cls(count, f"Using {count} topics, which suits {size}.")
        why = f"two are too many for {size}."
        return cls(2, f"Using 2 topics, although {why}") if own else cls(None, f"Using no topics: {why}")

    def applied(self, config: RunConfig) -> RunConfig:
        """Return the configuration with this number of topics."""
        if config.method != TOPICS:
            return config.model_copy(update={"topics": self.count})
        return config if self.count is None else config.with_parameters({"topics": self.count})


AFTER_TABLE = ""
"""The output folder of a command that names none."""


def with_folder(config: RunConfig) -> tuple[RunConfig, str]:
    """Return the configuration, with an output folder that is named after the table if its name is empty, and a line
    about it."""
    if config.output != AFTER_TABLE:
        return config, ""
    if not config.data:
        raise no_data()
    name = Path(config.data[0]).name.split(".")[0] if len(config.data) == 1 else ""
    if not is_plain(name):
        dataset = "" if config.dataset else ", and the dataset in the ledger with --dataset NAME"
        raise ConfigError(
            "Standard input, a pattern or several files give no name for the output folder.",
            f"Name the folder with --output FOLDER{dataset}.",
        )
    config = config.model_copy(update={"output": f"{name}-synthetic"})
    return config, f"The results go to {config.output} (--output)."


def is_plain(name: str) -> bool:
    """Return whether a name is a plain folder name: a Release may come from anybody."""
    return name.replace("-", "").replace("_", "").isalnum()


_LARGEST_DELTA = 5
"""The largest delta that a run chooses by itself, as minus its decimal logarithm."""


def with_delta(config: RunConfig, begun: Begun) -> tuple[RunConfig, str]:
    """Return the configuration, with a delta for the declared size if none is given, and a line about it. A run that
    began keeps its delta."""
    if config.epsilon is None or config.delta is not None:
        return config, ""
    delta, expected = begun.get("delta"), config.expected_records
    if delta is None and expected is not None:
        delta = f"1e-{max(len(str(10 * expected - 1)), _LARGEST_DELTA)}"
    line = f"Using delta {delta}, which suits the declared size of the table (--delta sets another)."
    return config.model_copy(update={"delta": delta}), line if delta else ""


_BESIDE = (LABELS_SHARE, SPARE)


def fitted(config: RunConfig, begun: Begun) -> tuple[RunConfig, str]:
    """Return the configuration, with the method's parameters for the declared size if not given, and a line about them.

    A run that began keeps its parameters. The size is rounded, so that a Release reveals little of it, in case it was
    counted. If labels are read from the data, their number is private, and no parameter is derived from it.
    """
    method = config.chosen_method
    records = int(float(f"{config.expected_records or TYPICAL_RECORDS:.2g}"))
    known = not (config.labels_from_data and method.labels_in_parallel)
    found = method.fitted(records, config.label_set.size) if known else {}
    if config.expected_records is None:
        found = {name: begun.get(name) for name in found}
    taken = {name: value if begun.get(name) is None else begun[name] for name, value in found.items()}
    told = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in taken.items() if value is not None)
    return config.with_parameters(taken), told and f"From the declared size: {told}."


@dataclass(frozen=True)
class LanguageDecision:
    """The language of the texts, from public facts, and its consequences for the search for terms.

    Args:
        language: two letters, or ``all-languages`` for any but English; None if unknown.
        config: with stop words of the language, and with the search for terms if owners are protected.
        problem: why this configuration may not be charged, and what to do; None if it may.
    """

    language: str | None
    config: RunConfig
    problem: tuple[str, str] | None = None

    @classmethod
    def of(cls, config: RunConfig, table: Table) -> LanguageDecision:
        """Return the decision: the language that the user states, or English if the table's names are evidence of
        it."""
        method, language = config.chosen_method, language_of(config, table)
        terms = method if isinstance(method, TermListParameters) else None
        known = terms is not None and (terms.vocabulary != BUILT_IN or _counts_known(method))
        if language is None:
            asks = not known and (terms is not None or _reads_english(config, method))
            return cls(None, config, _NOT_STATED if asks else None)
        if language == "en":
            return cls(language, config)
        if config.topics is not None:
            return cls(language, config, _TOPICS_ARE_ENGLISH)
        if terms is None or _counts_known(method):
            return cls(language, config)
        taken: dict[str, Any] = {} if terms.stop_words else {"stop_words": language}
        problem = None
        if not known and getattr(terms, "discover_terms", None) is None:
            finds = isinstance(terms, VocabularyParameters)
            if not finds or method.dump().get("noise") == "laplace" or config.delta is None:
                problem = _ENGLISH_LIST, "Name a public list of their words with --vocabulary FILE."
            elif config.owner:
                taken["discover_terms"] = FOREIGN_SHARE
            else:
                problem = _ENGLISH_LIST, _PROPOSED
        return cls(language, config.with_parameters(taken), problem)

    @property
    def line(self) -> str:
        """Return a line about the terms that are found in the texts and released word for word; empty if none are."""
        found = self.config.method_parameters.get("discover_terms")
        if not found:
            return ""
        unit = "owners" if self.config.owner else "records"
        alone = "" if self.config.owner else f" {_REPEATED}"
        spent = f"{float(found):.0%} of the budget is spent on finding terms that many {unit} share"
        return f"{spent}; they are released word for word.{alone}"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return warnings about other built-in parts for English, if the texts' language is different or unknown."""
        if self.problem:
            return (" ".join(self.problem),)
        if self.language in (None, "en"):
            return ()
        return (_ENGLISH_MODELS,) if _reads_english(self.config, self.config.chosen_method) else ()


def language_of(config: RunConfig, table: Table) -> str | None:
    """Return the stated language, or English if names are evidence of it; None if it is unknown."""
    method = config.chosen_method
    if config.language is None and isinstance(method, TermListParameters) and method.not_english:
        return method.tongue
    if config.language is None and (config.method_parameters.get("vocabulary") == BUILT_IN or table.is_in_english):
        return "en"
    return config.language


def _counts_known(method: Method) -> bool:
    """Return whether the method counts the topics of another Release, so that it needs no terms."""
    topics = getattr(method, "topics", None)
    return isinstance(topics, str) and topics != "auto"


def _reads_english(config: RunConfig, method: Method) -> bool:
    """Return whether a built-in model, which knows only English, reads the private texts."""
    embeds = method.needs.embedder or config.guide or config.topics is not None
    reads = method.needs.private_model and config.private_model in (None, "builtin")
    return bool(reads or (embeds and config.embedder == "builtin"))


_NOT_STATED = (
    "The language of the texts is not declared, and no declared label or value shows that it is English.",
    "Declare it with two letters: --language en, or --language de.",
)
_ENGLISH_LIST = "The built-in list of terms is English, but you declared that the texts are not."
_REPEATED = (
    "Records are protected, not people: the terms can include what one person repeats in many records (--owner COLUMN "
    "protects people)."
)
_PROPOSED = (
    "Find the texts' terms with --discover-terms 0.3; they are released word for word, including what one person "
    "repeats in many records (--owner COLUMN protects people). Or name a public list of words: --vocabulary FILE."
)
_TOPICS_ARE_ENGLISH = (
    "Topics in place of labels are found with English words, but you declared that the texts are not English.",
    "Find them first (`understudy topics --language ...`), or declare labels, and leave topics out.",
)
_ENGLISH_MODELS = (
    "A built-in model reads the private texts, but it knows only English. Name a model for their language (--embedder, "
    "--private-model; docs/languages.md)."
)


def _known_topics(path: Path) -> str:
    """Return the file of a Release of topics."""
    if path.name == str(path) and not path.suffix.strip(".0123456789") and not path.exists():
        raise ConfigError(
            f"Parameter 'topics': expected {A_COUNT}, got {path.name!r:.80}.",
            "To count known topics, name the folder of their run, or the Release file in it.",
        )
    file = OutputFolder(path).release_file(TOPICS) if path.is_dir() else path
    known = load_release(file)
    if known.method != TOPICS or not known.statement.private:
        raise ReleaseError(
            "Only topics from a run of `understudy topics` with noise can be counted again.",
            "Name the folder of such a run, or its Release.",
        )
    return str(file)


@dataclass(frozen=True)
class GuideDecision:
    """Whether a Release gets a guide, decided from public facts, with the reason if the user did not decide."""

    on: bool
    why: str = ""

    @classmethod
    def of(cls, config: RunConfig, table: Table, begun: Begun) -> GuideDecision:
        """Return the decision: the user's, else that of the run in the output folder, else yes if a guide is worth its
        cost."""
        if config.guide is not None:
            return cls(config.guide)
        if "guide" in begun:
            return cls(bool(begun["guide"]))
        method = config.chosen_method
        if not method.guided or config.epsilon is None or config.delta is None:
            return cls(False)
        budget, labels = config.budget, config.label_set.size
        if isinstance(budget, SecretBudget) or not budget.delta or method.dump().get("noise") == "laplace":
            return cls(False)
        if labels < 2:  # without labels there is nothing to distinguish
            return cls(False)
        unit, expected = config.unit, config.expected_records
        if why := why_no_guide(budget, labels=labels, expected_records=expected, unit=unit):
            return cls(False, why)
        if not embedder_here(config.embedder):
            return cls(False, NO_EMBEDDER)
        if config.embedder == "builtin" and language_of(config, table) != "en":
            return cls(False, "the built-in embedder reads English, and the texts are not known to be English")
        rate, why = embedding_rate(expected, unit), "30 % of the budget is spent on choosing better texts"
        if expected and rate < 1:
            size = sample_words(rate, expected, unit)
            why = f"less than {why}. The embedder reads a random sample of the {unit.kind}s at rate {rate:g} ({size})"
        elif not expected:
            why += (
                f". This assumes about {TYPICAL_RECORDS} records; --expected-records also lets the embedder read only "
                f"a sample of tables of more than {MOST_EMBEDDED}"
            )
        return cls(True, why)


def settings_begun(config: RunConfig) -> Begun:
    """Return the settings that the run in the output folder began with; empty if there is none, or it starts over."""
    if config.output is None or config.fresh:
        return {}
    return begun_settings(Path(config.output) / "private", config.part(settings.LedgerParameters).noise_source.origin)


def settled(
    config: RunConfig, begun: Begun, *, labels: int, shares: bool, form: TextForm
) -> tuple[RunConfig, tuple[str, ...]]:
    """Decide how many texts to write, and to use no language model if none can be loaded, where the options leave this
    open.

    A resumed run keeps its decisions, so that existing texts are not replaced by those of another model.

    Returns:
        The configuration with the decisions, and a line about each.
    """
    changes: dict[str, Any] = {}
    lines = []
    method = config.chosen_method
    optional = writes_around_phrases(method, form, config.record_columns)
    if optional and "llm" not in config.model_fields_set and begun.get("llm") in ("builtin", "none"):
        changes["llm"] = begun["llm"]
    elif optional and "llm" not in config.model_fields_set and (missing_packages() or not _in_english(method)):
        changes["llm"] = "none"
        why = _NOT_HERE if _in_english(method) else "writes English"
        lines.append(
            f"The texts will be the phrases themselves: no language model is named (--llm), and the built-in one {why}."
        )
    if config.samples is None and changes.get("llm", config.llm) == "builtin" and optional and config.asks_itself:
        changes["samples"] = _SAMPLES
    said = config.records is not None or config.records_per_label is not None
    if not said and (begun.get("records") or begun.get("records_per_label")):
        changes |= {name: begun.get(name) for name in ("records", "records_per_label")}
    elif not (said or method.needs.holds_texts):
        number = str(_TEXTS_IN_ALL)
        if shares or config.like_private:  # labels get the shares of the released distribution
            changes["records"] = _TEXTS_IN_ALL
        else:
            changes["records_per_label"] = each = max(_TEXTS_IN_ALL // labels, _TEXTS_OF_LABEL)
            number = f"{each} per label" if labels > 1 else str(each)
        lines.append(f"Texts to write: {number}, because no number is given (--records, --records-per-label).")
    return config.model_copy(update=changes), tuple(lines)


_NOT_HERE = "is not on this machine (pip install 'understudy[local]')"


def _in_english(method: Method) -> bool:
    """Return False if the method leaves out the stop words of another language: the built-in parts are English."""
    return not (isinstance(method, TermListParameters) and method.not_english)


_SAMPLES = 4
"""How many answers the built-in model gives to the user's prompt around phrases; the best is used."""
_TEXTS_IN_ALL, _TEXTS_OF_LABEL = 100, 10
"""Texts to write if no number is given: in all, and at least this many per label."""
