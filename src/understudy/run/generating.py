"""Generate texts from a Release; no private record is read. Each answer of a language model is stored under its
request."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from understudy.base.display import plural
from understudy.base.errors import ConfigError, ModelError, StorageError
from understudy.base.files import require_local
from understudy.base.lazy import library
from understudy.ledger.store.database import MOST_BLANK
from understudy.methods.additions import base as additions
from understudy.methods.additions.base import Use
from understudy.methods.additions.registry import additions_in, label_counts
from understudy.methods.base import Method
from understudy.methods.facts import GenerationTools
from understudy.methods.shared.decoding.structured import JSONSchema, ObjectForm
from understudy.models import catalog
from understudy.models.batches import BatchChat
from understudy.models.collect import CachedChat, collect
from understudy.models.endpoint import PLAIN, EndpointChat
from understudy.models.presets import preset_of
from understudy.models.types import ChatModel
from understudy.release import Release
from understudy.release.statement import NOT_PRIVATE, Statement
from understudy.run.job import FreeJob
from understudy.run.outputs import OutputFolder
from understudy.run.parts import Chat, Texts, no_label_counts
from understudy.run.session import GENERATED, Listener, Session
from understudy.run.settings import ModelParameters
from understudy.run.table import SyntheticTable
from understudy.schema.labels import Label, canonical, in_proportion, like_counts
from understudy.schema.transcript import TURNS
from understudy.text.gate import OPEN, UNREAD, Gate, Reading, language_of
from understudy.text.prompts.template import ALL, CATEGORIES, Prompts, with_phrases
from understudy.text.prompts.writer import FOR_GUIDE, SEEDS, weighed
from understudy.text.records import Rows, SyntheticRecord, Value
from understudy.text.vocabulary.terms import stop_word_languages
from understudy.text.writing import Form, NoText, Writer

AT_ONCE = 64
"""Largest number of concurrent requests to an endpoint."""
_HERE: Mapping[str, int] = {"seeds_trial": 0}
"""Settings for a language model on this machine, which answers many requests in little more time than a few."""
_IN_BATCHES: Mapping[str, int] = {**_HERE, "seeds_first": 200_000, "seeds_at_once": 200_000, "tries": 1}
"""Settings for a language model that is asked through batches, where every further round takes another day."""


@dataclass(frozen=True, repr=False)
class Result:
    """The result of a run.

    Args:
        records: the synthetic records; empty for a release alone.
        missing: how many requested records the language model did not write.
        folder: the output folder; None without one.
        condition: the condition that all rows meet (``where``); empty without one.
        reading: the findings of the checks of the texts.
    """

    release: Release
    records: Sequence[SyntheticRecord] = ()
    missing: int = 0
    folder: OutputFolder | None = None
    condition: str = ""
    reading: Reading = UNREAD

    def __repr__(self) -> str:
        where = "" if self.folder is None else f", in {self.folder.root}"
        return (
            f"<Result of {self.release.method}: {len(self.records)} synthetic records, {self.statement.budget}{where}>"
        )

    @property
    def statement(self) -> Statement:
        """Return the Release's statement, with a note if the table contains only rows that meet a condition."""
        return replace(_with_condition(self.release.statement, self.condition), table=self.verdict)

    @property
    def verdict(self) -> str:
        """Return the findings of the checks, how many phrases the texts keep, and which labels are mostly chance."""
        return _verdict(self.release, self.records, self.reading)

    @cached_property
    def table(self) -> SyntheticTable:
        """Return the synthetic table, with the provenance of its rows."""
        return SyntheticTable.of(self.records, self.release.schema)

    @property
    def columns(self) -> dict[str, list[object]]:
        """Return the synthetic table by column: the columns of the private table, in their order."""
        return self.table.columns

    @property
    def provenance(self) -> dict[str, list[object]]:
        """Return what is known of the rows, by column: ``provenance``, as JSON, and all that is not a table column."""
        return self.table.own

    def to_json(self) -> dict[str, Any]:
        """Return a description of the result, without the texts."""
        return {
            "method": self.release.method,
            "dataset": self.statement.dataset,
            "unit": self.statement.unit.to_json(),
            "budget": self.statement.budget.to_json(),
            "private": self.statement.private,
            "records": len(self.records),
            "missing": self.missing,
            **({"checks": self.reading.to_json()} if self.reading.texts else {}),
            "verdict": self.verdict,
        }

    def to_arrow(self) -> Any:
        """Return the synthetic table as a ``pyarrow.Table``."""
        return self.table.to_arrow()

    def to_pandas(self) -> Any:
        """Return the synthetic table as a ``pandas.DataFrame``, with the dtypes that the private one states. Pandas
        chooses the dtypes that depend on values (``int64``, ``float64``, ``bool``, ``object``) again."""
        library("pandas")
        return self.to_arrow().to_pandas(date_as_object=False)

    def to_polars(self) -> Any:
        """Return the synthetic table as a ``polars.DataFrame``."""
        return library("polars").from_arrow(self.to_arrow())

    def to_dataset(self) -> Any:
        """Return the synthetic table as a ``datasets.Dataset`` of Hugging Face."""
        return library("datasets").Dataset(self.to_arrow())

    def save(
        self,
        path: str | PathLike[str],
        *,
        keep_formulas: bool = False,
        like: str | Mapping[str, Any] | None = None,
        provenance: bool = False,
    ) -> None:
        """Write the synthetic table to a file on this machine.

        Args:
            path: ends in ``.parquet``, ``.csv``, ``.tsv`` or ``.jsonl``; an existing file is replaced.
            keep_formulas: in CSV, write all cells unchanged, even those that a spreadsheet would run.
            like: how a text file is written: ``source`` (as the private table), ``plain`` (UTF-8, commas, ISO dates),
                or options that read such a file, ``{"delimiter": ";", "encoding": "cp1252", "formats": "de"}``.
                None: like the private table if that is such a file too, else plain.
            provenance: add the provenance of each row as further columns. A table that is NOT PRIVATE always has them,
                unless the file's name says not-private.

        Raises ConfigError if the name has another ending or is an address, StorageError if it cannot be written.
        """
        require_local(path)
        try:
            stamped = not self.statement.private
            self.table.write(path, keep_formulas=keep_formulas, like=like, provenance=provenance, stamped=stamped)
        except OSError as error:
            raise StorageError(
                f"{Path(path).name!r} cannot be written ({error.strerror}).",
                "Check that its folder exists, is writable and is not full.",
            ) from None


