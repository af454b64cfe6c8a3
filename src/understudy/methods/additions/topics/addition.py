"""Topics as the labels of another method: they are found first, and each record gets the nearest as its label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.base.parameters import Parameters
from understudy.methods.additions.base import Addition, NoisyCounts, Releasing
from understudy.methods.additions.topics.found import names_of, topic_counts
from understudy.methods.additions.topics.labelling import (
    BESIDE,
    CHARGED_BESIDE,
    COLUMN,
    TERMS_OF_TOPIC,
    TOPIC_CENTRES,
    TOPIC_SIZES,
    TOPIC_TERMS,
    LabellingParameters,
)
from understudy.methods.additions.topics.plan import plan_with_topics
from understudy.methods.additions.topics.release import TopicLabels, embed_candidates, find
from understudy.methods.base import Method, Preparation, Released, needed
from understudy.methods.facts import PublicFacts
from understudy.methods.release_schema import Contents, Held
from understudy.methods.shared.evolution.embeddings import LARGEST_NORM
from understudy.privacy.plan import Plan
from understudy.release import Release
from understudy.schema.labels import LabelSet


@dataclass(frozen=True)
class TopicsAsLabels(Addition):
    """Topics instead of declared labels.

    Args:
        count: K.
        placeholders: names of the topics before they are found.
        candidates: ``Int16[candidates, d]``, the embeddings of the public candidates; None before they are made or in a
            resumed run.
    """

    name: ClassVar[str] = "topics"
    parameters: ClassVar[type[Parameters]] = LabellingParameters
    finds_labels: ClassVar[bool] = True
    embeds: ClassVar[bool] = True

    count: int
    placeholders: tuple[str, ...]
    candidates: NDArray[np.int16] | None = None

    @classmethod
    def of(cls, settings: Parameters, facts: PublicFacts) -> Self | None:
        """Return the addition if the run asks for topics. Raises ConfigError if an output column has the name of the
        topics' column."""
        count = settings.part(LabellingParameters).topics
        if not isinstance(count, int):
            return None
        if COLUMN in facts.written:
            raise ConfigError(
                f"A column of the table is called {COLUMN!r}, the name of the column of topics.",
                "Rename it in the table.",
            )
        return cls(count, facts.labels.names)

    def require(self, method: Method) -> None:
        """Raise ConfigError for a method whose charges assume that a record always has the same label.

        A record's topic is computed again in each session, and another machine or endpoint may round differently. The
        record could then count for two labels, under a charge that covers one.
        """
        super().require(method)
        if method.labels_in_parallel:
            raise ConfigError(
                f"Topics cannot be the labels of {method.name}, which needs every record to keep its label: a record's "
                "topic is computed again whenever a run is resumed, and may change.",
                "Choose another method (dp-kps, aug-pe, dp-finetune), or declare labels (--label, --labels).",
            )

    def is_first(self, _method: Method) -> bool:
        return True

    def plan(self, facts: PublicFacts, plan_rest: Callable[[Any], Plan], budget: Any) -> Plan:
        return plan_with_topics(plan_rest, budget, topics=facts.labels.size, unit=facts.unit)

    def prepare(self, preparation: Preparation) -> Self:
        return replace(self, candidates=embed_candidates(preparation.labels.size, preparation))

    def release(self, at: Releasing, plan: Plan) -> Releasing:
        """Find the topics of the records, and give each record the nearest one for its label.

        Guarantee:
            Unit: a record; or an owner, of whom the same records count as without labels. The centres are released
            (:mod:`understudy.methods.additions.topics.release`) before a record gets its label, which is a function of
            its own text and of them: a record has one label, as from a column, and releases by label have the same
            sensitivity as with a column. Each session of a run computes a record's topic again, and may round
            differently: so each charge must be one measurement of all labels together, and a method that counts labels
            one by one under one charge is refused (``labels_in_parallel``). Labels of records never leave ``private/``;
            a text is read only to embed it.
        """
        tools = replace(at.tools, prepared=self.candidates)
        found = find(tools.labels.size, at.corpus, plan, tools, beside=BESIDE)
        labels = LabelSet(names_of(found.terms))
        made = Released(
            {TOPIC_CENTRES: found.centres, TOPIC_SIZES: found.sizes},
            public_inputs={"topic terms": found.vocabulary, "embedder": found.embedder},
            noise_check=replace(found.check, verdict=None),
            strings={TOPIC_TERMS: found.terms},
        )
        return Releasing(
            replace(at.corpus, label=TopicLabels(needed(tools.embedder), found.centres)),
            replace(at.tools, labels=labels),
            replace(at.planned, schema=replace(at.planned.schema, labels=labels.names)),
            at.released | made,
        )

    def planned(self, planned: Release) -> Release:
        schema = replace(planned.schema, label=COLUMN, labels=self.placeholders, topics=True)
        return replace(planned, schema=schema, statement=replace(planned.statement, labels_found=True))

    @classmethod
    def is_in(cls, release: Release) -> bool:
        return release.schema.topics

    @classmethod
    def contents(cls, contents: Contents, release: Release) -> Contents:
        """Describe the topics' centres, noisy sizes and terms."""
        topics = release.schema.label_set.size
        return contents.joined(
            CHARGED_BESIDE,
            {
                TOPIC_CENTRES: Held("int16", (topics, "dimension of topics"), -LARGEST_NORM, LARGEST_NORM),
                TOPIC_SIZES: Held("float64", (topics,), -1e15, 1e15),
            },
            {TOPIC_TERMS: topics * TERMS_OF_TOPIC},
            ("embedder",),
        )

    @classmethod
    def label_counts(cls, release: Release) -> NoisyCounts | None:
        return topic_counts(release)
