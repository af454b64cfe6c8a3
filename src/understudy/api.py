"""The Python API: one function per verb of the command line, with typed keywords.

An option has the name, the type and the default of the verb's flag (``docs/configuration.md``). The pydantic models in
:mod:`understudy.run.settings` and related modules describe and check the options; ``options.pyi`` lists those of each
verb for type checkers and editors, and is generated from these models. Every error is an
:class:`~understudy.base.errors.UnderstudyError`, of a kind that ``docs/errors.md`` lists.

In the examples ``rows`` is a private table of two records, ``columns`` names its columns and labels, and ``made`` is
the result of :func:`run`, in the folder ``notes``:

>>> rows = [{"note": "a sore knee", "part": "knee"}, {"note": "a warm hand", "part": "hand"}]
>>> columns = {"text": "note", "label": "part", "labels": ["knee", "hand"], "language": "en"}
"""

from __future__ import annotations

import inspect
import os
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Unpack

from understudy.base.errors import ConfigError, ModelError, UnderstudyWarning, in_keywords
from understudy.base.files import require_local
from understudy.base.parameters import Parameters
from understudy.corpus import Corpus, TableSource, is_frame, read_corpus
from understudy.corpus.read import as_table
from understudy.evaluate.parameters import EvaluationConfig
from understudy.methods.additions.columns.variables import RowsParameters
from understudy.methods.additions.guide.plan import ChoosingParameters
from understudy.methods.base import Method
from understudy.methods.registry import make_method, method_names
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.release import Release
from understudy.run import pipeline
from understudy.run.baseline import BaselineParameters, write_baseline
from understudy.run.check import Checked
from understudy.run.check import check as read_and_check
from understudy.run.forecast import Forecast, forecast
from understudy.run.generating import Result
from understudy.run.outputs import OutputFolder, read_statement
from understudy.run.progress import shown
from understudy.run.session import Listener
from understudy.run.settings import (
    DEFAULT_METHOD,
    RUN_GROUPS,
    WRITING_GROUPS,
    DataParameters,
    EmbedderParameters,
    EngineParameters,
    LedgerParameters,
    OutputParameters,
    ProtectionParameters,
    RunConfig,
    SigningParameters,
    SizeParameters,
    budget_fields,
    run_config,
)
from understudy.schema.columns import Column
from understudy.text.records import SyntheticRecord

if TYPE_CHECKING:
    from understudy.audit.mechanisms.audit import MechanismAudit
    from understudy.audit.result import RunAudit
    from understudy.evaluate.metrics.results import Evaluation
    from understudy.evaluate.tables import Table
    from understudy.options import (
        AuditOptions,
        BaselineOptions,
        EvaluateOptions,
        GenerateOptions,
        PlanOptions,
        RunOptions,
    )
    from understudy.report.reports import ReportPaths
    from understudy.run.signing import Verification
    from understudy.run.topics import FoundTopics

Folder = str | PathLike[str]
"""The path of a folder, or of a file."""
AnyBudget = Budget | SecretBudget


def plan(
    corpus: Corpus | TableSource | Method | AnyBudget | None = None,
    method: Method | AnyBudget | None = None,
    budget: AnyBudget | None = None,
    **options: Unpack[PlanOptions],
) -> Forecast:
    """Forecast what a run would release, cost and buy. Reads no private data.

    Args:
        corpus: the table of the planned run; only its column names are read. May be left out.
        method: such as ``DPKPS()``, the default.
        budget: what the run may spend.
        options: public facts, such as ``label``, ``labels``, ``expected_records`` and ``records_per_label``.

    >>> print(us.plan(us.Budget(3, "1e-6"), labels=["knee", "hand"], expected_records=10_000).plan.usefulness)
    Good: common themes will come through. This says nothing about how the texts read.
    """
    source, chosen, spent = _sorted_out(corpus, method, budget)
    if isinstance(source, Corpus):
        return forecast(corpus_config(source, chosen, spent, options))
    source, given = (None, dict(options)) if source is None else as_table(source, options)
    return forecast(run_config(_settings(chosen, spent, {"data": source, **given} if _is_path(source) else given)))


