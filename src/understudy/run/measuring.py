"""One evaluation from start to finish: what was made, beside the real texts that it was made of."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from understudy.config import LedgerParameters
from understudy.corpus import Corpus
from understudy.errors import ConfigError
from understudy.evaluation.evaluation import Evaluation
from understudy.evaluation.figure import REAL, SYNTHETIC, Figure
from understudy.evaluation.parameters import EvaluationParameters
from understudy.evaluation.reading import read_sample
from understudy.evaluation.sample import Sample
from understudy.files import private_folder
from understudy.models.types import Embedder
from understudy.outputs import OutputFolder
from understudy.privacy.unit import Unit
from understudy.run.charged_metrics import ChargedMetrics, release_metrics
from understudy.run.evaluation_tables import (
    EvaluationConfig,
    Made,
    Table,
    completed,
    open_beside,
    open_real,
    open_synthetic,
    reopened,
)
from understudy.run.listener import SILENT, Listener
from understudy.statement import Statement


def evaluate(
    real: Table | Sequence[str], synthetic: Table, *, listener: Listener = SILENT, **options: Any
) -> Evaluation:
    """Measure a synthetic table against the real one: fidelity, utility, leakage.

    Every number but those released with a charge is private: it is written to ``private/evaluation.json`` of the output
    folder (if there is one), and belongs to the data's holder.

    Args:
        real: the real table: a file, several, or an open corpus.
        synthetic: an output folder of ``understudy run`` or ``generate``, a table, or an open one.
        options: by their flag names (``understudy evaluate --help``). Column names are taken from the output folder's
            Release where it has one and they are not given.

    Raises:
        UnderstudyError: of the kind that says what is wrong; see ``docs/errors.md``.
    """
    from understudy.evaluation.extra import require_evaluate

    require_evaluate()
    config = EvaluationConfig(**options)
    with ExitStack() as stack:
        private_dir = None if config.output is None else Path(config.output) / "private"
        made = open_synthetic(synthetic, config)
        config = completed(config, made, declared=real.schema if isinstance(real, Corpus) else None)
        corpus = open_real(real, config, private_dir)
        if not isinstance(real, Corpus):
            stack.enter_context(corpus)
        folder = OutputFolder(Path(config.output)) if config.output else made.folder
        _check_folder(folder, made)
        embedder = _load_embedder(config.embedder)
        table = _embedded(read_sample(made.table, at_most=config.max_texts, seed=config.seed), embedder, listener)
        if len(table) < 1:
            raise ConfigError("The synthetic table holds no text.", "Give one that does.")
        if config.charge_metrics is not None:
            _charge(config, corpus, table, made, folder, embedder, listener)
        evaluation = _measure(config, corpus, made, table, embedder, listener)
    if folder is not None:
        private_folder(folder.private)
        evaluation.save(folder.evaluation_file)
        listener.say(f"Wrote the figures to {folder.evaluation_file}: they are not covered by epsilon.")
    return evaluation


def _check_folder(folder: OutputFolder | None, made: Made) -> None:
    """See that figures do not come to stand beside another table's statement."""
    if folder is None or not (folder.shareable / "statement.json").exists():
        return
    if made.folder is None or made.folder.root.resolve() != folder.root.resolve():
        raise ConfigError(
            f"The folder {folder.root.name} holds another run, beside whose statement these figures would stand.",
            "Evaluate that folder, or use another --output.",
        )


def _measure(
    config: EvaluationConfig,
    corpus: Corpus,
    made: Made,
    table: Sample,
    embedder: Embedder | None,
    listener: Listener,
) -> Evaluation:
    """Every figure that is asked for."""
    from understudy.evaluation.drawing import draw_picture

    listener.say("Reading the real texts.")
    sample = _embedded(read_sample(corpus, at_most=config.max_texts, seed=config.seed), embedder, listener)
    if len(sample) < 2:
        raise ConfigError("The real table holds too few texts to compare with.", "Give one with two or more.")
    holdout = None
    if config.holdout is not None:
        with reopened(corpus, config.holdout, config) as other:
            holdout = read_sample(other, at_most=config.max_texts, seed=config.seed)
        holdout = _embedded(holdout, embedder, listener)
    figures: list[Figure] = []
    if "fidelity" in config.metrics:
        from understudy.evaluation.fidelity import measure_fidelity

        listener.say("Measuring fidelity.")
        schema = _schema(config.json_schema)
        figures += measure_fidelity(sample, table, holdout=holdout, schema=schema, seed=config.seed)
    if "utility" in config.metrics:
        figures += _utility(config, sample, holdout, table, made, embedder, listener)
    if "leakage" in config.metrics:
        from understudy.evaluation.leakage import measure_leakage

        listener.say("Looking for leaks.")
        figures += measure_leakage(
            sample,
            table,
            holdout=holdout,
            public=_lines(config.public_texts),
            detectors=config.detectors,
            seed=config.seed,
        )
    listener.say("Drawing a map of the texts.")
    picture = draw_picture({"real": sample, SYNTHETIC: table}, seed=config.seed)
    files = {"holdout", "beside", "recipient", "public_texts", "json_schema"}
    settings = config.part(EvaluationParameters).model_dump(mode="json", exclude=files)
    return Evaluation(tuple(figures), picture, settings | {"holdout": holdout is not None})


