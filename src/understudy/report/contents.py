"""The contents of a page and their sources: :func:`shareable` gets the shareable folder and nothing else."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from understudy.audit.result import RunAudit, load_audit
from understudy.base.errors import ConfigError
from understudy.evaluate.metrics import require_evaluate
from understudy.evaluate.metrics.fidelity.texts import distinct_values
from understudy.evaluate.metrics.overview import Overview, make_overview, profiles
from understudy.evaluate.metrics.results import ReleasedMetrics
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import SYNTHETIC, MetricValue
from understudy.evaluate.synthetic import SyntheticText, first_rows, read_evaluation, read_released, read_synthetic
from understudy.methods.registry import load_release
from understudy.models.types import Embedder
from understudy.release import PublicSchema, Release
from understudy.release.statement import Statement
from understudy.run.outputs import read_statement, schema_of_table
from understudy.schema.columns import Column
from understudy.schema.transcript import TextForm

MOST = 2000
"""Largest number of texts for topics and the map; embedding more would take minutes."""
RESAMPLES = 100


@dataclass(frozen=True)
class Contents:
    """Everything that one page shows.

    Args:
        internal: whether anything in it was computed on private texts without a charge.
        release: the Release, if it is in the statement's folder.
        overview: what the tables look like; None without texts.
        no_map: the reason if there is no map; else empty.
    """

    internal: bool
    statement: Statement
    release: Release | None
    texts: tuple[SyntheticText, ...]
    charged: ReleasedMetrics | None
    values: tuple[MetricValue, ...] = ()
    overview: Overview | None = None
    no_map: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    audit: RunAudit | None = None
    table: Sequence[Sequence[str]] = ()
    """The names of the synthetic table's columns, and its first rows."""

    @property
    def promises(self) -> bool:
        """Return whether the page's promise holds: everything that was released has its noise."""
        return self.statement.private and (self.charged is None or self.charged.private)


def shareable(release: Path, *, embedder: Embedder | None, seed: int) -> Contents:
    """Return what may be handed out: the statement, the Release, the synthetic texts, figures computed from these
    texts, and what was released with a charge.

    Args:
        release: the shareable folder of a run. Nothing else is read.
        embedder: for topics and the map; None: they use the words of the texts.
    """
    statement = read_statement(release)
    path = release / f"{statement.method}.release"
    made = load_release(path) if path.exists() else None
    schema = schema_of_table(release) or PublicSchema()
    columns = tuple(column for column in schema.columns if not column.made_up)
    texts = read_synthetic(release, columns)
    summary = _summary(texts, columns, schema.form, embedder, seed) if texts else {}
    table = first_rows(release)
    return Contents(False, statement, made, texts, read_released(release), **summary, table=table)


def internal(public: Contents, release: Path, private: Path) -> Contents | None:
    """Add all measurements on private texts to ``shown``; return None if there are none, or they may not be read."""
    evaluated, audited = private / "evaluation.json", private / "audit.json"
    if not os.access(private, os.R_OK | os.X_OK) or not (evaluated.exists() or audited.exists()):
        return None
    found = replace(public, internal=True, audit=load_audit(audited) if audited.exists() else None)
    evaluation = read_evaluation(release, evaluated)
    if evaluation is None:
        return found
    return replace(
        found,
        values=evaluation.values or public.values,
        overview=evaluation.overview or public.overview,
        settings=evaluation.settings,
    )


def _summary(
    texts: Sequence[SyntheticText], columns: tuple[Column, ...], form: TextForm, embedder: Embedder | None, seed: int
) -> dict[str, Any]:
    """Return a summary of the synthetic rows alone, which may be handed out: lengths, labels, columns, topics, a map,
    distinct n-grams. (Self-BLEU takes a minute; an evaluation has it.)
    """
    labels = tuple(text.label for text in texts if text.label is not None)
    cells = [text.cells for text in texts if text.cells is not None]
    sample = Sample(tuple(each.text for each in texts), labels if len(labels) == len(texts) else None, form=form)
    if columns and len(cells) == len(texts):
        sample = replace(sample, cells=np.array(cells, np.int32), columns=columns)
    profile = profiles({SYNTHETIC: sample})
    try:
        require_evaluate()
    except ConfigError as missing:
        why = f"The map is missing: {missing.problem[0].lower()}{missing.problem[1:]}"
        return {"overview": Overview(profile, (), ()), "no_map": why}
    some = sample.at_most(MOST, seed=seed)
    if embedder is not None:
        some = replace(some, embeddings=embedder.embed(some.texts))
    overview = replace(make_overview({SYNTHETIC: some}, seed=seed), profiles=profile)
    words, several = sample.words, len(sample) > 1
    total = sum(map(len, words))
    values = distinct_values(words, SYNTHETIC, total=total, seed=seed, resamples=RESAMPLES) if several else ()
    return {"values": tuple(replace(each, reads_private=False) for each in values), "overview": overview}
