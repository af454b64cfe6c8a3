"""SeqPATE, before a private record is read: how many teachers are asked how many questions, with how much noise.

labels         noisy label counts, if asked for
answers-1..R   in every round, one noisy sum of the teachers' answers to that round's questions
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from pydantic import Field

from understudy.base.display import plural
from understudy.base.errors import ConfigError, ReleaseError
from understudy.base.parameters import Ablation, Parameters, private_file, public_file
from understudy.methods.facts import PublicFacts
from understudy.methods.shared.specs import planned_label_counts
from understudy.methods.tuned.model import LABEL_SHARE, LABELS, DeclaredSize, TunedParameters
from understudy.models.lora import ALL
from understudy.privacy.accountant import Composition, gaussian_split
from understudy.privacy.events import GaussianEvent
from understudy.privacy.exact import as_typed, round_up
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import COUNT_GRID, NoisySum, QuerySpec, Sensitivity, Shape
from understudy.privacy.noise import NoiseKind
from understudy.privacy.plan import Charge, Plan, charges_of, noise_multipliers
from understudy.privacy.verdict import Verdict
from understudy.schema.labels import NOISY, declared_proportions

NAME = "seq-pate"
MOST_TEACHERS, MOST_QUERIES = 1_000_000, 1_000_000
PSEUDO_TEXTS = 128
"""In all rounds."""
StudentLoss = Literal["kl", "top-answer", "pseudo-labels", "published"]


class TeacherParameters(DeclaredSize):
    """The teachers, each tuned on one shard."""

    teachers: int | None = Field(None, ge=2, le=MOST_TEACHERS)
    """Number of teachers, and of shards (M). Default: half of the declared records, at most 2000."""


class QueryParameters(Parameters):
    """The questions that the teachers are asked, and how they answer."""

    queries: int | None = Field(None, ge=1, le=MOST_QUERIES)
    """Most positions that teachers are asked about in total (T). Default: as many as keep an answer's noise at 0.035.
    """
    rounds: int = Field(2, ge=1, le=1000)
    """Rounds in which they are asked; the student learns after each (R)."""
    ask: Literal["hard", "all"] = "hard"
    """``hard``: positions whose pseudo-label the student ranks low. ``all``: any position, at random."""
    candidate_filter: Literal["top-p", "top-k", "none"] = "top-p"
    """Tokens that an answer is about: the student's likeliest ``candidates``; only those of them that make up 0.95 of
    its probability (``top-p``); or the whole vocabulary."""
    candidates: int = Field(50, ge=1, le=100_000)
    """Largest number of tokens that an answer is about (K)."""
    answers: Literal["probabilities", "votes"] = "probabilities"
    """What a teacher answers: its probabilities of the candidates, or its first choice alone."""
    noise: Ablation[NoiseKind] = "gaussian"
    """Noise on the sums of answers: ``gaussian``, or ``laplace`` (pure DP); the latter if delta is 0."""


class StudentParameters(Parameters):
    """Public texts with pseudo-labels, and how the student learns."""

    pseudo_source: Literal["student", "base"] = "student"
    """Which model writes the public texts of later rounds: the current student, or the base model."""
    student_loss: StudentLoss = "kl"
    """How the student learns: from whole answers (``kl``), from their likeliest tokens (``top-answer``), from its own
    pseudo-labels and no answer (``pseudo-labels``), or from both after a warm-up, as published (``published``)."""
    prefixes: str | None = public_file(None)
    """A public file with beginnings of texts, one per line, which pseudo-sentences continue. Default: none."""
    prefixes_are_public: bool = False
    """Confirms that the prefixes were not made from private data."""
    learning_rate: float = Field(1e-2, gt=0, le=1)
    """Learning rate of the student's AdamW, at its highest."""


class PhraseParameters(Parameters):
    """An additional promise for phrases, besides that for records or owners."""

    phrases: str | None = private_file()
    """A private file with one phrase per line; the run checks that no phrase is in more records (owners) than
    declared."""
    phrase_shards: int | None = Field(None, ge=1, le=1_000_000)
    """Largest number of records (owners), and so of shards, that contain one phrase (n_s): declared."""


class SeqPATEParameters(TunedParameters, TeacherParameters, QueryParameters, StudentParameters, PhraseParameters):
    """All parameters of SeqPATE."""

    private_text_tokens: int = Field(64, ge=1, le=1_000_000)
    """Private texts and pseudo-sentences are cut, and padded, to this number of tokens."""

    adapted: ClassVar[str] = ALL
    blocks: ClassVar[int | None] = 2
    """Number of last blocks that teachers and student adapt; the trunk below is computed once for all teachers."""


def answers_name(number: int) -> str:
    """Return the name of a round's charge; the first round is 1."""
    return f"answers-{number}"


