"""One run from start to finish: plan, charge, release, generate, resume.

The order of things is the privacy argument (architecture, section 4, rule 3):

    plan       from public parameters; the ledger is asked whether it fits, nothing is read
    charge     content fingerprint, then one serialised transaction in the ledger, synced
    draw       each noisy value is stored in private/run.sqlite before anything is done with it
    use        the Release is built from stored values only; on resume they are read, never redrawn
    generate   reads the Release; every answer of a language model is stored under its request
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from understudy.config import DataParameters, RunConfig, run_config
from understudy.corpus import Corpus, canonical, read_corpus
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.labels import declared_labels
from understudy.corpus.read import proposed_name
from understudy.errors import ConfigError, ModelError, ResumeError
from understudy.generation.examples import read_examples, with_phrases
from understudy.generation.parameters import WritingParameters
from understudy.generation.records import SyntheticRecord
from understudy.generation.template import Example, PromptTemplate, load_template
from understudy.generation.writing import Writer
from understudy.methods.protocol import Method, PublicFacts, ReleaseTools
from understudy.methods.registry import make_method, method_class
from understudy.outputs import OutputFolder, synthetic_columns
from understudy.privacy.guarantee import Budget
from understudy.privacy.noise import InsecureNoNoise, InsecureSeededNoise, NoiseSource, SystemNoise
from understudy.privacy.plan import Plan, Receipt
from understudy.release import PublicSchema, Release, load_release
from understudy.statement import Statement

if TYPE_CHECKING:
    from understudy.ledger import Ledger
    from understudy.models.types import ChatModel, Embedder
    from understudy.store import RunStore


@dataclass(frozen=True)
class Listener:
    """Who is told what happens. Lines and numbers are public facts only.

    Args:
        say: takes a line.
        progress: takes (what, done, of how many).
    """

    say: Callable[[str], None] = lambda _line: None
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None


SILENT = Listener()


@dataclass(frozen=True)
class Result:
    """What a run made.

    Args:
        release: the Release.
        records: the synthetic records; none for a release alone.
        missing: records asked for that the language model did not write.
        folder: where it stands, or None for a run without an output folder.
    """

    release: Release
    records: Sequence[SyntheticRecord] = ()
    missing: int = 0
    folder: OutputFolder | None = None

    @property
    def statement(self) -> Statement:
        return self.release.statement

    @cached_property
    def columns(self) -> dict[str, list[object]]:
        """The synthetic table by column: ``text``, the label columns, ``provenance``."""
        return synthetic_columns(self.records, self.release.schema)

    def to_arrow(self) -> Any:
        """The synthetic table as a ``pyarrow.Table``."""
        import pyarrow as pa

        return pa.table(self.columns)


def make_plan(config: RunConfig, *, labels: int | None = None) -> Plan:
    """The plan of a configured run. Reads no private data.

    Args:
        labels: size of the label set; None takes the declared one.

    Raises:
        ConfigError: if the configuration cannot be run.
    """
    method = make_method(config.method, config.method_parameters)
    facts = PublicFacts(config.unit, labels or label_count(config), config.expected_records)
    return method.plan(config.budget, facts)


def release(config: RunConfig, *, corpus: Corpus | None = None, listener: Listener = SILENT) -> Result:
    """Make a Release of private data: the only step that reads them.

    Raises:
        UnderstudyError: of the kind that says what is wrong; see ``docs/errors.md``.
    """
    with _session(config, config.lasting) as session:
        return Result(_release(session, config, corpus, listener), folder=session.visible_folder)


def run(config: RunConfig, *, corpus: Corpus | None = None, listener: Listener = SILENT) -> Result:
    """Release and generate in one go. The same configuration and output folder resume where a killed run was.

    Raises:
        UnderstudyError: of the kind that says what is wrong; see ``docs/errors.md``.
    """
    wanted(config, 1)
    with _session(config, config.lasting) as session:
        writing = _prepare_writing(session, config, listener)  # before anything is charged
        made = _release(session, config, corpus, listener)
        return _generate(session, made, config, writing, listener)


def generate(made: Release | str | Path, *, listener: Listener = SILENT, **options: Any) -> Result:
    """Turn a Release into synthetic records: post-processing, free, any number of times.

    Args:
        made: a Release, or its file.
        options: by their flag names: how many records, the language model, the writing, the output, and those
            parameters of the method that are free (``length``, ``contrast``, ...).

    Raises:
        UnderstudyError: of the kind that says what is wrong; see ``docs/errors.md``.
    """
    made = made if isinstance(made, Release) else load_release(made)
    free = set(method_class(made.method).generation_parameters.model_fields)
    fixed = {name: value for name, value in made.parameters.items() if name != "seed"}
    changed = sorted(name for name in set(options) & set(fixed) - free if options[name] != fixed[name])
    if changed:
        raise ConfigError(
            f"{changed[0]!r} was fixed when the Release was made.", "Leave it out, or make another Release."
        )
    config = run_config({**fixed, **options, "method": made.method})
    wanted(config, 1)
    with _session(config, {**config.lasting, "release": made.digest}) as session:
        writing = _prepare_writing(session, config, listener)
        if session.visible_folder is not None:
            session.visible_folder.write_statement(made.statement)
        return _generate(session, made, config, writing, listener)


def synthesize(
    corpus: Corpus,
    method: Method,
    budget: Budget,
    *,
    llm: str = "embedded",
    records_per_label: int | None = None,
    records: int | None = None,
    output: str | Path | None = None,
    listener: Listener = SILENT,
    **options: Any,
) -> Result:
    """From a private corpus to a synthetic one, from Python (also inside a notebook's event loop).

    Args:
        corpus: from :func:`understudy.read_corpus`.
        method: such as ``DPKPS()``.
        budget: what the run may spend; booked in the ledger.
        llm: the model that writes the texts, or ``none``.
        records_per_label, records: how many synthetic records.
        output: folder for the results; without one nothing is kept and a killed run cannot be resumed.
        options: further parameters by their flag names (``dataset``, ``ledger``, ``max_records_per_owner``,
            ``document_type``, ``base_url``, ``seed``, ...).

    Raises:
        UnderstudyError: of the kind that says what is wrong; see ``docs/errors.md``.
    """
    return run(
        corpus_config(
            corpus,
            method,
            budget,
            llm=llm,
            records_per_label=records_per_label,
            records=records,
            output=None if output is None else str(output),
            **options,
        ),
        corpus=corpus,
        listener=listener,
    )


def corpus_config(corpus: Corpus, method: Method, budget: Budget, **options: Any) -> RunConfig:
    """The configuration of a run on an open corpus."""
    schema = corpus.schema
    return run_config(
        {
            "dataset": corpus.name,
            "text": schema.text,
            "record_columns": schema.record_columns,
            "label": schema.label,
            "labels": (schema.labels or None) if schema.labels_declared else None,
            "labels_from_data": not schema.labels_declared,
            "owner": schema.owner,
            "epsilon": str(budget.epsilon),
            "delta": str(budget.delta),
            "method": method.name,
            **method.dump(),
            **options,
        }
    )


# -- one session in an output folder ---------------------------------------------------------------------------------


_BEGUN, _RELEASED, _GENERATED = "begun", "released", "generated"


@dataclass(frozen=True)
class _Session:
    """An output folder in use, and its store.

    Until it has begun (a charge, or an answer of a language model), its settings may still change.
    """

    folder: OutputFolder
    store: RunStore
    lasting: Mapping[str, Any]
    visible_folder: OutputFolder | None

    @property
    def begun(self) -> bool:
        return _BEGUN in self.store.stages()

    def begin(self, plan: Plan | None = None) -> None:
        """Store the settings, or see that the folder's run has the same."""
        digest = hashlib.sha256(json.dumps(self.lasting, sort_keys=True).encode()).hexdigest()
        charges = [] if plan is None else [charge.to_json() for charge in plan.charges]
        self.store.begin(config_digest=digest, config=dict(self.lasting), plan={"charges": charges})
        self.store.mark(_BEGUN)


@contextmanager
def _session(config: RunConfig, lasting: Mapping[str, Any]) -> Iterator[_Session]:
    """The run's folder, locked; a run that began there with other settings is an error."""
    from understudy.store import RunStore

    with ExitStack() as stack:
        if config.output is None:
            root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="understudy-")))
        else:
            root = Path(config.output)
        folder = OutputFolder(root)
        store = stack.enter_context(RunStore.open(folder.private, fresh=config.fresh))
        folder.make()
        session = _Session(folder, store, lasting, None if config.output is None else folder)
        if session.begun:
            session.begin()
        yield session