def check(
    corpus: TableSource,
    method: Method | AnyBudget | None = None,
    budget: AnyBudget | None = None,
    *,
    listener: Listener | None = None,
    **options: Unpack[RunOptions],
) -> Checked:
    """Read a private table to its end as :func:`run` would, and say what is wrong with it. Charges nothing.

    Args:
        corpus: what :func:`understudy.read_corpus` opens: a path, a frame, a Dataset.
        method, budget: of the planned run; with a budget, everything else that can be checked before a run is checked.
        options: as for :func:`run`. With ``output``, ``private/check.json`` counts each fault and says where it is.

    >>> print(us.check(rows, dataset="notes", **columns))
    The table matches its declaration. Nothing was charged.
    """
    if isinstance(corpus, Corpus):
        raise ConfigError("The table is open already.", "Give its file or frame, and its columns as options.")
    _, chosen, spent = _sorted_out(corpus, method, budget)
    corpus, given = as_table(corpus, options)
    told: dict[str, Any] = {"data": corpus, **given} if _is_path(corpus) else given
    config = run_config(_settings(chosen, spent, told))
    with shown(listener) as listening:
        return read_and_check(config, source=None if config.data else corpus, listener=listening)


def run(
    corpus: Corpus | TableSource,
    method: Method | AnyBudget | None = None,
    budget: AnyBudget | None = None,
    *,
    listener: Listener | None = None,
    **options: Unpack[RunOptions],
) -> Result:
    """Make a synthetic corpus from a private one: release, then generate. Also works in a notebook's event loop.

    Args:
        corpus: from :func:`understudy.read_corpus`, or anything that it opens: a path, a frame, a Dataset. In the
            second case the options also name its columns, such as ``text``, ``label`` and ``labels``.
        method: such as ``DPKPS()``, the default.
        budget: what the run may spend, such as ``Budget(3, "1e-6")``; the ledger is charged. With ``Budget(3)``, delta
            is set from ``expected_records``.
        options: such as ``llm``, ``records_per_label`` and ``output``. Without ``output`` nothing is kept, and a run
            that was killed cannot be resumed.

    >>> made = us.run(
    ...     rows, us.Budget(3, "1e-6"), dataset="notes", llm="none", records_per_label=2, output="notes", **columns
    ... )
    >>> made
    <Result of dp-kps: 4 synthetic records, (epsilon=3, delta=1e-06), in notes>
    """
    config, opened = _opened(corpus, method, budget, options)
    with _resumable(listener, config.output, charged=True) as told:
        return pipeline.run(config, corpus=opened, listener=told)


def release(
    corpus: Corpus | TableSource,
    method: Method | AnyBudget | None = None,
    budget: AnyBudget | None = None,
    *,
    resume: bool = False,
    listener: Listener | None = None,
    **options: Unpack[RunOptions],
) -> Release:
    """Make a Release of a private corpus, the only step that reads it; :func:`generate` turns it into texts anywhere.

    Args:
        corpus, method, budget, options: as for :func:`run`.
        resume: like ``release --continue``: use what an earlier release in ``output`` has paid for and not used.

    >>> others = [{"note": "a stiff thumb", "part": "hand"}]
    >>> us.release(others, us.Budget(3, "1e-6"), dataset="others", **columns)
    <Release of dp-kps: dataset 'others', (epsilon=3, delta=1e-06)>
    """
    config, opened = _opened(corpus, method, budget, options)
    with _resumable(listener, config.output, charged=True) as told:
        return pipeline.release(config, corpus=opened, listener=told, resume=resume).release