def _utility(
    config: EvaluationConfig,
    real: Sample,
    holdout: Sample | None,
    table: Sample,
    made: Made,
    embedder: Embedder | None,
    listener: Listener,
) -> list[Figure]:
    """What the texts are good for, tested on held out texts, or on one half of the real ones."""
    train, test = (real, holdout) if holdout is not None else _halves(real, seed=config.seed)
    tables = {SYNTHETIC: table}
    for name, _, path in (each.partition("=") for each in config.beside):
        other = read_sample(open_beside(path, made), at_most=config.max_texts, seed=config.seed)
        tables[name] = _embedded(other, embedder, listener)
    figures: list[Figure] = []
    if test.labels is not None and table.labels is not None:
        from understudy.evaluation.utility.classifiers import measure_classifiers

        listener.say("Training classifiers.")
        kinds = [kind for kind in config.classifiers if embedder is not None or kind in ("tf-idf", "encoder")]
        recipient = None
        if config.recipient is not None and embedder is not None:
            recipient = read_sample(open_beside(config.recipient, made), at_most=config.max_texts, seed=config.seed)
            recipient, kinds = _embedded(recipient, embedder, listener), [*kinds, "coral"]
        figures += measure_classifiers(
            train,
            test,
            tables,
            kinds=kinds,
            seeds=config.seeds,
            seed=config.seed,
            recipient=recipient,
            encoder="embedded" if embedder is None else config.embedder,
        )
    if config.language_model:
        from understudy.evaluation.utility.language import measure_language_model

        listener.say("Tuning a small language model.")
        figures += measure_language_model(train, test, tables, model=config.local_model, seed=config.seed)
    if config.shots and test.labels is not None and train.labels is not None:
        from understudy.evaluation.utility.in_context import measure_in_context

        listener.say("Asking a language model with examples.")
        names = sorted({*train.labels, *test.labels})
        pools = {**tables, REAL: train}
        figures += measure_in_context(
            test, pools, label_names=names, model=config.local_model, shots=config.shots, seed=config.seed
        )
    return figures


def _halves(real: Sample, *, seed: int) -> tuple[Sample, Sample]:
    """Real texts to train on and others to test on, at random."""
    import numpy as np

    order = np.random.default_rng(seed).permutation(len(real))
    return real.take(np.sort(order[: len(real) // 2])), real.take(np.sort(order[len(real) // 2 :]))


def _charge(
    config: EvaluationConfig,
    corpus: Corpus,
    table: Sample,
    made: Made,
    folder: OutputFolder | None,
    embedder: Embedder | None,
    listener: Listener,
) -> None:
    """Release what may be shared."""
    if folder is None or made.folder is None or made.statement is None:
        raise ConfigError(
            "Metrics that are charged stand beside the statement of the synthetic texts, and there is none.",
            "Evaluate the output folder of `understudy run` or `generate`.",
        )
    if not made.statement.private and not (config.insecure_no_noise or config.insecure_noise_seed is not None):
        raise ConfigError(
            "The synthetic texts were made without noise, so nothing that is learnt from them is private.",
            "Evaluate a run with a promise.",
        )
    if not made.statement.labels_declared:
        raise ConfigError(
            "The label set of the synthetic texts was read from the data: it is not protected, and would be named.",
            "Leave --charge-metrics out, or make a run with a declared label set.",
        )
    assert config.charge_metrics is not None
    dataset = config.dataset or made.statement.dataset
    wanted = ChargedMetrics(
        dataset,
        _unit(config, corpus, made.statement),
        config.charge_metrics,
        [each for each in config.charged_classifiers if each == "tf-idf" or embedder is not None],
        config.seed,
    )
    settings = config.part(LedgerParameters)
    release_metrics(
        wanted,
        corpus,
        table,
        folder=folder,
        settings=settings,
        embedder=embedder,
        fresh=config.fresh,
        listener=listener,
    )


def _unit(config: EvaluationConfig, corpus: Corpus, statement: Statement) -> Unit:
    """Whom the charged metrics protect: whom the synthetic table's promise names, if no owner column is given.

    Raises:
        ConfigError: if the real table was read without the column that tells units apart, or with another.
    """
    unit = statement.unit
    if config.owner:
        unit = Unit("owner", config.max_records_per_owner, config.owner)
    if unit.kind != "secret" and corpus.schema.owner != unit.column:
        raise ConfigError(
            f"The real table has the owner column {corpus.schema.owner!r}, and one {unit.name} is protected.",
            "Name the owner column that tells the protected units apart, the same for the table and for --owner.",
        )
    return unit


def _load_embedder(spec: str) -> Embedder | None:
    if spec == "none":
        return None
    from understudy.models.catalog import load_embedder

    return load_embedder(spec)


def _embedded(sample: Sample, embedder: Embedder | None, listener: Listener) -> Sample:
    if embedder is None:
        return sample
    listener.say(f"Embedding {'the' if len(sample) != 1 else 'one'} texts with {embedder.model_id}.")
    return sample.with_embeddings(embedder.embed(list(sample.texts)))


def _lines(path: str | None) -> list[str]:
    if path is None:
        return []
    try:
        return Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        raise ConfigError(f"The public texts {Path(path).name} cannot be read.", "Give a UTF-8 text file.") from None


def _schema(path: str | None) -> Mapping[str, Any] | None:
    if path is None:
        return None
    try:
        found = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError):
        raise ConfigError(f"The JSON schema {Path(path).name} cannot be read.", "Give a UTF-8 JSON file.") from None
    if not isinstance(found, dict):
        raise ConfigError(f"The JSON schema {Path(path).name} is no object.", "Give a JSON Schema.")
    return found