# -- the private half -------------------------------------------------------------------------------------------------

_FINGERPRINT = "fingerprint"


def _release(session: _Session, config: RunConfig, corpus: Corpus | None, listener: Listener) -> Release:
    method = make_method(config.method, config.method_parameters)
    file = session.folder.release_file(method.name)
    if _RELEASED in session.store.stages() and file.exists():
        listener.say(f"{file.name} is there already: no private record is read, nothing is charged.")
        return load_release(file)
    noise = _noise(config)
    dataset = config.dataset or (proposed_name(config.data[0]) if len(config.data) == 1 else None)
    if dataset is None:
        raise ConfigError("This dataset has no name for the ledger.", "Name it with --dataset.")
    with ExitStack() as stack:
        ledger = stack.enter_context(_ledger(config)) if noise.private else None
        if ledger is not None:
            early = make_plan(config)
            if ledger.dataset(dataset) is not None:
                ledger.check(dataset, early, run_id=session.store.run_id)  # before any private read
        embedder = _load_embedder(config, method)  # before anything is charged
        if corpus is None:
            corpus = stack.enter_context(_open_corpus(config, session.folder.private))
        if config.owner and corpus.schema.owner is None:
            raise ConfigError("The corpus has no owner column.", "Read the corpus with an owner column.")
        plan = make_plan(config, labels=max(1, len(corpus.labels)))
        listener.say(f"Protecting {plan.unit.describe()} with {plan.budget}.")
        if ledger is not None:
            receipt, hash_key = _charge(ledger, dataset, plan, corpus, session, listener)
        else:
            session.begin(plan)
            listener.say("NOT PRIVATE: noise is off or seeded; nothing is charged and no promise holds.")
            receipt, hash_key = Receipt(session.store.run_id, plan.charges), b"insecure"
        tools = ReleaseTools(
            labels=max(1, len(corpus.labels)),
            receipt=receipt,
            noise=noise,
            keep=session.store.keep_once,
            embedder=embedder,
            seed=config.seed,
        )
        listener.say("Reading the private records.")
        released = method.release(BoundedCorpus(corpus, plan.unit, hash_key), plan, tools)
        schema = corpus.schema
    statement = Statement.of(
        plan,
        public_inputs=released.public_inputs,
        labels_declared=schema.labels_declared,
        dataset=dataset,
        private=noise.private,
        notes=released.notes,
    )
    made = Release(
        method=method.name,
        parameters={**method.dump(), "seed": config.seed},
        schema=PublicSchema(schema.text or "record", schema.label, tuple(schema.labels), tuple(schema.record_columns)),
        statement=statement,
        arrays={name: np.asarray(array) for name, array in released.arrays.items()},
        terms=list(released.terms),
        noise_check=released.noise_check,
    )
    session.folder.write_release(made)
    session.store.mark(_RELEASED)
    for name, value in made.noise_check.items():
        listener.say(f"{name}: {value}")
    return made