def generate(
    made: Release | Result | Folder, *, listener: Listener | None = None, **options: Unpack[GenerateOptions]
) -> Result:
    """Turn a Release into synthetic records: post-processing, free, any number of times.

    Args:
        made: a Release, its file, the output folder that contains it, or the result of :func:`run`.
        options: the language model, the writing, the output, and the free parameters of the Release's method, such as
            ``length``.

    >>> us.generate(made, llm="none", records=3)
    <Result of dp-kps: 3 synthetic records, (epsilon=3, delta=1e-06)>
    """
    made = made.release if isinstance(made, Result) else made
    with _resumable(listener, options.get("output")) as told:
        return pipeline.generate(made, listener=told, **options)


def topics(
    corpus: Corpus | TableSource,
    budget: AnyBudget | None = None,
    *,
    listener: Listener | None = None,
    **options: Unpack[RunOptions],
) -> FoundTopics:
    """Find what a private corpus is about: topics with names, terms and noisy sizes, and no text of any record.

    Args:
        corpus, options: as for :func:`run`; with ``output`` the page ``release/topics.html`` is written too. ``topics``
            is how many to look for (default: 20; near twins are merged), or ``auto``.
        budget: what the run may spend; the ledger is charged.

    >>> calls = [{"call": "it does not start"}, {"call": "where is my order"}]
    >>> found = us.topics(calls, us.Budget(3, "1e-6"), text="call", dataset="calls", topics=2, language="en")
    >>> 1 <= len(found.topics) <= 2  # near twins are merged
    True
    """
    from understudy.methods.additions.topics.method import Topics
    from understudy.report.topics import write_topics
    from understudy.run.topics import find_topics

    number = options.pop("topics", None)
    config, opened = _opened(corpus, Topics() if number is None else Topics(topics=number), budget, options)
    with _resumable(listener, config.output, charged=True) as told:
        found = find_topics(config, corpus=opened, listener=told)
        if found.folder is not None:
            write_topics(found, found.folder.topics_file)
    return found


def baseline(*, listener: Listener | None = None, **options: Unpack[BaselineOptions]) -> Sequence[SyntheticRecord]:
    """Let a language model write texts from the labels alone: the baseline that a method must beat.

    No private text is read. The texts have no privacy statement, because they need none.

    Args:
        options: such as ``labels`` (none: texts without labels), ``records_per_label``, ``document_type`` and ``llm``.
            The same call with the same ``output`` requests no text twice.

    >>> [record.label for record in us.baseline(labels=["knee", "hand"], records_per_label=1, llm="builtin")]
    [0, 1]
    """
    with _resumable(listener, options.get("output")) as told:
        return write_baseline(options, listener=told)


def evaluate(
    real: Table, synthetic: Table, *, listener: Listener | None = None, **options: Unpack[EvaluateOptions]
) -> Evaluation:
    """Measure a synthetic table against the real one: fidelity, utility, leakage.

    All numbers except those released with a charge are private: they are written to ``private/evaluation.json`` of the
    output folder (if there is one), for the data's owner only.

    Args:
        real: the real table: a file, several files, a frame, a Dataset, or an open corpus.
        synthetic: the result of :func:`run` or :func:`generate`, their output folder, or a table.
        options: column names that are not given are taken from the output folder of the synthetic table, if there is
            one.

    >>> us.evaluate(rows, made, text="note", label="part", embedder="none", metrics="utility")
    <Evaluation: utility 6>
    """
    from understudy.evaluate.evaluate import evaluate
    from understudy.evaluate.tables import opened

    with shown(listener) as told, opened(real, synthetic, options) as (corpus, job):
        return evaluate(corpus, job, listener=told)


