"""DP-KPS: private keyphrases seed the prompts of any language model (Nagesh et al. 2025)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from understudy.base.errors import ConfigError, ReleaseError
from understudy.base.parameters import Parameters
from understudy.methods.base import Chats, Method, Needs, Preparation, Released, ReleaseTools
from understudy.methods.contents import Contents, Held
from understudy.methods.dp_kps.evolving import evolve_seeds
from understudy.methods.dp_kps.generate import lifts_of, released_noise, sample_sequences
from understudy.methods.dp_kps.plan import (
    COLUMN_DENSITY,
    NAME,
    VOCABULARY,
    DPKPSParameters,
    SequenceParameters,
    make_plan,
    needs_embeddings,
    phrase_columns,
    sketch_names,
)
from understudy.methods.dp_kps.rows import SequenceRows
from understudy.methods.public import CallEstimate, GenerationTools, PublicFacts
from understudy.methods.shared.tables.released import has_columns, variables_of
from understudy.privacy.events import GaussianEvent, PureEvent
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.plan import Plan
from understudy.release import Release
from understudy.text.prompts.template import PromptTemplate, WritingParameters
from understudy.text.vocabulary.terms import BUILT_IN, Vocabulary, load_vocabulary
from understudy.text.writing.records import Seed, SyntheticRecord
from understudy.text.writing.writer import Writer

if TYPE_CHECKING:
    from understudy.corpus.bounding import BoundedCorpus

_DIGEST_BYTES = 32
_CANDIDATES = 4
"""With a guide: sequences sampled for each one that it chooses."""


class DPKPS(Method, DPKPSParameters):
    """Keyphrase seeding with differential privacy.

    >>> DPKPS(bandwidth=0).noise
    'gaussian'
    """

    name: ClassVar[str] = NAME
    parameters: ClassVar[type[Parameters]] = DPKPSParameters
    generation_parameters: ClassVar[type[Parameters]] = SequenceParameters
    needs: ClassVar[Needs] = Needs(embedder="public")  # the terms of the released vocabulary alone

    @property
    def needs_embedder(self) -> bool:
        return needs_embeddings(self)

    def plan(self, budget: Budget | SecretBudget, facts: PublicFacts) -> Plan:
        assert isinstance(budget, Budget), "a method that does not protect secrets is given no other"
        return make_plan(self, budget, facts, vocabulary_size=len(self._vocabulary().terms))

    def prepare(self, corpus: BoundedCorpus, plan: Plan, preparation: Preparation) -> None:  # noqa: ARG002
        from understudy.methods.dp_kps.release import check_embeddings

        if preparation.embedder is not None and self.needs_embedder:
            check_embeddings(self, self._vocabulary(), preparation.embedder)

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        from understudy.methods.dp_kps.release import release  # only here: it reads private records

        return release(self, corpus, plan, vocabulary=self._vocabulary(), tools=tools)

    def longest_prompts(self, release: Release, writer: Writer) -> Chats:  # noqa: ARG002
        return writer.longest_prompts(self._vocabulary().terms, count=self.length)

    def estimate_calls(
        self, counts: Sequence[int], writing: WritingParameters, template: PromptTemplate
    ) -> CallEstimate:
        return CallEstimate.of_phrases(counts, writing, template, length=self.length)

    def contents(self, release: Release) -> Contents:
        """Noisy counts of N terms, a noisy sketch per label, and with a bandwidth embeddings and random features."""
        terms, columns, sketches = len(release.terms), len(release.terms), sketch_names(self)
        arrays = {"counts": Held("float64", (terms,))}
        if needs_embeddings(self):
            columns = 2 * self.features
            arrays["embeddings"] = Held("float32", (terms, "dimension"), -1.01, 1.01)
            arrays |= {f"frequencies-{length}": Held("uint8", (_DIGEST_BYTES,)) for length in sketches.values()}
        arrays |= {name: Held("float64", (release.schema.label_set.size, columns)) for name in sketches}
        known = "phrase_columns" in release.parameters and not release.schema.record_columns  # older ones have none
        typed = variables_of(release).columns if known and has_columns(release) else ()
        try:
            sizes = [typed[place].size for place in phrase_columns(self, typed)]
        except ConfigError:
            problem = "The phrases of this Release depend on columns that it does not have."
            raise ReleaseError(problem, "Ask whoever made it for the file again.") from None
        by_cell = {COLUMN_DENSITY: Held("float64", (sum(sizes), columns))} if sizes else {}
        kind = GaussianEvent.kind if self.noise == "gaussian" else PureEvent.kind
        return Contents(dict.fromkeys((VOCABULARY, *sketches, *by_cell), kind), arrays | by_cell, terms=None)

    def generate(self, release: Release, counts: Sequence[int], *, tools: GenerationTools) -> Iterator[SyntheticRecord]:
        times = 1 if tools.chooser is None else _CANDIDATES
        rows, known = None, lifts_of(self, release)
        if known is not None and tools.writer.rows is not None:
            columns, lifts = known
            power = 1 + self.contrast
            rows = SequenceRows.take(tools.writer.rows, counts, columns, lifts=lifts, power=power)
        sequences = sample_sequences(
            self,
            release.arrays,
            [count * times for count in counts],
            seed=int(release.parameters["seed"]),
            sampling_seed=tools.seed,
            noise=released_noise(self, release.statement),
            log_lifts=None if rows is None else rows.log_lifts(times),
        )
        seeds = [
            Seed(tuple(release.terms[term] for term in row if term >= 0), label)
            for label, found in enumerate(sequences)
            for row in found.tolist()
        ]
        if tools.chooser is not None:
            generator = np.random.default_rng([tools.seed, times])
            seeds = evolve_seeds(seeds, counts, chooser=tools.chooser, generator=generator, say=tools.say)
            seeds = seeds if rows is None else rows.shared_out(seeds, release.terms, generator)
        elif rows is not None:
            seeds = rows.beside(seeds)
        return tools.writer.write(seeds)

    def _vocabulary(self) -> Vocabulary:
        own = self.vocabulary != BUILT_IN or self.stop_words not in (None, "none")
        if own and not self.vocabulary_is_public:
            raise ConfigError(
                "A vocabulary or stop word list of your own must not be made from the private data.",
                "If it is public, say so with --vocabulary-is-public.",
            )
        return load_vocabulary(self.vocabulary, stop_words=self.stop_words)