def _with_condition(statement: Statement, condition: str) -> Statement:
    if not condition:
        return statement
    note = f"The synthetic table contains only rows that meet a condition: {condition}."
    return replace(statement, notes=(*statement.notes, note))


_REAL = "share_sampled_above_3_std"
_NAMED = 5  # labels, at most


def _verdict(made: Release, records: Sequence[SyntheticRecord], reading: Reading) -> str:
    said = [reading.sentence]
    if len(records) < reading.texts - reading.failed:
        said.append(f"{plural(len(records), 'text')} of them were chosen for the table.")
    if reading.texts:
        said.append("Whether they make sense, only a reader can tell.")
    asked = [each.provenance for each in records if each.provenance.get("phrases") and "kept" in each.provenance]
    if phrases := sum(len(each["phrases"]) for each in asked):
        said.append(f"The texts keep {sum(len(each['kept']) for each in asked) / phrases:.0%} of their phrases.")
    shares = next((entry.value for entry in made.noise_check.entries if entry.name == _REAL), ())
    names = [canonical(label) for label in made.schema.labels]
    if isinstance(shares, tuple) and len(shares) == len(names):
        written = {each.label for each in records}
        thin = [name for label, name in enumerate(names) if label in written and shares[label] < 0.5]
        more = f" and {len(thin) - _NAMED} more" if len(thin) > _NAMED else ""
        if thin:
            said.append(f"Weak: most phrases are due to chance for {', '.join(thin[:_NAMED])}{more}.")
    return " ".join(filter(None, said))


