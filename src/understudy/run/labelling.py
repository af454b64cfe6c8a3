"""Topics in a run in place of labels: found before the method reads a record, which it then reads with a label."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from understudy.base.labels import LabelSet
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.base import Released, ReleaseTools, needed
from understudy.methods.shared.labelling import BESIDE, TOPIC_CENTRES, TOPIC_SIZES, TOPIC_TERMS
from understudy.methods.topics.found import names_of
from understudy.methods.topics.release import TopicLabels, find
from understudy.privacy.plan import Plan


@dataclass(frozen=True, repr=False)
class Labelled:
    """The records with topics for labels.

    Args:
        corpus: the records. Private.
        labels: the topics' names.
        released: the topics, for the Release.
    """

    corpus: BoundedCorpus
    labels: LabelSet
    released: Released


def label_by_topics(corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools, *, candidates: Any) -> Labelled:
    """Find the topics of the records, with charges of their own, and give each record the nearest one for its label.

    Guarantee:
        Unit: a record; or an owner, of whom the same records count as without labels. The centres are released
        (:mod:`understudy.methods.topics.release`) before a record gets its label, which is a function of its own text
        and of them: a record has one label, as of a column, and the sensitivity of what is released by label is what
        it is there. Across sessions of a run a topic is computed anew, and may round otherwise: so each charge must be
        one measurement of all labels together, and a method that counts labels one by one under one charge is refused
        (``labels_in_parallel``). Labels of records never leave ``private/``; no text is read but to embed it.

    Args:
        tools: with as many labels as topics are looked for.
        candidates: what :func:`~understudy.methods.topics.release.embed_candidates` gave.
    """
    found = find(tools.labels.size, corpus, plan, replace(tools, prepared=candidates), beside=BESIDE)
    return Labelled(
        replace(corpus, label=TopicLabels(needed(tools.embedder), found.centres)),
        LabelSet(names_of(found.terms)),
        Released(
            {TOPIC_CENTRES: found.centres, TOPIC_SIZES: found.sizes},
            public_inputs={"topic terms": found.vocabulary, "embedder": found.embedder},
            noise_check=replace(found.check, verdict=None),
            strings={TOPIC_TERMS: found.terms},
        ),
    )
