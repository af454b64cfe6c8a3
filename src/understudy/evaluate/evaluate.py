"""One evaluation from start to finish: the synthetic texts compared with the real ones."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from understudy.base.errors import ConfigError, CorpusError, ModelError, ReleaseError
from understudy.base.files import UnreadableText, cannot_read, disk_faults, read_lines
from understudy.base.lazy import quiet_libraries
from understudy.corpus import Corpus
from understudy.corpus.read import as_table
from understudy.evaluate.charged import ChargedMetrics, release_metrics
from understudy.evaluate.metrics import require_evaluate
from understudy.evaluate.metrics.fidelity import measure_fidelity
from understudy.evaluate.metrics.leakage import measure_leakage
from understudy.evaluate.metrics.overview import make_overview
from understudy.evaluate.metrics.results import Evaluation
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility import language
from understudy.evaluate.metrics.utility.classifiers import measure_classifiers, measure_columns
from understudy.evaluate.metrics.value import REAL, SYNTHETIC, MetricValue
from understudy.evaluate.parameters import FAMILIES, EvaluationConfig, EvaluationParameters
from understudy.evaluate.tables import (
    Made,
    Table,
    as_the_run_read,
    completed,
    open_beside,
    open_real,
    open_synthetic,
    read_sample,
    reopened,
)
from understudy.ledger.locking import is_in_use
from understudy.ledger.store import FILE, RunStore
from understudy.methods.registry import method_of
from understudy.methods.shared.decoding.structured import JSONSchema
from understudy.methods.shared.decoding.tuned import TunedModel
from understudy.models import catalog
from understudy.models.embedder_checks import require_trusted, trusted_with_texts
from understudy.models.types import Embedder
from understudy.models.vectors import remembering
from understudy.privacy.exact import EPSILONS
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import Engine
from understudy.privacy.sealed import SYSTEM
from understudy.privacy.unit import Unit
from understudy.release.statement import Statement
from understudy.run.door import ledger_of
from understudy.run.generating import Result
from understudy.run.outputs import OutputFolder
from understudy.run.session import SILENT, Listener, remove_leftovers
from understudy.run.settings import LedgerParameters
from understudy.run.working import embedder_of_workers, embedding_on, open_engine, require_alike, statement_of
from understudy.text.vocabulary.words import split_words


@dataclass(frozen=True)
class Tables:
    """The texts of an evaluation, and the language model that was released with them.

    Args:
        beside: other tables to train on, by name.
        holdout: real texts that the synthetic ones were not made from.
        recipient: unlabelled texts of the future user of a classifier.
        public: public texts whose strings may be in the synthetic ones.
        schema: a JSON schema that texts should fit.
        tuned: the language model in the Release of the synthetic ones, if available.
        promised: epsilon and delta of the synthetic texts, if their folder states them.
    """

    synthetic: Sample
    beside: Mapping[str, Sample]
    holdout: Sample | None
    recipient: Sample | None
    public: tuple[str, ...]
    schema: JSONSchema | None
    tuned: TunedModel | None = None
    promised: tuple[float, float] | None = None

    def embedded(self, embedder: Embedder | None, listener: Listener) -> Tables:
        if embedder is None:
            return self
        return replace(
            self,
            synthetic=embedded(self.synthetic, embedder, listener, "synthetic"),
            beside={name: embedded(table, embedder, listener, name) for name, table in self.beside.items()},
            holdout=self.holdout and embedded(self.holdout, embedder, listener, "held out"),
            recipient=self.recipient and embedded(self.recipient, embedder, listener, "the recipient's"),
        )


def embedded(sample: Sample, embedder: Embedder | None, listener: Listener, name: str) -> Sample:
    if embedder is None:
        return sample
    listener.say(f"Embedding {name} texts with {embedder.model_id}.")
    return sample.with_embeddings(embedder.embed(list(sample.texts)))


def measure(config: EvaluationParameters, real: Sample, tables: Tables, listener: Listener) -> Evaluation:
    chosen = [name for name in FAMILIES if name in config.metrics]
    values: list[MetricValue] = []
    stages = len(chosen) + 1
    for done, family in enumerate(chosen):
        listener.progress("evaluation", done, stages)
        values += _of_family(family, config, real, tables, listener)
    listener.progress("evaluation", len(chosen), stages)
    listener.say("Making a map of the texts.")
    overview = make_overview({REAL: real, SYNTHETIC: tables.synthetic}, seed=config.seed)
    listener.progress("evaluation", stages, stages)
    files = {"holdout", "beside", "recipient", "public_texts", "json_schema"}
    settings = config.model_dump(mode="json", exclude=files) | {"holdout": tables.holdout is not None}
    return Evaluation(tuple(values), overview, settings)


def _of_family(
    family: str, config: EvaluationParameters, real: Sample, tables: Tables, listener: Listener
) -> Iterable[MetricValue]:
    if family == "utility":
        return _utility(config, real, tables, listener)
    both: dict[str, Any] = {"holdout": tables.holdout, "seed": config.seed}
    if family == "fidelity":
        listener.say("Measuring fidelity.")
        return measure_fidelity(real, tables.synthetic, schema=tables.schema, **both)
    listener.say("Looking for leaks.")
    both |= {"public": tables.public, "promised": tables.promised}
    return measure_leakage(real, tables.synthetic, detectors=config.detectors, **both)


def _utility(config: EvaluationParameters, real: Sample, tables: Tables, listener: Listener) -> Iterable[MetricValue]:
    train, test = (real, tables.holdout) if tables.holdout is not None else real.halves(seed=config.seed)
    trained_on = {SYNTHETIC: tables.synthetic, **tables.beside}
    values: list[MetricValue] = []
    if test.labels is not None and tables.synthetic.labels is not None:
        listener.say("Training classifiers.")
        words_only = test.embeddings is None
        kinds = [kind for kind in config.classifiers if not words_only or kind in ("tf-idf", "encoder")]
        values += measure_classifiers(
            train,
            test,
            trained_on,
            kinds=[*kinds, "coral"] if tables.recipient is not None and not words_only else kinds,
            seeds=config.seeds,
            seed=config.seed,
            recipient=tables.recipient,
            encoder="builtin" if words_only else config.embedder,
        )
    if test.cells is not None and config.column_classifiers:
        listener.say("Training classifiers of columns.")
        values += measure_columns(train, test, trained_on, seed=config.seed)
    if config.language_model:
        listener.say("Tuning a small language model.")
        values += language.measure_language_model(train, test, trained_on, model=config.local_model, seed=config.seed)
    if tables.tuned is not None:
        listener.say("Scoring real texts with the released language model.")
        values += language.measure_released_model(
            test, tables.tuned, seed=config.seed, trained_on=tables.holdout is None
        )
    if config.shots and test.labels is not None and train.labels is not None:
        listener.say("Asking a language model with examples.")
        names = sorted({*train.labels, *test.labels})
        pools = {**trained_on, REAL: train}
        values += language.measure_in_context(
            test, pools, label_names=names, model=config.local_model, shots=config.shots, seed=config.seed
        )
    return values


_FEWEST = 2


@quiet_libraries()
def evaluate(real: Table, synthetic: Table, *, listener: Listener = SILENT, **options: Any) -> Evaluation:
    """Evaluate as :func:`understudy.evaluate`, also tables in memory for ``holdout``, ``recipient`` and ``beside``."""
    require_evaluate()
    settings, others = _apart(options)
    if not isinstance(real, Corpus | Result):
        settings = {name: value for name, value in as_table(real, settings)[1].items() if name in settings}
    config = EvaluationConfig(**settings)
    with ExitStack() as stack:
        private_dir = None if config.output is None else OutputFolder(Path(config.output)).private
        declared = real.schema if isinstance(real, Corpus) else None
        made = open_synthetic(synthetic, config, declared=declared)
        if declared is None:
            config = completed(as_the_run_read(config, made.folder), made.schema, made.statement)
        folder = OutputFolder(Path(config.output)) if config.output else made.folder
        if folder is not None:
            stack.enter_context(disk_faults(folder.root))
            others_own = made.folder is None or made.folder.root.resolve() != folder.root.resolve()
            if others_own and (folder.shareable / "statement.json").exists():
                raise ConfigError(
                    f"Folder {folder.root.name} contains another run: the metrics would be next to its statement.",
                    "Evaluate that folder, or use another --output.",
                )
        working = stack.enter_context(ExitStack())
        engine = working.enter_context(_open_engine(config, folder))
        if private_dir is not None and not is_in_use(private_dir):
            remove_leftovers(private_dir)
        corpus = open_real(real, config, private_dir)
        if not isinstance(real, Corpus):
            stack.enter_context(corpus)
        _check_columns(corpus, made.table)
        wanted = None if config.charge_metrics is None else _wanted(config, corpus, made)
        tables = _read(config, corpus, made, others)
        made.require_unchanged()
        embedder = _load_embedder(config, folder, engine)
        embedding = embedding_on(engine, embedder)
        tables = replace(tables.embedded(embedding, listener), tuned=_tuned_model(config, made, listener))
        if wanted is not None:
            assert folder is not None, "checked with what is wanted"
            assert made.sha256 is not None, "checked likewise"
            release_metrics(
                wanted,
                corpus,
                tables.synthetic,
                table_sha256=made.sha256,
                folder=folder,
                settings=config.part(LedgerParameters),
                embedder=embedder,
                engine=engine,
                trusted=() if embedder is None else (*trusted_with_texts(embedder), *statement_of(config)),
                fresh=config.fresh,
                listener=listener,
            )
        listener.say("Reading the real texts.")
        told = listener
        if wanted is not None:  # messages must not reveal the number of records
            listener.say("Measuring private metrics: this may take minutes.")
            told = SILENT
        sample = read_sample(corpus, at_most=config.max_texts, seed=config.seed)
        if len(sample) < _FEWEST and wanted is None:
            raise ConfigError("The real table has too few texts to compare with.", "Give one with at least two.")
        if len(sample) < _FEWEST:  # the charged metrics are released: the outcome must not reveal the number of records
            evaluation = Evaluation((), None, {"nothing_measured": "too few real texts to compare with"})
        else:
            sample = embedded(sample, embedding, told, "real")
            working.close()  # idle workers would keep their models in memory
            evaluation = measure(config.part(EvaluationParameters), sample, tables, told)
            if config.embedder == "builtin" and _is_foreign(sample):
                evaluation = replace(evaluation, remarks=(_FOREIGN,))
    if made.folder is not None:
        evaluation = replace(evaluation, table_sha256=made.sha256)
    if folder is not None:
        with disk_faults(folder.root):
            folder.make_private()
            evaluation.save(folder.evaluation_file)
        listener.say(f"Wrote the metrics to {folder.evaluation_file}: they are not covered by epsilon.")
    return evaluation


_FUNCTION_WORDS = frozenset(("the", "and", "to", "for", "with", "this", "that", "you"))
_FEWEST_WORDS, _LEAST_SHARE, _LOOKED_AT = 200, 0.01, 200
_FOREIGN = (
    "The real texts do not look English, and the built-in embedder knows only English: metrics of embeddings "
    "mean little. Name another embedder (docs/languages.md)."
)


def _is_foreign(sample: Sample) -> bool:
    """Return whether hardly any word is among the most common English ones."""
    words = [word for text in sample.texts[:_LOOKED_AT] for word in split_words(text)]
    return len(words) >= _FEWEST_WORDS and sum(word in _FUNCTION_WORDS for word in words) < _LEAST_SHARE * len(words)


@dataclass(frozen=True)
class _Others:
    holdout: Any = None
    recipient: Any = None
    beside: Mapping[str, Any] = field(default_factory=dict)


def _apart(options: Mapping[str, Any]) -> tuple[dict[str, Any], _Others]:
    """Return the settings, with names in place of tables in memory; and these tables."""
    settings = dict(options)
    held = {name: settings.get(name) for name in ("holdout", "recipient")}
    for name, table in held.items():
        if table is not None and not isinstance(table, (str, os.PathLike)):
            settings[name] = f"the {name}"
    beside = settings.get("beside", ())
    if isinstance(beside, Mapping):
        settings["beside"] = [f"{name}=table" for name in beside]
    else:
        pairs = (each.partition("=") for each in EvaluationParameters(beside=beside).beside)
        beside = {name: path for name, _, path in pairs}
    return settings, _Others(**held, beside=beside)


def _read(config: EvaluationConfig, corpus: Corpus, made: Made, others: _Others) -> Tables:
    """Read all tables except the real one, so that errors appear before anything is embedded or charged."""

    def sample(table: Corpus) -> Sample:
        return read_sample(table, at_most=config.max_texts, seed=config.seed)

    synthetic = sample(made.table)
    if not len(synthetic):
        raise ConfigError("The synthetic table contains no text.", "Give one with texts.")
    holdout = None
    if others.holdout is not None:
        try:
            with reopened(corpus, others.holdout, config) as other:
                holdout = sample(other)
        except CorpusError as error:
            raise CorpusError(f"The holdout cannot be used. {error.problem}", error.cure) from None
    return Tables(
        synthetic=synthetic,
        beside={name: sample(open_beside(table, made)) for name, table in others.beside.items()},
        holdout=holdout,
        recipient=None if others.recipient is None else sample(open_beside(others.recipient, made)),
        public=_lines(config.public_texts),
        schema=None if config.json_schema is None else JSONSchema(config.json_schema),
        promised=_promised(made.statement),
    )


def _promised(statement: Statement | None) -> tuple[float, float] | None:
    """Return epsilon and delta of a statement; None if nothing is promised, or for secrets."""
    if statement is None or not statement.private or not isinstance(statement.budget, Budget):
        return None
    return float(statement.budget.epsilon), float(statement.budget.delta)


def _check_columns(real: Corpus, synthetic: Corpus) -> None:
    if real.schema.form != synthetic.schema.form:
        raise ConfigError(
            "The texts of the real and the synthetic table have different parts.",
            "Name the same text columns (--text), roles, acts and tools (--roles, --acts, --tools) for both.",
        )
    if real.schema.typed != synthetic.schema.typed:
        raise ConfigError(
            "The real table and the synthetic one were opened with different typed columns.",
            "Open both with the same columns, or both without.",
        )


def _wanted(config: EvaluationConfig, corpus: Corpus, made: Made) -> ChargedMetrics:
    """Return what to release, and its conditions. Raises ConfigError if it is not allowed, before a text is read."""
    if made.folder is None or made.statement is None:
        raise ConfigError(
            "Charged metrics need the statement of the synthetic texts, but there is none.",
            "Evaluate the output folder of `understudy run` or `generate`.",
        )
    if not made.statement.private and not (config.insecure_no_noise or config.insecure_noise_seed is not None):
        raise ConfigError(
            "The synthetic texts were made without noise, so nothing learnt from them is private.",
            "Evaluate a run with noise.",
        )
    if not made.statement.labels_declared:
        raise ConfigError(
            "The label set of the synthetic texts was read from the data: it is not protected, but would be shown.",
            "Leave --charge-metrics out, or make a run with a declared label set.",
        )
    assert config.charge_metrics is not None
    EPSILONS.of(charge_metrics=config.charge_metrics)
    made.require_of_run()
    dataset = config.dataset or made.statement.dataset
    return ChargedMetrics(
        dataset,
        _unit(config, corpus, made.statement),
        config.charge_metrics,
        [each for each in config.charged_classifiers if each == "tf-idf" or config.embedder != "none"],
        config.seed,
        named=config.dataset is not None,
        ledger=_ledger_of_run(made.folder) if dataset == made.statement.dataset else None,
    )


def _ledger_of_run(folder: OutputFolder) -> str | None:
    """Return the id of the ledger in which the folder's run was charged, if its private half is here and states it."""
    if not os.path.exists(folder.private / FILE):  # noqa: PTH110 - another user's folder may not be readable
        return None
    with RunStore.open(folder.private, noise=SYSTEM) as store:
        return ledger_of(store)


