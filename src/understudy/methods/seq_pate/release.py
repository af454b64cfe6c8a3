"""SeqPATE, the only code that reads private records.

Tian et al. 2022, *SeqPATE: Differentially private text generation via knowledge distillation* (NeurIPS), cut at the
privacy boundary:

    teachers = adapters, each tuned on the records whose keyed hash names it         private, teachers.py
    student  = adapters that have learnt nothing                                     public
    for r in 1 .. R:
        rows    = pseudo-sentences that the student (or the base model) writes       post-processing
        asked   = T / R of their positions that the student finds hard               post-processing
        answers = sum of the teachers' probabilities there + noise                   charge "answers-r", answers.py
        student = tuned on answers (KL)                                              post-processing
    return the student, all pseudo-sentences, questions and noisy answers

Guarantee:
    Unit: a record; or an owner, whose records are all with one teacher. Each round is one
    :class:`~understudy.privacy.mechanisms.NoisySum` over :class:`~understudy.methods.seq_pate.answers.TeacherAnswers`,
    which states its sensitivity; noise is added to the sum of all teachers' answers, once, and what was released is
    used for ever. Questions and candidates are the student's, never the teachers': they are stored before they are
    asked, and the student after it has learnt, so a resumed run asks the same and goes on from there.
    Label counts are a sum of their own (:class:`~understudy.methods.shared.queries.counts.LabelCounts`).
    Phrases: removing all records with a phrase that is in at most n_s of them changes at most n_s teachers, so every
    round's sum moves n_s times as far (:func:`~understudy.methods.seq_pate.plan.phrase_epsilon`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.labels import in_proportion
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.base import Released, ReleaseTools
from understudy.methods.seq_pate.answers import Questions, TeacherAnswers
from understudy.methods.seq_pate.plan import PSEUDO_TEXTS, SeqPATEParameters, answers_name, teacher_count
from understudy.methods.seq_pate.preparing import Ready
from understudy.methods.seq_pate.student import STUDENT_STEPS, Lessons, PseudoTexts, Student, shares_of
from understudy.methods.seq_pate.teachers import Teachers
from understudy.methods.tuned.method import label_counts, released
from understudy.methods.tuned.model import COUNTS
from understudy.models.training import TokenRow
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.mechanisms import NoisySum
from understudy.privacy.plan import Plan


def release(parameters: SeqPATEParameters, corpus: BoundedCorpus, plan: Plan, *, tools: ReleaseTools) -> Released:
    """Train the teachers, ask them, and teach the student."""
    found: Ready = tools.prepared
    counts = label_counts(parameters, corpus, tools)
    count, tuned = teacher_count(parameters), found.tuned
    teachers = Teachers(found.faculty, count, corpus, tools.scratch, tools.say, found.kind)
    student, prompts = Student(tuned, parameters), tuned.instructions.prompts
    std = plan.mechanism(answers_name(1)).noise_std / count
    sizes = [plan.mechanism(answers_name(number + 1)).shape[0] for number in range(parameters.rounds)]
    labels = _labels_of_texts(counts, len(prompts))

    start = weights = tuned.trainable.start()
    memory = _Memory()
    for number, size in enumerate(sizes):
        tuned.trainable.load(start if parameters.pseudo_source == "base" else weights)
        here = labels[number :: parameters.rounds]
        name = str(number + 1)
        write = partial(student.write, here, name=name, seed=tools.seed, prefixes=found.prefixes)
        texts = PseudoTexts.of(tools.keep(f"pseudo-{name}", write))
        rows = texts.rows(prompts)
        tuned.trainable.load(weights)
        choose = partial(student.choose, rows, size, seed=tools.seed + number)
        questions = Questions.of(rows, tools.keep(f"questions-{name}", choose))
        query = TeacherAnswers(found.faculty, questions, parameters.answers)
        answers = tools.measure(answers_name(number + 1), query, teachers).value
        memory.add(texts, questions, answers)
        lessons = memory.lessons(prompts, count, std, parameters)
        learn = partial(student.learn, lessons, weights, steps=STUDENT_STEPS, seed=tools.seed)
        weights = tools.keep(f"student-{name}", learn)["weights"]
        tools.say(f"Round {number + 1} of {len(sizes)}: {size} questions about {len(rows)} pseudo-sentences.")
        tools.progress("rounds", number + 1, len(sizes))
    tuned.trainable.load(weights)
    arrays = {**counts, **memory.arrays()}
    made = released(found.asked, tuned, weights, arrays, _noise_check(memory, plan.mechanism(answers_name(1)), count))
    if not found.prefixes:
        return made
    prefixes = {"prefixes": {"source": "prefixes of your own", "sha256": found.prefixes_sha256}}
    return replace(made, public_inputs={**made.public_inputs, **prefixes})


def _labels_of_texts(counts: Mapping[str, NDArray[np.float64]], labels: int) -> list[int]:
    """The label of each pseudo-sentence, such that every round has of all."""
    sizes = in_proportion(PSEUDO_TEXTS, counts.get(COUNTS, np.ones(labels)).tolist())
    left = [label for label, size in enumerate(sizes) for _ in range(size)]
    mixed: list[int] = np.random.default_rng(0).permutation(left).tolist()
    return mixed


@dataclass
class _Memory:
    """All that was asked and answered, round after round: released, and kept for the Release."""

    texts: list[PseudoTexts] = field(default_factory=list)
    questions: list[Questions] = field(default_factory=list)
    answers: list[NDArray[np.float64]] = field(default_factory=list)

    def add(self, texts: PseudoTexts, questions: Questions, answers: NDArray[np.float64]) -> None:
        self.texts.append(texts)
        self.questions.append(questions)
        self.answers.append(answers)

    def lessons(
        self, prompts: Sequence[Sequence[int]], teachers: int, std: float, parameters: SeqPATEParameters
    ) -> Lessons:
        """What was answered, and the pseudo-sentences that it is about."""
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
        """For the Release."""
        first = np.cumsum([0, *[len(each.labels) for each in self.texts]])
        return {
            "pseudo_labels": np.concatenate([each.labels for each in self.texts]),
            "pseudo_lengths": np.concatenate([each.lengths for each in self.texts]),
            "pseudo_tokens": np.concatenate([each.tokens for each in self.texts]),
            "question_text": np.concatenate(
                [each.row + before for each, before in zip(self.questions, first.tolist(), strict=False)]
            ).astype(np.int32),
            "question_place": np.concatenate([each.place for each in self.questions]),
            "candidates": np.concatenate([each.candidates for each in self.questions]),
            "answers": np.concatenate(self.answers),
        }


def _noise_check(memory: _Memory, mechanism: NoisySum, teachers: int) -> Facts:
    """How far the answers stand above their noise: from what was released, so for free."""
    std = mechanism.noise_std / teachers
    highest = np.concatenate(
        [np.where(q.candidates >= 0, a, -np.inf).max(1) for q, a in zip(memory.questions, memory.answers, strict=True)]
    )
    candidates = np.concatenate([(q.candidates >= 0).sum(1) for q in memory.questions])
    of_noise = std * (2 + np.sqrt(2 * np.log(candidates)))  # the highest of so many noises, and two deviations more
    share = float(np.mean(highest / teachers > of_noise))
    warning = (
        "Most answers are noise: the student has hardly learnt from the teachers. Ask fewer --queries, name more "
        "--teachers, or spend more epsilon."
    )
    return Facts(
        (
            Fact("answer_noise", std, "noise on a teacher-averaged probability (std)"),
            Fact("clear_answers", share, "share of the answers whose likeliest token stands out from the noise on all"),
        ),
        (warning,) if share < 0.5 else (),
    )