def _charge(
    ledger: Ledger, dataset: str, plan: Plan, corpus: Corpus, session: _Session, listener: Listener
) -> tuple[Receipt, bytes]:
    """Identify the data, then check and charge in one transaction."""
    fingerprint = corpus.fingerprint(ledger.fingerprint_key)
    kept = session.store.value(_FINGERPRINT)
    if kept is not None and bytes(kept["sha"]).decode() != fingerprint:
        raise ResumeError(
            "The private data, or the ledger, are not those that this run began with.",
            "Use those it began with, or --fresh to start anew (which charges the budget again).",
        )
    if ledger.dataset(dataset) is None and ledger.known_as(fingerprint) is None:
        ledger.open_dataset(dataset, cap=plan.budget, unit=plan.unit)
        listener.say(f"Dataset {dataset!r} is new: opened with this run's budget {plan.budget} as its cap.")
    ledger.identify(dataset, fingerprint)
    session.begin(plan)
    if kept is None:
        session.store.keep(_FINGERPRINT, {"sha": np.frombuffer(fingerprint.encode(), dtype=np.uint8)})
    receipt = ledger.charge(dataset, plan, run_id=session.store.run_id)
    listener.say(f"The ledger holds this run's charge of {plan.budget} to dataset {dataset!r}.")
    opened = ledger.dataset(dataset)
    assert opened is not None
    return receipt, opened.hash_key


def _noise(config: RunConfig) -> NoiseSource:
    if config.insecure_no_noise:
        return InsecureNoNoise()
    if config.insecure_noise_seed is not None:
        return InsecureSeededNoise(config.insecure_noise_seed)
    return SystemNoise()


@contextmanager
def _ledger(config: RunConfig) -> Iterator[Ledger]:
    from understudy.ledger import Ledger

    with Ledger(config.ledger) as ledger:
        yield ledger


def _open_corpus(config: RunConfig, private: Path) -> Corpus:
    if not config.data:
        raise ConfigError("No private data are named.", "Give them with --data FILE.")
    data: DataParameters = config.part(DataParameters)
    fields = data.model_dump(exclude={"data", "max_records_per_owner"})
    return read_corpus(config.data[0] if len(config.data) == 1 else config.data, **fields, private_dir=private)