def audit(
    corpus: Corpus | TableSource,
    method: Method | AnyBudget | None = None,
    budget: AnyBudget | None = None,
    *,
    listener: Listener | None = None,
    **options: Unpack[AuditOptions],
) -> RunAudit:
    """Attack a whole run: plant canaries in a copy of the corpus, run the method, and guess which were planted.

    Nothing is charged, so the results are private and must not be shared. The same call resumes an audit.

    Args:
        corpus, method, budget: of the run.
        options: of the run, with its ``output``, and of the audit, such as ``canaries``.

    >>> us.audit(
    ...     rows, us.Budget(3, "1e-6"), llm="none", records_per_label=1, canaries=50, output="audited", **columns
    ... ).verdict
    'consistent'
    """
    from understudy.audit.running import AuditParameters, audit_run

    own: dict[str, Any] = {name: value for name, value in options.items() if name in AuditParameters.model_fields}
    rest = {name: value for name, value in options.items() if name not in own}
    config, opened = _opened(corpus, method, budget, rest)
    with _resumable(listener, config.output) as told:
        return audit_run(config, AuditParameters(**own), corpus=opened, listener=told)


def audit_mechanism(name: str, budget: Budget, *, runs: int = 5000, confidence: float = 0.95) -> MechanismAudit:
    """Run one mechanism on worst-case neighbours, and return a lower bound on its privacy loss. Reads no data.

    Args:
        name: one of those that ``understudy audit mechanism --list`` lists.
        budget: what the mechanism promises.
        runs: how often it runs with the unit, and how often without it.
        confidence: the probability that no bound is too high.

    >>> round(us.audit_mechanism("votes", us.Budget(1, "1e-6"), runs=200).promised, 6)
    1.0
    """
    from understudy.audit.mechanisms.audit import ALL, audit_mechanism, chosen

    if name == ALL:
        raise ConfigError(f"{ALL!r} is not one mechanism.", "Name one; `understudy audit mechanism --list` lists them.")
    (auditable,) = chosen(name)
    return audit_mechanism(auditable, budget, runs=runs, confidence=confidence)


def report(
    *runs: Result | Folder,
    embedder: str | None = None,
    seed: int = 0,
    responsible: str = "",
    ledger: str | None = None,
    sign: Folder | None = None,
) -> list[ReportPaths]:
    """Write the report of each run: one to hand out, and an internal one if anything was measured on private texts.

    Args:
        runs: output folders of :func:`run`, :func:`release` or :func:`generate`, or their results.
        embedder: for the topics and the map. None: the built-in one, or TF-IDF if that is not installed.
        seed: of the map and of the choice of texts shown.
        responsible: the name of the person who answers for the release, for the file.
        ledger: where the runs were booked: the reports say when, and what the dataset had spent. None: the default one.
        sign: a private key that signs each run's shareable files, including the report. An existing signature does not
            cover a new report.

    >>> print(us.report(made)[0].shareable)
    notes/release/report.html
    """
    from understudy.models.catalog import load_embedder
    from understudy.release.signature import Signer
    from understudy.report.reports import write_reports

    signer = None if sign is None else Signer.load(sign)
    folders = [_folder(run) for run in runs]
    for folder in folders:
        read_statement(folder.shareable)  # a wrong path is an error before seconds go into loading a model
    try:
        loaded = load_embedder(embedder or "builtin")
    except ModelError:
        if embedder is not None:
            raise
        loaded = None
        warnings.warn("Built-in embedding model not installed; using TF-IDF.", UnderstudyWarning, stacklevel=2)
    given: dict[str, Any] = {"embedder": loaded, "seed": seed, "responsible": responsible, "ledger": ledger}
    given["signer"] = signer
    return [write_reports(folder, **given) for folder in folders]


def verify(
    path: Result | Folder,
    key: Folder | None = None,
    *,
    ledger: str | None = None,
    max_release_bytes: int | None = None,
) -> Verification:
    """Check the files of a run: hashes, charges, the seal of the Release, and who signed them.

    Args:
        path: an output folder, its shareable folder, a file in that, or the result of :func:`run`.
        key: the public key of the expected signer, received from the signer. None: only check whether the files
            changed since they were signed, not who signed them.
        ledger: where the run may be booked; the statement must say what it booked. None: the default one.
        max_release_bytes: the largest size that a Release may unpack to; None: the limit of :func:`load_release`.

    >>> us.verify(made).ok, us.verify(made).signature
    (True, 'none')
    """
    from understudy.run.signing import verify

    path = _folder(path).root if isinstance(path, Result) else path
    return verify(path, key, ledger=ledger, max_release_bytes=max_release_bytes)


