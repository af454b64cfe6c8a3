"""One evaluation from start to finish: the synthetic texts compared with the real ones."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from understudy.base.errors import ConfigError, CorpusError, ModelError, ReleaseError
from understudy.base.files import UnreadableText, cannot_read, read_lines
from understudy.corpus import Corpus
from understudy.corpus.secrets.detectors import Detector, make_detectors
from understudy.evaluate.charged import ChargedMetrics, release_metrics
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
    Comparison,
    Made,
    open_beside,
    read_sample,
    reopened,
    unit_vectors,
)
from understudy.methods.registry import method_of
from understudy.methods.shared.decoding.structured import JSONSchema
from understudy.methods.shared.decoding.tuned import TunedModel
from understudy.models import catalog
from understudy.models.embedder_checks import require_embeds_all, require_same_vectors, require_trusted
from understudy.models.types import Embedder
from understudy.models.vectors import remembering
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import Engine
from understudy.release.statement import Statement
from understudy.run.outputs import OutputFolder
from understudy.run.session import SILENT, Listener
from understudy.run.working import embedder_of_workers, embedding_on, open_engine


@dataclass(frozen=True)
class Tables:
    """The texts of an evaluation, and the language model that was released with them.

    Args:
        beside: other tables to train on, by name.
        holdout: real texts that the synthetic ones were not made from.
        recipient: unlabelled texts of the future user of a classifier.
        public: public texts whose strings may be in the synthetic ones.
        schema: a JSON schema that texts should fit.
        detectors: of personal data that may be replayed.
        tuned: the language model in the Release of the synthetic ones, if available.
        promised: epsilon and delta of the synthetic texts, if their folder states them.
    """

    synthetic: Sample
    beside: Mapping[str, Sample]
    holdout: Sample | None
    recipient: Sample | None
    public: tuple[str, ...]
    schema: JSONSchema | None
    detectors: tuple[Detector, ...]
    tuned: TunedModel | None = None
    promised: tuple[float, float] | None = None

    def embedded(self, embedder: Embedder | None, listener: Listener) -> Tables:
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
    return replace(sample, embeddings=unit_vectors(embedder, sample.texts))


def measure(config: EvaluationParameters, real: Sample, tables: Tables, listener: Listener) -> Evaluation:
    families: dict[str, tuple[str, Callable[..., Iterable[MetricValue]]]] = {
        "fidelity": ("Measuring fidelity.", partial(measure_fidelity, schema=tables.schema)),
        "utility": ("", partial(_utility, config=config, tables=tables, listener=listener)),
        "leakage": (
            "Looking for leaks.",
            partial(measure_leakage, public=tables.public, promised=tables.promised, detectors=tables.detectors),
        ),
    }
    chosen = [families[name] for name in FAMILIES if name in config.metrics]
    values: list[MetricValue] = []
    stages = len(chosen) + 1
    for done, (line, measure_family) in enumerate(chosen):
        listener.progress("evaluation", done, stages)
        if line:
            listener.say(line)
        values += measure_family(real, tables.synthetic, holdout=tables.holdout, seed=config.seed)
    listener.progress("evaluation", len(chosen), stages)
    listener.say("Making a map of the texts.")
    overview = make_overview({REAL: real, SYNTHETIC: tables.synthetic}, seed=config.seed)
    listener.progress("evaluation", stages, stages)
    files = {"holdout", "beside", "recipient", "public_texts", "json_schema"}
    settings = config.model_dump(mode="json", exclude=files) | {"holdout": tables.holdout is not None}
    return Evaluation(tuple(values), overview, settings)


def _utility(
    real: Sample,
    synthetic: Sample,
    *,
    holdout: Sample | None,
    seed: int,
    config: EvaluationParameters,
    tables: Tables,
    listener: Listener,
) -> Iterable[MetricValue]:
    train, test = (real, holdout) if holdout is not None else real.halves(seed=seed)
    trained_on = {SYNTHETIC: synthetic, **tables.beside}
    values: list[MetricValue] = []
    if test.labels is not None and synthetic.labels is not None:
        listener.say("Training classifiers.")
        words_only = test.embeddings is None
        kinds = [kind for kind in config.classifiers if not words_only or kind in ("tf-idf", "encoder")]
        values += measure_classifiers(
            train,
            test,
            trained_on,
            kinds=[*kinds, "coral"] if tables.recipient is not None and not words_only else kinds,
            seeds=config.seeds,
            seed=seed,
            recipient=tables.recipient,
            encoder="builtin" if words_only else config.embedder,
        )
    if test.cells is not None and config.column_classifiers:
        listener.say("Training classifiers of columns.")
        values += measure_columns(train, test, trained_on, seed=seed)
    if config.language_model:
        listener.say("Tuning a small language model.")
        values += language.measure_language_model(train, test, trained_on, model=config.local_model, seed=seed)
    if tables.tuned is not None:
        listener.say("Scoring real texts with the released language model.")
        values += language.measure_released_model(test, tables.tuned, seed=seed, trained_on=holdout is None)
    if config.shots and test.labels is not None and train.labels is not None:
        listener.say("Asking a language model with examples.")
        names = sorted({*train.labels, *test.labels})
        pools = {**trained_on, REAL: train}
        values += language.measure_in_context(
            test, pools, label_names=names, model=config.local_model, shots=config.shots, seed=seed
        )
    return values


_FEWEST = 2


def evaluate(real: Corpus, job: Comparison, *, listener: Listener = SILENT) -> Evaluation:
    """Compare the open real table with the synthetic one, release the charged metrics, and keep the results."""
    config, made = job.config, job.made
    with _open_engine(config, job.folder) as engine:
        # 1. Read the other tables and load the models: everything that could fail, before anything is charged.
        wanted = None if config.charge_metrics is None else ChargedMetrics.of(job)
        if wanted is not None:
            config.require_ledger()
            wanted.require(real.schema)
            if "utility" in config.metrics and (config.language_model or config.shots):
                catalog.load_causal(config.local_model)  # only to learn whether it can be loaded
        tables = _read(job, real)
        embedder = _load_embedder(config, job.folder, engine)
        embedding = embedding_on(engine, embedder)
        tables = replace(tables.embedded(embedding, listener), tuned=_tuned_model(config, made, listener))

        # 2. Charge the metrics that may be shared, and release them.
        if wanted is not None:
            release_metrics(wanted, real, tables.synthetic, job, embedder=embedder, engine=engine, listener=listener)

        # 3. Read a sample of the real texts. From here on, nothing may reveal their number if metrics are released.
        listener.say("Reading the real texts.")
        told = listener
        if wanted is not None:
            listener.say("Measuring private metrics: this may take minutes.")
            told = SILENT
        sample = read_sample(real, at_most=config.max_texts, seed=config.seed)
        if enough := len(sample) >= _FEWEST:
            sample = embedded(sample, embedding, told, "real")
        elif wanted is None:
            raise ConfigError("The real table has too few texts to compare with.", "Give one with at least two.")

    # 4. Measure without the workers, which would keep their models in memory, and keep the results.
    evaluation = Evaluation((), None, {"nothing_measured": "too few real texts to compare with"})
    if enough:
        remarks = (_FOREIGN,) if config.embedder == "builtin" and _is_foreign(sample) else ()
        evaluation = replace(measure(config.part(EvaluationParameters), sample, tables, told), remarks=remarks)
    if made.folder is not None:
        evaluation = replace(evaluation, table_sha256=made.sha256)
    if job.folder is not None:
        job.folder.make_private()
        evaluation.save(job.folder.evaluation_file)
        listener.say(f"Wrote the metrics to {job.folder.evaluation_file}: they are not covered by epsilon.")
    return evaluation


_FUNCTION_WORDS = frozenset(("the", "and", "to", "for", "with", "this", "that", "you"))
_FEWEST_WORDS, _LEAST_SHARE, _LOOKED_AT = 200, 0.01, 200
_FOREIGN = (
    "The real texts do not look English, and the built-in embedder knows only English: metrics of embeddings "
    "mean little. Name another embedder (docs/languages.md)."
)


def _is_foreign(sample: Sample) -> bool:
    """Return whether a sample is hardly in English: few of its words are among the most common English ones."""
    words = [word for text in sample.words[:_LOOKED_AT] for word in text]
    return len(words) >= _FEWEST_WORDS and sum(word in _FUNCTION_WORDS for word in words) < _LEAST_SHARE * len(words)


def _read(job: Comparison, real: Corpus) -> Tables:
    """Read all tables except the real one, so that errors appear before anything is embedded or charged."""
    config, made, holdout, recipient = job.config, job.made, job.others["holdout"], job.others["recipient"]

    def sample(table: Corpus) -> Sample:
        return read_sample(table, at_most=config.max_texts, seed=config.seed)

    synthetic = sample(made.table)
    if not len(synthetic):
        raise ConfigError("The synthetic table contains no text.", "Give one with texts.")
    held_out = None
    if holdout is not None:
        try:
            with reopened(real, holdout, config) as other:
                held_out = sample(other)
        except CorpusError as error:
            raise CorpusError(f"The holdout cannot be used. {error.problem}", error.cure) from None
    beside = {name: sample(open_beside(table, made)) for name, table in job.beside.items()}
    if made.file is not None and made.changed:
        raise ConfigError(
            f"The synthetic table {made.file.path.name} changed while it was read.",
            "Stop modifying it, then repeat the command.",
        )
    return Tables(
        synthetic=synthetic,
        beside=beside,
        holdout=held_out,
        recipient=None if recipient is None else sample(open_beside(recipient, made)),
        public=_lines(config.public_texts),
        schema=None if config.json_schema is None else JSONSchema(config.json_schema),
        detectors=make_detectors(config.detectors if "leakage" in config.metrics else ()),
        promised=_promised(made.statement),
    )


def _promised(statement: Statement | None) -> tuple[float, float] | None:
    """Return epsilon and delta of a statement; None if nothing is promised, or for secrets."""
    if statement is None or not statement.private or not isinstance(statement.budget, Budget):
        return None
    return float(statement.budget.epsilon), float(statement.budget.delta)


@contextmanager
def _open_engine(config: EvaluationConfig, folder: OutputFolder | None) -> Iterator[Engine | None]:
    """Yield the engine that embeds the texts, with a scratch folder next to the results; None if this process does."""
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
    """Return the embedder; None if none is used. Checks that it may read the real texts, embeds any text, and is the
    same on all workers. It reuses vectors that the folder's run has stored."""
    if config.embedder == "none":
        return None
    private = None if folder is None else folder.make_private()  # a folder that cannot be made is an error at once
    embedder = catalog.load_embedder(config.embedder)
    require_trusted(embedder, trust_endpoint=config.trust_endpoint)
    require_embeds_all(embedder)
    embedder = embedder_of_workers(config, remembering(embedder, private))
    require_same_vectors(engine, embedder)
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
