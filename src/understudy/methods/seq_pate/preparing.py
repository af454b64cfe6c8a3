"""What is made and tried before the charge: prompts, prefixes, the student, and the model of the teachers."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from understudy.base.errors import ConfigError, CorpusError
from understudy.base.files import UnreadableText, cannot_read, read_lines
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.secrets import SecretFinder
from understudy.methods.base import Preparation
from understudy.methods.seq_pate.answers import Questions, TeacherAnswers
from understudy.methods.seq_pate.plan import SeqPATEParameters, teacher_count
from understudy.methods.seq_pate.student import QUERIES_PER_TEXT, STUDENT_BATCH, STUDENT_STEPS, Lessons, Student
from understudy.methods.seq_pate.teachers import (
    Faculty,
    Group,
    Recipe,
    require_same_teachers,
    require_separate_teachers,
)
from understudy.methods.shared.decoding.prompting import LabelPrompts
from understudy.methods.shared.decoding.tuned import TunedModel
from understudy.methods.tuned.method import model_to_tune
from understudy.models.lora import Trunk
from understudy.models.machine import halved_to_fit, one_core, worker_count
from understudy.models.training import LoRA, random_rows
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.measurement import Engine

_GROUP = {"cpu": 16, "cuda": 64}
"""Teachers in one pass, if they fit into memory. It changes no guarantee."""
TEACHER_STEPS, TEACHER_BATCH, TEACHER_RATE = 4, 1, 0.1
"""Steps of training of each teacher, texts per step (its shard is read again and again), and its highest learning
rate."""
_MOST_NUMBERS = 20_000_000
"""In all answers, which the Release holds: 160 MB."""


@dataclass(frozen=True, eq=False)
class Ready:
    """What is made before anything is charged.

    Args:
        tuned: the model that becomes the student.
        prefixes: public beginnings of texts.
        kind: of the machines that train the teachers; "" before that is tried.
    """

    asked: LabelPrompts
    tuned: TunedModel
    faculty: Faculty
    prefixes: tuple[str, ...]
    prefixes_sha256: str
    kind: str = ""


def ready(parameters: SeqPATEParameters, preparation: Preparation) -> Ready:
    """Raises ConfigError if prompts, prefixes or records are not as they should be, the model cannot be cut, or a
    prefix fills the texts."""
    asked, tuned = model_to_tune(parameters, preparation)
    model = tuned.causal
    prefixes, sha256 = _prefixes(parameters)
    if any(len(model.encode(tuned.instructions.target(each))) >= parameters.private_text_tokens for each in prefixes):
        raise ConfigError(
            f"A prefix leaves nothing to be written of texts of {parameters.private_text_tokens} tokens.",
            "Shorten the prefixes, or raise --private-text-tokens.",
        )
    lora = LoRA(model, rank=parameters.lora_rank, targets=[parameters.adapted], layers=parameters.blocks)
    recipe = Recipe(TEACHER_STEPS, TEACHER_BATCH, TEACHER_RATE, _GROUP[model.device])
    reading = TunedModel(lora, tuned.instructions, tokens=tuned.tokens)  # workers are not sent the student
    faculty = Faculty(lora, Trunk(model, layers=parameters.blocks), reading, recipe)
    return Ready(asked, tuned, faculty, prefixes, sha256)


def _prefixes(parameters: SeqPATEParameters) -> tuple[tuple[str, ...], str]:
    if parameters.prefixes is None:
        return (), ""
    if not parameters.prefixes_are_public:
        raise ConfigError(
            "The prefixes are a file of your own: it must not be made from private data.",
            "If it was not, say so with --prefixes-are-public.",
        )
    path = Path(parameters.prefixes)
    found = _lines(path, f"The prefixes {path.name}", "Give a UTF-8 text file, one per line.")
    if not found:
        raise ConfigError(f"The prefixes {path.name} are empty.", "Give one beginning of a text per line.")
    return found, hashlib.sha256("\n".join(found).encode()).hexdigest()


def _lines(path: Path, what: str, cure: str) -> tuple[str, ...]:
    try:
        return tuple(line.strip() for line in read_lines(path) if line.strip())
    except (OSError, UnreadableText) as error:
        raise cannot_read(what, error, cure) from None


def require_rare_phrases(parameters: SeqPATEParameters, corpus: BoundedCorpus) -> None:
    """See that no phrase is in more records (owners) than declared: each is in one shard, so no phrase is in more
    shards. A phrase is in a record if it is in its text as models see it, or in what that says: in JSON, and after the
    names of parts, quotes and line ends are written otherwise.

    Raises:
        ConfigError: the file of phrases cannot be read, or is empty.
        CorpusError: a phrase is in more; the error does not tell which.
    """
    if parameters.phrases is None:
        return
    most = parameters.phrase_shards or 1
    phrases = _lines(Path(parameters.phrases), "The file of phrases", "Give a UTF-8 text file, one phrase per line.")
    if not phrases:
        raise ConfigError("The file of phrases is empty.", "Give one phrase per line, or leave --phrases out.")
    finder, units, before = SecretFinder(listed=phrases), set[tuple[str, object]](), 0
    for batch in corpus.corpus.batches():  # all records: which of an owner's are used is not known before the charge
        rows = range(before, before + len(batch.texts))
        owners = batch.owners if corpus.unit.kind == "owner" else None
        units_here = rows if owners is None else owners
        for text, said, unit in zip(batch.texts, corpus.said(batch.texts), units_here, strict=True):
            units.update((key, unit) for each in {text, said} for key in finder.find(each))
        before += len(batch.texts)
    if max(Counter(key for key, _ in units).values(), default=0) > most:
        raise CorpusError(
            f"A phrase is in more {corpus.unit.kind}s than the {most} declared.",
            "Declare a higher --phrase-shards, or take the phrase from the list.",
        )


def try_out(
    found: Ready, parameters: SeqPATEParameters, queries: int, *, engine: Engine | None = None
) -> tuple[Ready, Facts]:
    """Try that teachers are separate, here and on the engine's workers, and measure on public text what the release
    will take.

    Returns:
        ``found`` with the kind of the machines that train, and the measures.

    Raises:
        PrivacyError: a teacher changes with the texts of others on this device, or a worker's.
        EngineError: workers train different teachers.
        ConfigError: the answers would not fit into a Release, or a teacher not into memory.
    """
    teachers = teacher_count(parameters)
    vocabulary = found.tuned.causal.vocabulary
    columns = vocabulary if parameters.candidate_filter == "none" else parameters.candidates
    if columns > vocabulary:
        raise ConfigError(
            f"Answers about {columns} candidates are asked for, and the model knows {vocabulary} tokens.",
            "Give fewer --candidates, or --candidate-filter none for all tokens.",
        )
    if queries * columns > _MOST_NUMBERS:
        raise ConfigError(
            f"{queries} answers about {columns} tokens each do not fit into a Release.",
            f"Ask fewer --queries ({_MOST_NUMBERS // columns} at most), or about fewer --candidates.",
        )

    def tried(group: int) -> tuple[Ready, str, list[Fact]]:
        faculty = replace(found.faculty, recipe=replace(found.faculty.recipe, group=group))
        smaller = replace(found, faculty=faculty)
        kind = require_separate_teachers(faculty)
        return smaller, kind, _seconds(smaller, parameters, teachers=teachers, queries=queries, engine=engine)

    found, kind, seconds = halved_to_fit(
        found.faculty.recipe.group,
        tried,
        problem="One teacher does not fit into memory.",
        cure="Cut texts shorter (--private-text-tokens), or lower --lora-rank.",
    )
    if engine is not None:
        kind = require_same_teachers(engine, found.faculty)
    size = found.faculty.lora.size
    entries = (
        Fact("teacher_numbers", size, "numbers that each teacher learns"),
        Fact("teacher_gigabytes", 4 * size * teachers / 1e9, "teachers on disk, in the private folder (GB)"),
        *seconds,
    )
    return replace(found, kind=kind), Facts(entries)


def _seconds(
    found: Ready, parameters: SeqPATEParameters, *, teachers: int, queries: int, engine: Engine | None
) -> list[Fact]:
    """Of each part of the release, from one group, one pseudo-sentence and one block of the student's."""
    faculty, model = found.faculty, found.tuned.causal
    recipe, workers = faculty.recipe, worker_count(model.device) if engine is None else engine.workers
    shapes = found.tuned.shapes()
    rows = random_rows(
        model, shapes, targets=[shapes.target] * recipe.slots, prompts=[shapes.prompt] * recipe.slots, seed=4
    )
    each = max(1, min(recipe.slots, round(parameters.declared / teachers)))
    asked = min(QUERIES_PER_TEXT, shapes.target, queries)
    questions = Questions(
        rows[:1],
        np.zeros(asked, dtype=np.int32),
        np.linspace(0, shapes.target - 1, asked).astype(np.int32),
        np.tile(np.arange(min(parameters.candidates, model.vocabulary), dtype=np.int32), (asked, 1)),
    )
    weights = np.tile(faculty.lora.start(), (recipe.group, 1))
    answers = TeacherAnswers(faculty, questions, parameters.answers)
    student = Student(found.tuned, parameters)
    texts = [*rows, *rows][:STUDENT_BATCH]
    groups, sentences = -(-teachers // recipe.group), -(-queries // asked)
    answers.of_batch(Group(weights, 1))  # the first computes the trunk
    with one_core():
        training = _timed(lambda: faculty.train([rows[:each]] * recipe.group))
        answering = _timed(lambda: answers.of_batch(Group(weights, 1)))
    learning = _timed(lambda: student.learn(Lessons(texts), found.tuned.trainable.start(), steps=1, seed=0))
    steps = parameters.rounds * STUDENT_STEPS
    found.tuned.trainable.load(found.tuned.trainable.start())
    spent = {
        ("teacher_seconds", "training of the teachers"): training * groups / min(workers, groups),
        ("answer_seconds", "the teachers' answers"): answering
        * groups
        * sentences
        / min(workers, sentences if engine is None else groups),
        ("student_seconds", "training of the student"): learning * steps * STUDENT_BATCH / len(texts),
    }
    return [
        Fact(name, float(f"{seconds:.1g}"), f"{what} on this machine (seconds, about)")
        for (name, what), seconds in spent.items()
    ]


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