_LONG = 30  # seconds that are worth a message
_OTHER = 1.6  # factor by which an estimate has grown that is worth another one


@dataclass
class Duration:
    """Estimates how long a local model will write, at the current load of this machine."""

    say: Callable[[str], None] = lambda _line: None
    answers_each: int = 1  # per text
    texts: int = 0  # that are written now
    most: int = 0  # answers that were requested together
    said: float = 0.0

    def begin(self, done: int, asked: int) -> None:
        """Begin the estimate: ``done`` of ``asked`` texts need no further answer."""
        if not (done and self.texts):
            self.texts = asked - done

    def paced(self, seconds: float, answers: int) -> None:
        """Record that an answer takes ``seconds`` if ``answers`` are requested together; with fewer, each takes
        longer."""
        self.most, whole = max(self.most, answers), self.texts * self.answers_each * seconds
        if answers == self.most and whole > max(_LONG, _OTHER * self.said):
            self.said = whole
            took = f"{round(whole, -1):.0f} s" if whole < 100 else f"{whole / 60:.0f} min"
            self.say(f"At the present speed of this machine, {plural(self.texts, 'text')} take about {took} in all.")


@dataclass(frozen=True)
class Writing:
    """Everything that writes the texts (language model, prompts, embedder, checks), loaded and checked."""

    prompts: Prompts
    chat: ChatModel | None
    named: Chat
    form: Form | None = None
    duration: Duration = field(default_factory=Duration)

    @property
    def prompted(self) -> str | Sequence[str]:
        """Return the columns of a row that prompts show. The built-in writer, which was trained without columns, is
        shown no numbers or dates, because it would copy them. The label is never shown twice."""
        asked = self.prompts.template.settings.prompt_columns
        return CATEGORIES if self.named.trained and asked == ALL else asked

    @property
    def selects(self) -> bool:
        """Return whether more texts are written than are wanted, as the built-in writer says how much sense each makes.
        If the user states a number of answers, each text has so many instead."""
        return self.named.trained and self.chat is not None and self.prompts.parameters.samples is None

    def writer(
        self,
        labels: Sequence[Label],
        listener: Listener,
        *,
        known: Sequence[str] = (),
        rows: Rows | None = None,
        gate: Gate = OPEN,
    ) -> Writer:
        """Return the prompting loop of one run.

        Args:
            known: phrases that the prompt's public examples are searched for.
            rows: typed columns of the texts, which prompts show.
        """

        def progress(done: int, asked: int) -> None:
            self.duration.begin(done, asked)
            listener.progress("texts", done, asked)

        template = self.prompts.template
        if known and not all(each.phrases for each in template.examples):
            examples = with_phrases(template.examples, known, count=template.settings.prompt_terms or 5)
            template = template.model_copy(update={"examples": tuple(examples)})
        parameters = self.prompts.parameters
        if self.named.trained and rows is not None:  # each row has one seed
            parameters = parameters.around_one_seed()
        return Writer(
            self.chat,
            template,
            parameters,
            labels=[canonical(label) for label in labels],
            seed=self.named.seed,
            progress=progress,
            rows=rows,
            form=self.form,
            trained=self.named.trained,
            gate=gate,
            **(_IN_BATCHES if self.named.llm_batch else {} if preset_of(self.named.llm) else _HERE),
        )


