"""SeqPATE, the only code that reads private records.

Tian et al. 2022, *SeqPATE: Differentially private text generation via knowledge distillation* (NeurIPS), cut at the
privacy boundary:

    teachers = adapters, each tuned on the records whose keyed hash names it         private, teachers.py
    student = adapters that have learnt nothing, or from pseudo-sentences             public
    for r in 1 .. R:
        rows    = pseudo-sentences that the student (or the base model) writes       post-processing
        asked   = T / R of their positions that the student finds hard               post-processing
        answers = sum of the teachers' probabilities there + noise                   charge "answers-r"
        student = tuned on answers (KL), pseudo-labels or both                       post-processing
    return the student, all pseudo-sentences, questions and noisy answers

Guarantee:
    Unit: a record; or an owner, whose records are all with one teacher. Each round is one
    :class:`~understudy.privacy.mechanisms.NoisySum` over :class:`~understudy.methods.seq_pate.teachers.TeacherAnswers`,
    which states its sensitivity; noise is added to the sum of all teachers' answers, once, and what was released is
    used for ever. Questions and candidates are the student's, never the teachers': they are stored before they are
    asked, and the student after it has learnt, so a resumed run asks the same and goes on from there.
    Label counts are a separate sum (:class:`~understudy.methods.shared.queries.counts.LabelCounts`).
    Phrases: removing all records with a phrase that is in at most n_s of them changes at most n_s teachers, so every
    round's sum moves n_s times as far (:func:`~understudy.methods.seq_pate.plan.phrase_epsilon`).
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, CorpusError
from understudy.base.files import UnreadableText, cannot_read, read_lines
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.secrets import SecretFinder
from understudy.methods.base import Preparation, Released, ReleaseTools
from understudy.methods.seq_pate.plan import (
    PSEUDO_TEXTS,
    AnswersSpec,
    SeqPATEParameters,
    answers_name,
    planned_queries,
    teacher_count,
)
from understudy.methods.seq_pate.student import (
    QUERIES_PER_TEXT,
    STUDENT_BATCH,
    STUDENT_STEPS,
    Lessons,
    PseudoTexts,
    Student,
    shares_of,
)
from understudy.methods.seq_pate.teachers import (
    Faculty,
    Group,
    Questions,
    Recipe,
    TeacherAnswers,
    Teachers,
    require_separate_teachers,
)
from understudy.methods.shared.decoding.prompting import LabelPrompts
from understudy.methods.shared.decoding.tuned import TunedModel
from understudy.methods.tuned.method import label_counts, model_to_tune, released
from understudy.methods.tuned.model import COUNTS
from understudy.models.lora import Trunk
from understudy.models.machine import halved_to_fit, one_core, worker_count
from understudy.models.training import LoRA, TokenRow, random_rows
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.measurement import Engine
from understudy.privacy.plan import Plan
from understudy.privacy.verdict import Verdict
from understudy.schema.labels import in_proportion

_GROUP = {"cpu": 16, "cuda": 64}
"""Number of teachers in one pass, if they fit into memory. It changes no guarantee."""
TEACHER_STEPS, TEACHER_BATCH, TEACHER_RATE = 4, 1, 0.1
"""Training steps of each teacher, texts per step (its shard is read repeatedly), and highest learning rate."""
_MOST_NUMBERS = 20_000_000
"""Largest number of values in all answers of a Release: 160 MB."""


@dataclass(frozen=True, eq=False)
class Ready:
    """The models and prompts, prepared before anything is charged."""

    asked: LabelPrompts
    tuned: TunedModel  # the model that becomes the student
    faculty: Faculty
    prefixes: tuple[str, ...] = ()  # public beginnings of pseudo-sentences
    kind: str = ""  # of the machines that train the teachers; "" before that is tested


def prepare(parameters: SeqPATEParameters, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> Ready:
    """Load and try out the models before the charge, and check the phrases. Raises what :func:`ready`,
    :func:`require_rare_phrases` and :func:`try_out` raise."""
    found = ready(parameters, preparation)
    require_rare_phrases(parameters, corpus)
    found, work = try_out(found, parameters, planned_queries(plan.charges), engine=corpus.engine)
    for line in [*plan.forecast.lines(), *work.lines()]:
        preparation.say(line[:1].upper() + line[1:])
    return found


def ready(parameters: SeqPATEParameters, preparation: Preparation) -> Ready:
    """Load the model and build the prompts. Raises ConfigError if prompts or records are invalid, or the model cannot
    be divided below the adapted blocks."""
    asked, tuned = model_to_tune(parameters, preparation)
    model = tuned.causal
    lora = LoRA(model, rank=parameters.lora_rank, targets=[parameters.adapted], layers=parameters.blocks)
    recipe = Recipe(TEACHER_STEPS, TEACHER_BATCH, TEACHER_RATE, _GROUP[model.device])
    reading = TunedModel(lora, tuned.instructions, tokens=tuned.tokens)  # workers are not sent the student
    faculty = Faculty(lora, Trunk(model, layers=parameters.blocks), reading, recipe)
    return Ready(asked, tuned, faculty, _prefixes(parameters, tuned))


def _prefixes(parameters: SeqPATEParameters, tuned: TunedModel) -> tuple[str, ...]:
    if parameters.prefixes is None:
        return ()
    path, most = Path(parameters.prefixes), parameters.private_text_tokens
    if not parameters.prefixes_are_public:
        raise ConfigError(
            "Your file of prefixes must not be made from private data.",
            "If it is public, say so with --prefixes-are-public.",
        )
    found = _lines(path, f"The prefixes {path.name}", "Give a UTF-8 text file, one per line.")
    if not found or any(len(tuned.causal.encode(tuned.instructions.target(each))) >= most for each in found):
        raise ConfigError(
            f"The file of prefixes {path.name} is empty, or a prefix is as long as a whole text ({most} tokens).",
            "Give one short beginning of a text per line.",
        )
    return found


def _lines(path: Path, what: str, cure: str) -> tuple[str, ...]:
    try:
        return tuple(line.strip() for line in read_lines(path) if line.strip())
    except (OSError, UnreadableText) as error:
        raise cannot_read(what, error, cure) from None


def require_rare_phrases(parameters: SeqPATEParameters, corpus: BoundedCorpus) -> None:
    """Check that no phrase is in more records (owners) than declared; then it is in no more shards, because each record
    is in one shard. A phrase counts in a record if it occurs in the text as models see it, or in the text before it was
    encoded as JSON or a transcript.

    Raises:
        ConfigError: the file of phrases cannot be read, or is empty.
        CorpusError: a phrase is in more; the error does not say which.
    """
    if parameters.phrases is None:
        return
    most = parameters.phrase_shards or 1
    phrases = _lines(Path(parameters.phrases), "The file of phrases", "Give a UTF-8 text file, one phrase per line.")
    if not phrases:
        raise ConfigError("The file of phrases is empty.", "Give one phrase per line, or leave --phrases out.")
    finder, units, before = SecretFinder(listed=phrases), set[tuple[str, object]](), 0
    for (
        batch
    ) in corpus.corpus.batches():  # all records: before the charge, it is not known which of an owner's are used
        rows = range(before, before + len(batch.texts))
        owners = batch.owners if corpus.unit.kind == "owner" else None
        units_here = rows if owners is None else owners
        for text, said, unit in zip(batch.texts, corpus.said(batch.texts), units_here, strict=True):
            units.update((key, unit) for each in {text, said} for key in finder.find(each))
        before += len(batch.texts)
    if max(Counter(key for key, _ in units).values(), default=0) > most:
        raise CorpusError(
            f"A phrase is in more {corpus.unit.kind}s than the {most} declared.",
            "Declare a higher --phrase-shards, or remove the phrase from the list.",
        )


def try_out(
    found: Ready, parameters: SeqPATEParameters, queries: int, *, engine: Engine | None = None
) -> tuple[Ready, Facts]:
    """Test that teachers are independent, here and on the engine's workers, and measure on public text how long the
    release will take.

    Returns:
        ``found`` with the kind of the machines that train, and the measured times.

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
            f"Answers about {columns} candidates are asked for, but the model has only {vocabulary} tokens.",
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
        kind = require_separate_teachers(found.faculty, engine)
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
    """Time each part of the release on one group, one pseudo-sentence and one block of the student's."""
    faculty, model = found.faculty, found.tuned.causal
    recipe, workers = faculty.recipe, worker_count(model.device) if engine is None else engine.workers
    shapes, slots = found.tuned.shapes(), recipe.slots
    rows = random_rows(model, shapes, targets=[shapes.target] * slots, prompts=[shapes.prompt] * slots, seed=4)
    each = max(1, min(recipe.slots, round(parameters.declared / teachers)))
    asked = min(QUERIES_PER_TEXT, shapes.target, queries)
    questions = Questions(
        rows[:1],
        np.zeros(asked, dtype=np.int32),
        np.linspace(0, shapes.target - 1, asked).astype(np.int32),
        np.tile(np.arange(min(parameters.candidates, model.vocabulary), dtype=np.int32), (asked, 1)),
    )
    weights = np.tile(faculty.lora.start(), (recipe.group, 1))
    answers = TeacherAnswers(AnswersSpec(*questions.candidates.shape), faculty, questions, parameters.answers)
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
    at_once = min(workers, sentences if engine is None else groups)
    spent = {
        ("teacher_seconds", "training of the teachers"): training * groups / min(workers, groups),
        ("answer_seconds", "the teachers' answers"): answering * groups * sentences / at_once,
        ("student_seconds", "training of the student"): learning * steps * STUDENT_BATCH / len(texts),
    }
    title = "{} on this machine (seconds, about)".format
    return [Fact(name, float(f"{seconds:.1g}"), title(what)) for (name, what), seconds in spent.items()]


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def release(parameters: SeqPATEParameters, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
    """Train the teachers; in each round, sum their answers to the student's questions with noise, and train the student
    on the sums."""
    found: Ready = tools.prepared
    counts = label_counts(parameters, corpus, plan, tools)
    count, tuned = teacher_count(parameters), found.tuned
    teachers = Teachers(found.faculty, count, corpus, tools.scratch, tools.say, found.kind)
    student, prompts = Student(tuned, parameters), tuned.instructions.prompts
    std = plan.mechanism(answers_name(1)).noise_std / count
    rounds: list[AnswersSpec] = [plan.query(answers_name(number + 1)) for number in range(parameters.rounds)]
    labels = _labels_of_texts(counts, len(prompts))

    start = weights = tuned.trainable.start()
    memory = _Memory()
    for number, spec in enumerate(rounds):
        tuned.trainable.load(start if parameters.pseudo_source == "base" else weights)
        here = labels[number :: parameters.rounds]
        name = str(number + 1)
        write = partial(student.write, here, name=name, seed=tools.seed, prefixes=found.prefixes)
        texts = PseudoTexts(**tools.keep(f"pseudo-{name}", write))
        rows = texts.rows(prompts)
        if parameters.student_loss == "published" and number == 0:
            learn = partial(student.learn, Lessons(rows), weights, steps=STUDENT_STEPS, seed=tools.seed)
            weights = tools.keep("student-0", learn)["weights"]
        tuned.trainable.load(weights)
        choose = partial(student.choose, rows, spec.questions, seed=tools.seed + number)
        questions = Questions(rows, **tools.keep(f"questions-{name}", choose))
        query = TeacherAnswers(spec, found.faculty, questions, parameters.answers)
        answers = tools.measure(answers_name(number + 1), query, teachers).value
        memory.texts.append(texts)
        memory.questions.append(questions)
        memory.answers.append(answers)
        lessons = memory.lessons(prompts, count, std, parameters)
        learn = partial(student.learn, lessons, weights, steps=STUDENT_STEPS, seed=tools.seed)
        weights = tools.keep(f"student-{name}", learn)["weights"]
        asked = f"{spec.questions} questions about {len(rows)} pseudo-sentences"
        tools.say(f"Round {number + 1} of {len(rounds)}: {asked}.")
        tools.progress("rounds", number + 1, len(rounds))
    tuned.trainable.load(weights)
    arrays = {**counts, **memory.arrays()}
    made = released(found.asked, tuned, weights, arrays, _noise_check(memory, plan, count))
    if not found.prefixes:
        return made
    sha256 = hashlib.sha256("\n".join(found.prefixes).encode()).hexdigest()
    return replace(made, public_inputs={**made.public_inputs, "prefixes": {"source": _PREFIXES, "sha256": sha256}})


_PREFIXES = "your own prefixes"


def _labels_of_texts(counts: Mapping[str, NDArray[np.float64]], labels: int) -> list[int]:
    """Return the label of each pseudo-sentence, such that every round has all labels."""
    sizes = in_proportion(PSEUDO_TEXTS, counts.get(COUNTS, np.ones(labels)).tolist())
    left = [label for label, size in enumerate(sizes) for _ in range(size)]
    mixed: list[int] = np.random.default_rng(0).permutation(left).tolist()
    return mixed


@dataclass
class _Memory:
    """All questions and answers, round after round: released, and kept for the Release."""

    texts: list[PseudoTexts] = field(default_factory=list)
    questions: list[Questions] = field(default_factory=list)
    answers: list[NDArray[np.float64]] = field(default_factory=list)

    def lessons(
        self, prompts: Sequence[Sequence[int]], teachers: int, std: float, parameters: SeqPATEParameters
    ) -> Lessons:
        """Return the answers with the pseudo-sentences that they are about."""
        rows: list[TokenRow] = []
        taught = []
        for texts, questions, answers in zip(self.texts, self.questions, self.answers, strict=True):
            shares = shares_of(answers / teachers, questions, std=std, loss=parameters.student_loss)
            asked, row = np.unique(questions.row, return_inverse=True)
            numbers = (row + len(rows)).tolist()
            taught += list(zip(numbers, questions.place.tolist(), questions.candidates, shares, strict=True))
            written = texts.rows(prompts)
            rows += [written[each] for each in asked.tolist()]
        return Lessons(rows, taught)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays for the Release."""
        first = np.cumsum([0, *[len(each.labels) for each in self.texts]]).tolist()
        asked = [each.row + before for each, before in zip(self.questions, first, strict=False)]
        return {
            **{f"pseudo_{name}": np.concatenate([getattr(each, name) for each in self.texts]) for name in _OF_TEXTS},
            "question_text": np.concatenate(asked).astype(np.int32),
            "question_place": np.concatenate([each.place for each in self.questions]),
            "candidates": np.concatenate([each.candidates for each in self.questions]),
            "answers": np.concatenate(self.answers),
        }


_OF_TEXTS = ("labels", "lengths", "tokens")


def _noise_check(memory: _Memory, plan: Plan, teachers: int) -> Facts:
    """Return the answers' signal to noise, from released values only and thus free."""
    std = plan.mechanism(answers_name(1)).noise_std / teachers
    highest = np.concatenate(
        [np.where(q.candidates >= 0, a, -np.inf).max(1) for q, a in zip(memory.questions, memory.answers, strict=True)]
    )
    candidates = np.concatenate([(q.candidates >= 0).sum(1) for q in memory.questions])
    of_noise = std * (2 + np.sqrt(2 * np.log(candidates)))  # the expected maximum of all the noise, plus two deviations
    share = float(np.mean(highest / teachers > of_noise))
    return Facts(
        (
            Fact("answer_noise", std, "noise on a teacher-averaged probability (std)"),
            Fact("clear_answers", share, "share of the answers whose likeliest token exceeds the largest noise"),
        ),
        verdict=Verdict("noise", "answers") if share < 0.5 else plan.forecast.verdict,
    )