@contextmanager
def _resumable(listener: Listener | None, output: Folder | None, *, charged: bool = False) -> Iterator[Listener]:
    """Wrap the listener; on Ctrl-C, say how to resume."""
    with shown(listener) as told:
        try:
            yield told
        except KeyboardInterrupt as stop:
            if output is not None:
                words = f"Interrupted. The same call resumes: what was made so far is kept in {os.fspath(output)}."
            else:
                lost = " What was charged stays charged." if charged else ""
                words = f"Interrupted. Without an output folder (output=...) nothing is kept.{lost}"
            told.say(words)
            stop.add_note(words)
            raise


def _sorted_out(*given: object) -> tuple[Any, Method | None, AnyBudget | None]:
    """Return the table, the method and the budget of a call that may leave any of them out. Raises ConfigError if
    something else was given as the method."""
    budgets = [each for each in given if isinstance(each, (Budget, SecretBudget))]
    methods = [each for each in given if isinstance(each, Method) and not isinstance(each, type)]
    rest = [each for each in given if each is not None and not any(each is one for one in (*budgets, *methods))]
    names = [each for each in rest[:1] if isinstance(each, str) and each in method_names() and not Path(each).exists()]
    for each in (*names, *(each for each in rest if isinstance(each, type)), *rest[1:], *budgets[1:], *methods[1:]):
        if isinstance(each, Method | Budget | SecretBudget):
            raise ConfigError("Two methods or two budgets are given.", "Give one.")
        what = f"the class {each.__name__}" if isinstance(each, type) else f"of the type {type(each).__name__}"
        raise ConfigError(
            f"The method is {what}, not a method with its parameters.", "Give one such as understudy.DPKPS()."
        )
    return next(iter(rest), None), next(iter(methods), None), next(iter(budgets), None)


def _opened(
    source: Corpus | TableSource,
    method: Method | AnyBudget | None,
    budget: AnyBudget | None,
    options: Mapping[str, Any],
) -> tuple[RunConfig, Corpus | None]:
    """Return the configuration of a run and its corpus; None if the run itself opens the files that it names."""
    source, method, budget = _sorted_out(source, method, budget)
    if isinstance(source, Corpus):
        return corpus_config(source, method, budget, options), source
    source, options = as_table(source, options)
    if _is_path(source):
        return run_config(_settings(method, budget, {"data": source, **options})), None
    config = run_config(_settings(method, budget, options))
    private = None if config.output is None else OutputFolder(Path(config.output)).private
    return config, read_corpus(source, **config.reading, secrets=config.secrets, private_dir=private)


def _is_path(source: object) -> bool:
    """Return whether ``source`` names one or more files, which a run opens itself."""
    if not is_frame(source) and isinstance(source, (list, tuple)):
        return bool(source) and all(isinstance(each, (str, PathLike)) for each in source)
    return isinstance(source, (str, PathLike)) and not is_frame(source)


def export(
    made: Result | Folder,
    *,
    to: Literal["chat", "huggingface", "csv", "jsonl", "parquet"],
    output: Folder,
    document_type: str | None = None,
    system: str | None = None,
    like: str | Mapping[str, Any] | None = None,
    provenance: bool = False,
) -> Path:
    """Write a run's synthetic table in another format. Reads nothing private, and is free.

    Args:
        made: an output folder of :func:`run` or :func:`generate`, or their result if it has one.
        to: ``chat``: JSON lines, each with ``messages`` that ask for a text by its type, label and typed columns, for
            fine-tuning; ``huggingface``: a folder that ``datasets.load_dataset`` reads, with a card made from the
            statement and the metrics that were released with a charge; ``csv``, ``jsonl`` and ``parquet``.
        output: a file or, for ``huggingface``, a new folder; on this machine.
        document_type: the word for a text in chats. None: that of the run's prompts, or ``text`` if there were none.
        system: the system message of chats, if any.
        like, provenance: for files, as in :meth:`Result.save`.

    Returns:
        The path of the output.

    >>> print(us.export(made, to="csv", output="notes.csv"))
    notes.csv
    """
    from understudy.report.export import export_run

    require_local(output)
    folder, path = _folder(made), Path(output)
    written: dict[str, Any] = {"document_type": document_type, "system": system, "like": like}
    export_run(folder, to=to, output=path, provenance=provenance, **written)
    return path