@dataclass(frozen=True)
class AnswersSpec:
    """The answers to a number of questions, summed over teachers. One unit changes the answers of one teacher.

    An answer is integers of 0 or more that add up to at most G, one step less than 1.0 in G = COUNT_GRID. Two such
    answers differ by at most 2 G in L1, and by at most sqrt(2) G in L2.

    Args:
        columns: tokens that an answer is about; None for the whole vocabulary.
    """

    questions: int
    columns: int | None

    @property
    def sensitivity(self) -> Sensitivity:
        l2 = math.nextafter(math.sqrt(2 * self.questions) * COUNT_GRID, math.inf)
        return Sensitivity(2 * self.questions * COUNT_GRID, l2, COUNT_GRID)

    @property
    def shape(self) -> Shape:
        return (self.questions, self.columns)


def teacher_count(parameters: SeqPATEParameters) -> int:
    """Return the number of teachers, M. Raises ConfigError if it exceeds the declared records, or is below two."""
    declared = parameters.declared
    teachers = min(_TEACHERS, declared // _RECORDS) if parameters.teachers is None else parameters.teachers
    if not 2 <= teachers <= declared:
        raise ConfigError(
            f"{teachers} teachers cannot share {declared} records (the declared number).",
            "Set --teachers to a number from 2 to --expected-records; for a smaller table, choose another method.",
        )
    return teachers


_TEACHERS, _RECORDS = 2000, 2
_NOISE = 0.035
"""Noise on a teacher-averaged probability if the number of questions is not given."""


@dataclass(frozen=True)
class Noise:
    """The noise that a budget leaves on the answers. ``one`` is its standard deviation on the sum of one answer over
    the teachers, if that were the only question."""

    kind: NoiseKind
    one: float

    def on_mean(self, queries: int, teachers: int) -> float:
        """Return the standard deviation on a teacher-averaged probability, given the total number of questions."""
        return self.one * (math.sqrt(queries) if self.kind == "gaussian" else queries) / teachers

    def queries(self, std: float, teachers: int) -> int:
        """Return how many questions in total lead to the standard deviation ``std`` on a teacher-averaged
        probability."""
        ratio = std * teachers / self.one
        return int(min(MOST_QUERIES, ratio**2 if self.kind == "gaussian" else ratio))


def noise_of(parameters: SeqPATEParameters, budget: Budget) -> Noise:
    """Return the noise that ``budget`` allows, after noisy label counts if these are asked for."""
    share = LABEL_SHARE if parameters.label_sizes == NOISY else 0.0
    multiplier, *_ = noise_multipliers(budget, (1 - share, *([share] if share else [])), parameters.noise)
    return Noise(parameters.noise, math.sqrt(2) * multiplier * (1 if parameters.noise == "gaussian" else 2))


def query_count(parameters: SeqPATEParameters, budget: Budget) -> int:
    """Return the number of questions, T: as given, or as many as keep the noise on an answer at 0.035, at least one per
    round."""
    found = parameters.queries
    if found is None:
        found = max(parameters.rounds, noise_of(parameters, budget).queries(_NOISE, teacher_count(parameters)))
    if found < parameters.rounds:
        raise ConfigError(
            f"{found} questions are too few for {parameters.rounds} rounds.",
            "Give fewer --rounds or more --queries.",
        )
    return found


def round_sizes(queries: int, rounds: int) -> list[int]:
    """Return how many questions each round asks, as evenly as possible."""
    return [queries * (number + 1) // rounds - queries * number // rounds for number in range(rounds)]


def planned_sums(parameters: SeqPATEParameters, budget: Budget, facts: PublicFacts) -> tuple[Charge, ...]:
    """Return the charges, calibrated so that together they spend ``budget`` and no more."""
    queries = query_count(parameters, budget)
    columns = None if parameters.candidate_filter == "none" else parameters.candidates
    share = LABEL_SHARE if parameters.label_sizes == NOISY else 0.0
    sums: dict[str, tuple[QuerySpec, str]] = {}
    shares = [share] if share else []
    if share:
        sums[LABELS] = planned_label_counts(facts.labels.size)
    asked = f"noisy answers of {teacher_count(parameters)} teachers to this round's questions"
    for number, size in enumerate(round_sizes(queries, parameters.rounds)):
        sums[answers_name(number + 1)] = AnswersSpec(size, columns), asked
        shares.append((1 - share) * size / queries)
    return charges_of(sums, noise_multipliers(budget, shares, parameters.noise), noise=parameters.noise)


def make_plan(parameters: SeqPATEParameters, budget: Budget, facts: PublicFacts) -> Plan:
    """Return the plan of a release."""
    _ = declared_proportions(parameters.label_sizes, facts.labels.names)  # checks them
    if parameters.rounds > PSEUDO_TEXTS:
        raise ConfigError(
            f"There are more rounds ({parameters.rounds}) than pseudo-sentences ({PSEUDO_TEXTS}).",
            "Give fewer --rounds.",
        )
    if parameters.noise == "gaussian" and budget.delta == 0:
        raise ConfigError("Gaussian noise needs a delta.", "Give a delta such as 1e-6, or laplace noise.")
    charges = planned_sums(parameters, budget, facts)
    notes = _phrase_note(parameters, budget, facts)
    return Plan(NAME, facts.unit, budget, charges, _forecast(parameters, budget, facts), notes)


def planned_queries(charges: Sequence[Charge]) -> int:
    """Return the number of questions, T, that a Release's charges pay for (a guide may have taken a share of the
    budget). Raises ReleaseError if the charges are not those of seq-pate."""
    total = 0
    for charge in charges:
        if charge.name.startswith(answers_name(0)[:-1]):
            mechanism = charge.mechanism
            asked = mechanism.shape[0] if isinstance(mechanism, NoisySum) else None
            if asked is None:
                raise ReleaseError(
                    "The Release was changed: its charges are not those of seq-pate.",
                    "Ask the sender for a new copy.",
                )
            total += asked
    return total


def phrase_epsilon(parameters: SeqPATEParameters, budget: Budget) -> float:
    """Return epsilon, at the budget's delta, for a phrase in ``phrase_shards`` shards: each question's sum moves by
    that many teachers' answers."""
    shards = parameters.phrase_shards or 1
    if parameters.noise == "laplace":
        return float(budget.epsilon) * shards
    multiplier = gaussian_split(budget, (1.0,))[0]
    return Composition((GaussianEvent(multiplier / shards),)).epsilon(float(budget.delta))


def _phrase_note(parameters: SeqPATEParameters, budget: Budget, facts: PublicFacts) -> tuple[str, ...]:
    if (parameters.phrases is None) != (parameters.phrase_shards is None):
        raise ConfigError(
            "A promise for phrases needs both the phrases and the largest number of records that contain one.",
            f"Give --phrases FILE, and --phrase-shards N, the largest number of {facts.unit.kind}s with one phrase.",
        )
    if parameters.phrase_shards is None:
        return ()
    if parameters.label_sizes == NOISY:
        raise ConfigError(
            "With --phrases, label counts cannot be noisy: the promise for phrases would not cover them.",
            "Give --label-sizes uniform or proportions, or leave --phrases out.",
        )
    shards, kind = parameters.phrase_shards, facts.unit.kind
    found = phrase_epsilon(parameters, budget)
    return (
        "Phrases: the run checked that no phrase of a list that the data holder keeps is in more than "
        f"{plural(shards, kind)}, and so in the shards of more than {plural(shards, 'teacher')}. If neighbours differ "
        f"by all records that contain one of these phrases, the release is ({round_up(found)}, "
        f"{as_typed(budget.delta)})-differentially private. That this check passed is itself not covered by the "
        f"promise for one {kind}.",
    )


def _forecast(parameters: SeqPATEParameters, budget: Budget, facts: PublicFacts) -> Facts:
    units, teachers = f"{facts.unit.kind}s", teacher_count(parameters)
    noise, queries = noise_of(parameters, budget), query_count(parameters, budget)
    std = noise.on_mean(queries, teachers)
    entries = [
        Fact("declared_records", parameters.declared, f"{units} (as declared)"),
        Fact("teachers", teachers, "teachers"),
        Fact("records_per_teacher", parameters.declared / teachers, f"{units} per teacher, on average"),
        Fact("queries", queries, "questions to the teachers"),
        Fact("rounds", parameters.rounds, "rounds"),
        Fact("answer_noise", std, "noise on a teacher-averaged probability (std)"),
        *(
            Fact(f"answer_noise_at_{each}", noise.on_mean(each, teachers), f"the same if {each:,} questions were asked")
            for each in _SHOWN
        ),
    ]
    if parameters.phrase_shards is not None:
        title = f"epsilon for a phrase in at most {parameters.phrase_shards} {units} (shards)"
        entries.append(Fact("phrase_epsilon", phrase_epsilon(parameters, budget), title))
    return Facts(tuple(entries), verdict=verdict(noise, queries, teachers))


def verdict(noise: Noise, queries: int, teachers: int) -> Verdict:
    """Return the verdict, by the noise on an answer if only the fewest questions that can teach a student are asked."""
    return Verdict.of("answers", least=noise.on_mean(max(queries, _FEWEST_QUERIES), teachers))


_FEWEST_QUERIES = 1000


_SHOWN = (100, 1000, 4000, 20_000)