def _unit(config: EvaluationConfig, corpus: Corpus, statement: Statement) -> Unit:
    """Return whom the charged metrics protect: by default, the unit of the synthetic table's promise."""
    unit = statement.unit
    if config.owner:
        unit = Unit("owner", config.max_records_per_owner, config.owner)
    if unit.kind != "secret" and corpus.schema.owner != unit.column:
        raise ConfigError(
            f"The real table has the owner column {corpus.schema.owner!r}, but one {unit.name} is to be protected.",
            "Name the owner column that identifies the protected units, the same for the table and for --owner.",
        )
    return unit


@contextmanager
def _open_engine(config: EvaluationConfig, folder: OutputFolder | None) -> Iterator[Engine | None]:
    """Return where texts are embedded: an engine with a scratch folder next to the results; None for this process."""
    if folder is not None and config.engine != "in-process":
        folder.make_private()
    private = Path(tempfile.gettempdir()) if folder is None else folder.private
    own = private / f"scratch-{secrets.token_hex(8)}"
    scratch = own if config.scratch is None else Path(config.scratch).expanduser()
    try:
        with open_engine(config, scratch.resolve()) as engine:
            yield engine
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _load_embedder(config: EvaluationConfig, folder: OutputFolder | None, engine: Engine | None) -> Embedder | None:
    """Return the embedder, if any: allowed to read the real texts, and equal on all workers. It reuses vectors that the
    folder's run has stored."""
    if config.embedder == "none":
        return None
    embedder = catalog.load_embedder(config.embedder)
    require_trusted(embedder, trust_endpoint=config.trust_endpoint)
    private = None if folder is None else folder.make_private()
    embedder = embedder_of_workers(config, remembering(embedder, private))
    if engine is not None:
        require_alike(engine, embedder)
    return embedder


def _tuned_model(config: EvaluationConfig, made: Made, listener: Listener) -> TunedModel | None:
    """Return the language model in the folder's Release; None if it has none, or its base model is not available."""
    if made.release is None or "utility" not in config.metrics:
        return None
    named = made.release.statement.public_inputs.get("private model")
    if named is None:
        return None
    left_out = "The perplexity of the released language model is left out"
    try:
        method = method_of(made.release)
        if not method.needs.generation_model:
            return None
        base = catalog.load_causal(config.local_model)
    except ReleaseError as error:
        listener.say(f"{left_out}. {error.problem} {error.cure}")
        return None
    except ModelError as error:
        listener.say(f"{left_out}: its base model ({named['source']}) is needed. {error.problem} {error.cure}")
        return None
    if not base.becomes(named.get("sha256")):
        listener.say(f"{left_out}: it was tuned on {named['source']}, not on {base.model_id} (--local-model).")
        return None
    return method.tuned_model(made.release, base)


def _lines(path: str | None) -> tuple[str, ...]:
    if path is None:
        return ()
    try:
        return tuple(read_lines(Path(path)))
    except UnreadableText as error:
        raise cannot_read(f"The public texts {Path(path).name}", error, "Give a UTF-8 text file.") from None
