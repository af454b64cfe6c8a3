"""The student: what it asks about, and what it learns of answers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from understudy.methods.seq_pate.plan import SeqPATEParameters
from understudy.methods.seq_pate.student import Lessons, Student
from understudy.methods.seq_pate.teachers import Questions
from understudy.methods.shared.decoding.tuned import Instructions, TunedModel
from understudy.methods.tuned.model import trainable_of
from understudy.models.causal import CausalModel
from understudy.models.training import TokenRow, target_logits

TEXTS = ["angina, seen on Monday", "a mole on the left arm", "no pain", "sent home with aspirin"]


@pytest.fixture(scope="module")
def causal(llama: Path) -> CausalModel:
    return CausalModel(llama, name="tiny", dtype="float32")


def student(causal: CausalModel, **changes: object) -> Student:
    parameters = SeqPATEParameters(declared_records=100, private_text_tokens=24, candidates=8, **changes)
    tuned = TunedModel(trainable_of(parameters, causal), Instructions(((1, 2, 3),)), tokens=24)
    tuned.trainable.load(tuned.trainable.start())
    return Student(tuned, parameters)


def rows_of(made: Student) -> list[TokenRow]:
    return [made.tuned.row(text, 0) for text in TEXTS]


def asked(made: Student, count: int) -> Questions:
    rows = rows_of(made)
    return Questions(rows, **made.choose(rows, count, seed=0))


def lessons(questions: Questions, shares: NDArray[np.float64]) -> Lessons:
    columns = zip(questions.row.tolist(), questions.place.tolist(), questions.candidates, shares, strict=True)
    return Lessons(questions.rows, list(columns))


@pytest.mark.parametrize("candidate_filter", ["top-p", "top-k", "none"])
def test_the_prior_is_what_the_student_expects_of_its_candidates(causal: CausalModel, candidate_filter: str) -> None:
    made = student(causal, candidate_filter=candidate_filter)
    questions = asked(made, 12)
    known = questions.candidates >= 0
    assert questions.prior.sum(1) == pytest.approx(np.ones(12), abs=1e-5)
    assert not questions.prior[~known].any()
    for number in range(12):
        row = questions.rows[questions.row[number]]
        block = made.tuned.shapes().block([row], device="cpu")
        with torch.inference_mode(), made.tuned.active():
            logits = target_logits(causal, made.tuned.network, block)[0, questions.place[number]].double()
        tokens = questions.candidates[number][known[number]]
        expected = logits[torch.from_numpy(tokens).long()].softmax(0).numpy()
        assert questions.prior[number][known[number]] == pytest.approx(expected, abs=1e-5)


def test_hard_positions_come_first_and_some_are_asked_twice_where_there_are_too_few(
    causal: CausalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.methods.seq_pate.student.QUERIES_PER_TEXT", 3)
    made = student(causal)
    questions = asked(made, 8)
    assert len(set(zip(questions.row.tolist(), questions.place.tolist(), strict=True))) == 8
    assert max(np.bincount(questions.row)) <= 3, "three of a text, where there are texts enough"
    every = sum(len(row.target) for row in rows_of(made))
    many = asked(made, every + 5)
    assert len(set(zip(many.row.tolist(), many.place.tolist(), strict=True))) == every


def test_answers_that_say_what_the_student_expects_teach_nothing(causal: CausalModel) -> None:
    """Above all nothing about tokens that are no candidates: a divergence from the whole distribution would take the
    candidates' share of it to 1."""
    made = student(causal)
    questions = asked(made, 12)
    prior = questions.prior.astype(np.float64)
    same = lessons(questions, prior / prior.sum(1, keepdims=True))
    turned = lessons(questions, np.where(questions.candidates >= 0, prior[:, ::-1], 0) + 1e-9)
    gradients = [made.tuned.trainable.gradient(partial(made._loss, each, range(4))) for each in (same, turned)]
    assert float(gradients[0].norm()) < 1e-4 * float(gradients[1].norm())


def test_a_student_comes_nearer_to_what_it_is_answered(causal: CausalModel) -> None:
    made = student(causal, learning_rate=0.05)
    questions = asked(made, 12)
    shares = np.zeros(questions.candidates.shape)
    shares[:, 1] = 1.0  # the second likeliest
    taught = lessons(questions, shares)
    numbers = range(len(TEXTS))
    before = float(made._loss(taught, numbers))
    start = made.tuned.trainable.start()
    made.learn(taught, start, steps=20, seed=0)
    with made.tuned.active():
        assert float(made._loss(taught, numbers)) < 0.8 * before


def test_the_published_loss_is_that_of_the_answers_and_of_the_pseudo_labels(causal: CausalModel) -> None:
    numbers, losses = range(len(TEXTS)), {}
    for loss in ("kl", "pseudo-labels", "published"):
        made = student(causal, student_loss=loss)
        questions = asked(made, 12)
        with made.tuned.active():
            losses[loss] = float(made._loss(lessons(questions, np.eye(8)[np.zeros(12, dtype=int)]), numbers))
    assert losses["published"] == pytest.approx(losses["kl"] + losses["pseudo-labels"], rel=1e-5)
    assert min(losses.values()) > 0