def prepare_writing(session: Session, method: Method, texts: Texts, named: Chat, listener: Listener) -> Writing:
    """Load and check everything that the writing needs and that could fail, before anything is charged."""
    if named.asks and texts.form and named.llm == "none":
        raise ConfigError(
            "Dialogues and texts of several columns need a language model, but none is named.",
            "Name one with --llm; phrases alone cannot form such texts.",
        )
    form = _form(texts, method, named)
    prompts = Prompts(texts.parameters, texts.template, texts.form)
    duration = Duration(listener.say, texts.parameters.answers(trained=named.trained))
    chat = load_chat(named, listener, duration.paced) if named.asks and named.llm != "none" else None
    if chat is not None:
        if preset_of(named.llm) is not None and not session.begun:
            asked = load_chat(named, listener)  # a separate one: this short prompt would mislead the caps' estimates
            _ping(asked, named)
            if named.llm_batch:  # learning the endpoint's dialect by batches would take a day
                assert isinstance(chat, EndpointChat)
                assert isinstance(asked, EndpointChat)
                chat.dialect.limit_name = asked.dialect.limit_name
                chat.dialect.left_out |= asked.dialect.left_out
        if texts.foreign and (note := catalog.language_note(named.llm)):
            listener.say(note)
        if named.llm_batch:
            assert isinstance(chat, EndpointChat)
            if named.in_a_row > 1:
                listener.say(named.waiting)
            chat = BatchChat(endpoint=chat, jobs=session.store.jobs, say=listener.say)
        elif waiting := session.store.jobs.waiting():
            listener.say(
                f"Batches with {plural(waiting, 'request')} are waiting. Without --llm-batch these are sent, and paid "
                "for, again."
            )
        chat = CachedChat(session.witness.chat(chat), session.store.answers)
    return Writing(prompts, chat, named, form, duration)


def require_room(writing: Writing, method: Method, planned: Release, details: str, listener: Listener) -> None:
    """Raise ConfigError unless the longest public prompts leave room for an answer in a local model's context window.

    Args:
        details: typed columns' values in words, as long as a prompt may show them.
    """
    writer = writing.writer(planned.schema.labels, listener)
    room: Any = getattr(writer.chat, "room", None)  # an endpoint's window is unknown
    asked = method.longest_prompts(planned, writer) if room else ()
    if any(room(writer.template.with_details(each, details)) < 1 for each in asked):
        raise ConfigError(
            f"A prompt may fill the context window of {writing.named.llm} and leave no room for an answer.",
            "Name a model with a larger window (--llm), or show less (fewer examples per prompt, --max-words, ...).",
        )


def _form(texts: Texts, method: Method, named: Chat) -> Form | None:
    """Return the form that every text must have."""
    parameters, parts = texts.parameters, texts.form
    if parts and parameters.json_schema is not None:
        raise ConfigError(
            "A JSON schema cannot describe dialogues or texts of several columns.",
            "Leave --json-schema out: such texts are written as columns.",
        )
    if parts:

        def cut(text: str, told: Mapping[str, Value]) -> str:
            turns = told.get(TURNS)
            return parts.shortened(text, turns) if text and isinstance(turns, int) else text

        return Form(
            "a dialogue" if parts.roles else "a row of texts",
            lambda answer: parts.read(answer.text, cut=answer.finish_reason == "length"),
            change=parts.each,
            cut=cut,
            fits=lambda text, told: all(parts.tell(text).get(name) == value for name, value in told.items()),
        )
    if parameters.json_schema is None:
        return None
    if method.needs.generation_llm != "optional" or method.needs.candidates or named.llm == "none":
        raise ConfigError(
            "A JSON schema is given, but no language model is prompted with phrases.",
            "Leave --json-schema out; or use the method dp-kps with an --llm, or private-prediction or few-shot with "
            "--record-columns.",
        )
    schema = JSONSchema(parameters.json_schema)
    form = ObjectForm(schema)
    return Form("JSON that fits the schema", lambda answer: form.read(answer.text), form.example, schema=schema.text)


