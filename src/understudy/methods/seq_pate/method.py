"""SeqPATE: a student model that learns from noisy answers of many teachers, each tuned on one shard of the data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from understudy.methods.release_schema import Contents, Held
from understudy.methods.seq_pate import release as releasing
from understudy.methods.seq_pate.plan import (
    NAME,
    PSEUDO_TEXTS,
    SeqPATEParameters,
    answers_name,
    make_plan,
    planned_queries,
)
from understudy.methods.tuned.method import TunedMethod
from understudy.methods.tuned.model import COUNTS
from understudy.privacy.events import GaussianEvent, PureEvent
from understudy.release import Release

_INT32 = 2**31 - 1


class SeqPATE(TunedMethod, SeqPATEParameters):
    """Teachers, each tuned on one shard of the data, answer a student's questions with noise; any number of texts are
    then sampled from the student.

    >>> SeqPATE(declared_records=20_000, teachers=1000).teachers
    1000
    """

    name: ClassVar[str] = NAME
    pure: ClassVar[Mapping[str, Any]] = {"noise": "laplace"}
    no_weights: ClassVar[frozenset[str]] = frozenset(
        {
            COUNTS,
            *("pseudo_labels", "pseudo_lengths", "pseudo_tokens"),
            *("question_text", "question_place", "candidates", "answers"),
        }
    )

    plan = make_plan
    prepare = releasing.prepare
    release = releasing.release

    @property
    def alone(self) -> tuple[str, str] | None:
        problem = "The promise for phrases does not hold for a guide or for columns."
        return None if self.phrases is None else (problem, "Leave out --phrases, or --guide and --columns.")

    def contents(self, release: Release) -> Contents:
        """Describe the tuned student, and all questions and answers."""
        labels, queries = release.schema.label_set.size, planned_queries(release.statement.charges)
        columns: int | str = "columns" if self.candidate_filter == "none" else self.candidates
        arrays = {
            "pseudo_labels": Held("int32", (PSEUDO_TEXTS,), 0, labels - 1),
            "pseudo_lengths": Held("int32", (PSEUDO_TEXTS,), 1, self.private_text_tokens + 1),
            "pseudo_tokens": Held("int32", ("pseudo_tokens",), 0, _INT32),
            "question_text": Held("int32", (queries,), 0, PSEUDO_TEXTS - 1),
            "question_place": Held("int32", (queries,), 0, self.private_text_tokens),
            "candidates": Held("int32", (queries, columns), -1, _INT32),
            "answers": Held("float64", (queries, columns)),
        }
        kind = GaussianEvent.kind if self.noise == "gaussian" else PureEvent.kind
        return self.held(release, {answers_name(number + 1): kind for number in range(self.rounds)}, kind, arrays)