def _folder(made: Result | Folder) -> OutputFolder:
    """Return the output folder of a result, of a folder's path, or of the path of a shareable file in it."""
    if not isinstance(made, Result):
        return OutputFolder.of(made)
    if made.folder is None:
        raise ConfigError("This result has no output folder.", "Name one (output=...) in the call that makes it.")
    return made.folder


def corpus_config(
    corpus: Corpus, method: Method | None, budget: AnyBudget | None, options: Mapping[str, Any]
) -> RunConfig:
    """Return the configuration of a run on an open corpus."""
    schema = corpus.schema
    columns = {
        "dataset": corpus.name,
        "text": None if schema.record_columns else schema.text_columns,
        **schema.form.settings,
        "record_columns": schema.record_columns,
        "label": schema.label,
        "labels": (schema.labels or None) if schema.labels_declared else None,
        "labels_from_data": not schema.labels_declared,
        "owner": schema.owner,
        "secrets": schema.secrets,
        "columns": {column.pop("name"): column for column in map(Column.to_json, schema.declared)} or None,
    }
    return run_config(_settings(method, budget, {**columns, **options}))


def _settings(method: Method | None, budget: AnyBudget | None, options: Mapping[str, Any]) -> dict[str, Any]:
    method = make_method(DEFAULT_METHOD, {}) if method is None else method
    assert isinstance(method, Parameters)
    own = {name: value for name, value in method.dump().items() if name in method.model_fields_set}
    spent = {} if budget is None else budget_fields(budget)
    return {**spent, "method": method.name, **own, **options}


def _name_options(verb: Callable[..., Any], *groups: type[Parameters], without: Collection[str] = ()) -> None:
    """Add a verb's options and their descriptions to its signature and its help."""
    fields = {name: field for group in groups for name, field in group.model_fields.items() if name not in without}
    signature, lines = inspect.signature(verb), []
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=field.get_default(), annotation=Any)
        for name, field in fields.items()
        if name not in signature.parameters
    ]
    verb.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
    for name, field in fields.items():
        default = field.get_default()
        shown = "" if default in (None, ()) else f" Default: {default!r}."
        words = in_keywords(" ".join((field.description or "").replace("``", "").split()))
        line = f"{name}: {words}{shown}"
        lines.append(textwrap.fill(line, 100, initial_indent=" " * 4, subsequent_indent=" " * 8))
    verb.__doc__ = "\n".join([f"{inspect.getdoc(verb)}\n\nOptions:", *lines])


_NO_OPTIONS = ("data", "epsilon", "delta", "secret_prior", "secret_posterior")
for _verb in (check, run, release, plan):
    _name_options(_verb, *RUN_GROUPS, without=_NO_OPTIONS)
_name_options(
    topics,
    *(DataParameters, ProtectionParameters, LedgerParameters, SizeParameters, EmbedderParameters, EngineParameters),
    OutputParameters,
    without=("label", "labels", "labels_from_data", *_NO_OPTIONS),
)
_name_options(
    generate,
    *WRITING_GROUPS,
    *(EmbedderParameters, ChoosingParameters, RowsParameters),
    *(OutputParameters, SigningParameters),
)
_name_options(baseline, *WRITING_GROUPS, OutputParameters, BaselineParameters)
_name_options(evaluate, EvaluationConfig)