def write_texts(
    session: Session,
    made: Release,
    job: FreeJob,
    writing: Writing,
    listener: Listener,
    *,
    capped: bool = False,
    clear: bool = False,
) -> Result:
    """Write the wanted synthetic records, to the output folder if there is one.

    Args:
        capped: if the Release itself contains fewer texts than wanted, write those.
        clear: replace everything that an earlier run wrote to the output folder by the Release's statement.
    """
    # 1. Ask the Release's additions how they take part, and how many texts of each label are made.
    method, wanted = job.method, job.wanted
    uses = _uses(made, job, writing, session.folder.private, listener)
    held = method.available(made)
    asked = _counts(made, job, uses, held, listener, capped=capped)
    counts = asked
    for use in uses:
        use.require(asked)
        counts = use.candidates(counts, held)
    rows = next((use.rows for use in uses if use.rows is not None), None)
    if writing.selects and rows is None and held is None and counts == asked:
        uses = [*uses, sensible := _Sensible(guided=any(use.chooser is not None for use in uses))]
        counts = sensible.candidates(counts, held)
    chooser = next((use.chooser for use in uses if use.chooser is not None), None)
    gate = Gate(_languages(made, writing), job.chat.accept_all, _check(job.chat))
    writer = writing.writer(made.schema.labels, listener, known=made.terms, rows=rows, gate=gate)

    # 2. Load the models, and report what they will be asked.
    _tell_asked(method, writing, sum(counts), made, listener)
    embedder = None
    if method.needs.generation_embedder:
        embedder = job.embedder.load(session.folder.private, made.schema.form, say=listener.say)
    model = job.private_model.load() if method.needs.generation_model else None

    # 3. Begin: from here on the folder belongs to this run.
    condition = ", ".join(filter(None, (use.condition for use in uses)))
    origin = _origin(made, method, writing, condition)
    _begin(session, made, condition, listener, clear=clear)
    for use in uses:
        for line in use.lines():
            listener.say(line)

    # 4. Write, choose and complete the texts, with their provenance.
    tools = GenerationTools(writer, embedder, model, chooser, wanted.seed, say=listener.say, progress=listener.progress)
    try:
        records = [
            replace(record, provenance={**record.provenance, **origin})
            for record in method.generate(made, counts, tools=tools)
        ]
    except NoText as error:
        raise NoText(error.problem, _without_text(session, job)) from None
    records, reading = _read(records, writing, writer, method)
    for use in reversed(uses):
        records = use.chosen(records, asked)
    written = [record for record in records if record.text]
    for use in reversed(uses):
        written = use.completed(written)
    if records and not written and writing.chat is not None and not method.needs.candidates:
        raise NoText("The language model wrote no text at all.", _without_text(session, job))
    if records and not written and method.needs.generation_model and clear:  # else the run was charged for the model
        raise NoText(
            "The tuned model wrote no text that can be used.",
            "Ask for longer texts (--max-tokens), sample more carefully (--llm-temperature), or keep unfinished ones "
            "(--unfinished keep).",
        )

    # 5. Store them.
    missing = len(records) - len(written)
    result = Result(made, written, missing, session.visible_folder, condition, reading)
    if session.visible_folder is not None:
        paths = session.visible_folder.write_records(written, made.schema, provenance=wanted.provenance)
        session.visible_folder.write_statement(result.statement, labelled=made.schema.label is not None)
        listener.say(f"Wrote {len(written)} synthetic records to {' and '.join(map(str, paths))}.")
    if result.verdict:
        listener.say(result.verdict)
    left_out = 0 if reading.kept else reading.failed
    if missing > left_out:
        listener.say(f"{plural(missing, 'text')} could not be generated. {_cure_of_missing(method, writing)}")
    session.store.mark(GENERATED)
    return result


@dataclass(frozen=True, kw_only=True)
class _Sensible(Use):
    """Has more texts written than are wanted, and keeps those that make the most sense to their writer.

    Args:
        guided: whether a guide chooses among what is kept, which is then more than is wanted.
    """

    guided: bool

    def candidates(self, counts: Sequence[int], _held: Sequence[int] | None) -> list[int]:
        return [SEEDS * count for count in counts]

    def lines(self) -> Sequence[str]:
        then = ", and among these the guide chooses" if self.guided else ""
        return (f"More texts are written than requested; those that make the most sense to the model are kept{then}.",)

    def chosen(self, records: Sequence[SyntheticRecord], counts: Sequence[int]) -> list[SyntheticRecord]:
        best = sorted(records, key=_worth, reverse=True)
        kept = set[int]()
        for label, count in enumerate(counts):
            most = max(count, math.ceil(FOR_GUIDE * SEEDS * count)) if self.guided else count
            kept |= set(islice((id(record) for record in best if record.label == label), most))
        return [record for record in records if id(record) in kept]


