"""Topics: what a corpus is about, in noisy clusters that public terms name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np

from understudy.methods.additions.topics import release as releasing
from understudy.methods.additions.topics.found import topics_of
from understudy.methods.additions.topics.plan import NAME, TopicsParameters, make_plan
from understudy.methods.base import Method, Needs
from understudy.methods.facts import GenerationTools
from understudy.release import Release
from understudy.text.records import Seed, SyntheticRecord


class Topics(Method, TopicsParameters):
    """Find the topics of texts that have no labels.

    >>> Topics(topics=10).name
    'topics'
    """

    name: ClassVar[str] = NAME
    needs: ClassVar[Needs] = Needs(embedder=True)

    plan = make_plan
    prepare = releasing.prepare
    release = releasing.release
    contents = releasing.contents

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        """Yield ``counts[label]`` texts of each label, each around terms of one topic.

        Topics are sampled in proportion to their noisy sizes."""
        generator = np.random.default_rng([tools.seed, 0x70])
        found = [each for each in topics_of(release) if each.terms]
        if not found:
            return tools.writer.write([Seed(tools.writer.instead_of_phrases(0), 0)] * sum(counts))
        sizes = np.array([each.size for each in found]) + 1e-9
        places = generator.choice(len(found), size=sum(counts), p=sizes / sizes.sum())
        return tools.writer.write([Seed(found[place].some_terms(generator), 0) for place in places.tolist()])