def _load_embedder(config: RunConfig, method: Method) -> Embedder | None:
    if not method.needs_embedder:
        return None
    from understudy.models.catalog import load_embedder

    return load_embedder(config.embedder)


def label_count(config: RunConfig) -> int:
    """Size of the declared label set; 1 without labels, or if they are to be read from the data."""
    return 1 if config.labels is None else len(declared_labels(config.labels))


# -- the free half ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Writing:
    """What writes the texts, loaded and checked."""

    parameters: WritingParameters
    template: PromptTemplate
    examples: Sequence[Example]
    chat: ChatModel | None


def _prepare_writing(session: _Session, config: RunConfig, listener: Listener) -> _Writing:
    """Everything that could fail about the writing, before anything is charged."""
    parameters: WritingParameters = config.part(WritingParameters)
    template = load_template(parameters.document_type, file=parameters.prompt)
    examples = _examples(parameters)
    chat = None if config.llm == "none" else _load_chat(config)
    if chat is not None:
        from understudy.models.cached import CachedChat
        from understudy.models.catalog import model_languages

        if config.llm.startswith("openai:") and not session.begun:
            _ping(chat)
        if languages := model_languages(config.llm):
            listener.say(f"The model {config.llm!r} writes {', '.join(languages)} only.")
        chat = CachedChat(chat, session.store.answers)
    return _Writing(parameters, template, examples, chat)


def _generate(session: _Session, made: Release, config: RunConfig, writing: _Writing, listener: Listener) -> Result:
    session.begin()
    counts = wanted(config, max(1, len(made.schema.labels)))
    chat, total = writing.chat, sum(counts)
    writer = Writer(
        chat,
        writing.template,
        writing.parameters,
        labels=[canonical(label) for label in made.schema.labels],
        examples=with_phrases(writing.examples, made.terms, count=writing.parameters.prompt_terms or 5),
        seed=config.seed,
        progress=lambda done, asked: listener.progress("texts", done, asked),
    )
    if chat is not None:
        calls = total * writer.calls_per_seed
        listener.say(f"Asking {chat.model_id} for {total} texts ({calls} calls); it sees released values only.")
    method = make_method(config.method, config.method_parameters)
    records = list(method.generate(made, counts, writer=writer, seed=config.seed))
    written = [record for record in records if record.text]
    if session.visible_folder is not None:
        path = session.visible_folder.write_records(written, made.schema, config.output_format)
        listener.say(f"Wrote {len(written)} synthetic records to {path}.")
    if missing := len(records) - len(written):
        listener.say(f"{missing} texts could not be had. The same command asks again for those that failed.")
    session.store.mark(_GENERATED)
    return Result(made, written, missing, session.visible_folder)


def wanted(config: RunConfig, labels: int) -> list[int]:
    """Synthetic records of each label.

    Raises:
        ConfigError: if it is not exactly one of ``records`` and ``records_per_label`` that says so.
    """
    if (config.records is None) == (config.records_per_label is None):
        raise ConfigError(
            "It is not clear how many records to write.", "Give one of --records-per-label N and --records N."
        )
    if config.records_per_label is not None:
        return [config.records_per_label] * labels
    assert config.records is not None
    return [config.records // labels + (label < config.records % labels) for label in range(labels)]


def _examples(parameters: WritingParameters) -> Sequence[Example]:
    if parameters.examples is None:
        return ()
    if not parameters.examples_are_public:
        raise ConfigError(
            "Example texts in a prompt must not come from the private data.",
            "If they are public, say so with --examples-are-public.",
        )
    return read_examples(parameters.examples)


def _load_chat(config: RunConfig) -> ChatModel:
    from understudy.models.catalog import load_chat

    options: dict[str, Any] = {}
    if config.llm.startswith("openai:"):
        options = {
            "max_concurrency": config.max_concurrency,
            "token_cap": config.token_cap,
            "spending_cap": config.spending_cap,
            "price_per_million_input": config.price_input,
            "price_per_million_output": config.price_output,
        }
    return load_chat(config.llm, base_url=config.base_url, api_key_env=config.api_key_env, seed=config.seed, **options)


def _ping(chat: ChatModel) -> None:
    """One short question, so that an endpoint that does not answer is known before anything is charged."""
    from understudy.models.collect import collect
    from understudy.models.types import ChatRequest, Message

    (answer,) = collect(chat, [ChatRequest((Message("user", "Say ok."),), max_tokens=4, temperature=0.0)])
    if answer.finish_reason == "failed":
        raise ModelError(
            f"The language model does not answer: {answer.error}", "Try it with: understudy models check SPEC"
        )