def _worth(record: SyntheticRecord) -> tuple[bool, float]:
    told = record.provenance
    kept, asked = len(told.get("kept", ())), len(told.get("phrases", ()))
    chance = min(max(told.get("sense", 0.5), _LEAST), 1 - _LEAST)
    return bool(record.text), weighed(math.log(chance / (1 - chance)), share=kept / max(asked, 1), kept=kept)


_LEAST = 0.005  # provenance has two decimals


def _uses(made: Release, job: FreeJob, writing: Writing, private: Path, listener: Listener) -> list[Use]:
    """Return how each addition of the Release takes part in the writing."""
    with_what = additions.Writing(
        wanted=job.wanted,
        method=job.method,
        embedder_name=job.embedder.embedder,
        embedder=lambda: job.embedder.load(private, made.schema.form, say=listener.say),
        prompted=writing.prompted,
        seed=job.wanted.seed,
        say=listener.say,
        progress=listener.progress,
    )
    return [use for each in additions_in(made) if (use := each.use(made, with_what)) is not None]


def _tell_asked(method: Method, writing: Writing, total: int, made: Release, listener: Listener) -> None:
    """Report which language model is asked for how many texts."""
    chat, needed = writing.chat, method.needs.generation_llm
    if chat is not None:
        few = " Each text is written around at most four phrases of its seed." if writing.named.trained else ""
        listener.say(f"Writing {plural(total, 'text')} with {chat.model_id}, which sees only released values.{few}")
    if needed == "never" and writing.named.llm != ModelParameters().llm:
        listener.say(f"The language model {writing.named.llm} is not used: a Release of {made.method} needs none.")


def _begin(session: Session, made: Release, condition: str, listener: Listener, *, clear: bool) -> None:
    """Begin or resume the run, and write the statement of its Release to the folder."""
    if changed := session.begin():
        listener.say(f"The run continues with changed settings, at no charge: {changed}.")
    session.clear_scratch()
    if session.visible_folder is not None and (clear or condition):
        if clear and GENERATED not in session.store.stages():
            session.visible_folder.clear(keep=made)
        stated = _with_condition(made.statement, condition)
        session.visible_folder.write_statement(stated, labelled=made.schema.label is not None)


def _origin(made: Release, method: Method, writing: Writing, condition: str) -> dict[str, Any]:
    """Return the provenance that all texts share."""
    origin = {"release": made.origin, **({} if made.statement.private else {"stamp": NOT_PRIVATE})}
    if writing.chat is not None or method.needs.private_model:
        origin["document_type"] = writing.prompts.template.document_type
    return {**origin, **({"where": condition} if condition else {})}


def _cure_of_missing(method: Method, writing: Writing) -> str:
    """Return what to do about texts that were not written."""
    if method.needs.holds_texts:
        return "They are empty in the Release."
    if method.needs.generation_model:
        return "Ask for longer ones (--max-tokens), or for others (--seed)."
    if writing.form is not None:
        return f"Their answers were not {writing.form.name}. Ask for longer ones (--max-tokens), or others (--seed)."
    if writing.chat is None:
        return "Name a language model (--llm)."
    return f"The same command asks again, {MOST_BLANK} times in all where an answer was empty or withheld."


def _read(
    records: Sequence[SyntheticRecord], writing: Writing, writer: Writer, method: Method
) -> tuple[list[SyntheticRecord], Reading]:
    """Check the texts with the gate; return the records, without the texts that fail, and the findings. Texts from a
    Release or a tuned model are always kept; phrases without a language model are not checked."""
    if writing.chat is None and method.needs.generation_llm == "optional":
        return list(records), UNREAD
    gate = writer.gate if writing.chat is not None else replace(writer.gate, accept_all=True)
    sifted, reading = gate.sift(records, writer.words_of)
    gate.require(reading)
    return sifted, reading


def _languages(made: Release, writing: Writing) -> frozenset[str]:
    """Return the languages that texts may have: that of the Release's terms, and that of the user's prompt."""
    stated = made.parameters.get("stop_words")
    known = {"en"}
    if isinstance(stated, str) and stop_word_languages(stated):
        known = {stated} if len(stated) == 2 else {language_of(" ".join(made.terms))} if made.terms else set()
    if known and writing.prompts.parameters.prompt is not None:
        known.add(language_of(writing.prompts.template.user))
    return frozenset(known)


def _check(named: Chat) -> str:
    return f"`understudy models check {named.llm}{f' --base-url {named.base_url}' if named.base_url else ''}`"


def _without_text(session: Session, job: FreeJob) -> str:
    """Return what the user should do if a language model writes nothing: repeat the command, maybe with another
    model."""
    check = f"Test the model with {_check(job.chat)}; the same command then asks it again"
    file = None if session.visible_folder is None else session.visible_folder.release_file(job.method.name)
    if file is None or not file.exists():
        return f"{check}, free of charge."
    return f"{check}, and `understudy generate {file} --output ELSEWHERE` asks another model: both cost no budget."


def load_chat(named: Chat, listener: Listener, paced: Callable[[float, int], None] = lambda _s, _a: None) -> ChatModel:
    """Load the language model; report it if that takes seconds."""
    options: dict[str, Any] = {"extra_body": named.extra_body} if named.extra_body else {}
    if preset_of(named.llm) is not None:
        options |= {
            "max_concurrency": AT_ONCE,
            "spending_cap": named.spending_cap,
            "price_per_million_input": named.price_input,
            "price_per_million_output": named.price_output,
            "say": listener.say,
        }
    elif named.llm == "builtin" or named.llm.startswith("hf:"):
        listener.say(f"Loading the language model {named.llm}.")
        options["paced"] = paced
    if named.trained:
        options["writer"] = True
    return catalog.load_chat(
        named.llm, base_url=named.base_url, api_key_env=named.api_key_env, seed=named.seed, **options
    )


def _counts(
    made: Release, job: FreeJob, uses: Sequence[Use], held: Sequence[int] | None, listener: Listener, *, capped: bool
) -> list[int]:
    """Return the number of records of each label: as requested, or all that the Release contains by default."""
    method, wanted, labels = job.method, job.wanted, made.schema.label_set.size
    if held is not None and not wanted.said:
        return list(held)
    asked, total = wanted.counts(labels), wanted.records
    shared = [each for use in uses if total is not None and (each := use.share_out(total)) is not None]
    if shared and held is None:
        asked = shared[0]
    elif total is not None and (wanted.like_private or made.schema.topics) and labels > 1:
        if (found := label_counts(made) or method.label_counts(made)) is None:
            raise no_label_counts(method)
        asked = like_counts(total, *found)
    elif total is not None and (weights := method.label_weights(made)) is not None:
        asked = in_proportion(total, weights)
    if held is None:
        return asked
    counts = [min(pair) for pair in zip(asked, held, strict=True)] if capped else asked
    if sum(counts) < sum(asked):
        listener.say(f"{sum(asked)} texts are requested, but the Release contains only {sum(counts)} of them.")
    return counts


def _ping(chat: ChatModel, named: Chat) -> None:
    """Ask one short question, so that a silent endpoint is detected before anything is charged."""
    (answer,) = collect(chat, [PLAIN])
    if answer.finish_reason == "failed":
        extra = ", and check whether it accepts the extra body" if named.extra_body else ""
        raise ModelError(
            f"The language model does not answer: {answer.error}",
            f"Test it with: understudy models check {named.llm}{extra}.",
        )
