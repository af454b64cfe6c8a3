"""A guide in a run: measured beside what the method releases, and used to choose among what it writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from understudy.config import RunConfig
from understudy.corpus.bounding import BoundedCorpus
from understudy.errors import ConfigError, ReleaseError
from understudy.guide.choosing import choose
from understudy.guide.guide import Guide, noise_check
from understudy.guide.parameters import GuideParameters
from understudy.guide.plan import GUIDE
from understudy.methods.base import Method, Released, ReleaseTools, needed
from understudy.models.types import Embedder
from understudy.privacy.facts import Facts
from understudy.privacy.plan import Plan
from understudy.queries.guide import GuideSums
from understudy.release import Release
from understudy.writing.records import SyntheticRecord

_PHRASES, _TEXTS = 8, 3
"""Candidates for each record that is kept: phrases cost an embedding, texts an answer of a language model."""


def with_guide(released: Released, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
    """What a method released, and the guide of the same records."""
    embedder = needed(tools.embedder)
    sums = tools.measure(GUIDE, GuideSums(embedder, tools.labels.size, tools.dimension), corpus).value
    check = noise_check(Guide(sums, plan.mechanism(GUIDE).noise_std))
    return replace(
        released,
        arrays={**released.arrays, GUIDE: sums},
        public_inputs={
            **released.public_inputs,
            "embedder": {"source": embedder.model_id, "sha256": embedder.fingerprint},
        },
        noise_check=Facts(
            (*released.noise_check.entries, *check.entries), (*released.noise_check.warnings, *check.warnings)
        ),
    )


def has_guide(made: Release) -> bool:
    """Whether the Release was made with ``--guide``."""
    return bool(made.parameters.get("guide"))


def require_guide(made: Release, options: dict[str, object]) -> None:
    """See that nothing is asked of a guide that the Release does not have; else ConfigError."""
    asked = [name for name in ("guide", "guide_candidates", "guide_moves") if options.get(name)]
    if asked and not has_guide(made):
        raise ConfigError(
            f"{asked[0]!r} is about the guide of a Release, and this one was made without.",
            "Leave it out, or release with --guide.",
        )


def guide_parameters(config: RunConfig) -> dict[str, object]:
    """What a Release says of its guide; nothing where it has none."""
    return config.part(GuideParameters).model_dump(mode="json") if config.guide else {}


def candidates(config: RunConfig, method: Method) -> int:
    """Texts made for each one that is kept."""
    if not config.guide:
        return 1
    phrases = config.llm == "none" and method.needs.generation_llm == "optional"
    return config.guide_candidates or (_PHRASES if phrases else _TEXTS)


@dataclass(frozen=True)
class Chooser:
    """Chooses among a run's texts by the Release's guide.

    Args:
        guide: of the Release.
        embedder: that the guide was made with.
        moves: whether texts may go to another label than they were made for.
        say: takes a line for the user.
    """

    guide: Guide
    embedder: Embedder
    moves: bool = False
    say: Callable[[str], None] = lambda _line: None

    @classmethod
    def of(cls, made: Release, embedder: Embedder, *, moves: bool, say: Callable[[str], None]) -> Chooser:
        """Raises ReleaseError if the embedder is not the one that the Release names."""
        named = made.statement.public_inputs["embedder"]
        if embedder.fingerprint != named["sha256"]:
            raise ReleaseError(
                f"The guide of this Release is made of embeddings of {named['source']}, not of {embedder.model_id}.",
                "Generate with the embedder that it was made with (--embedder), or without the guide "
                "(--guide-candidates 1).",
            )
        charge = next(charge for charge in made.statement.charges if charge.name == GUIDE)
        return cls(Guide(made.arrays[GUIDE], charge.mechanism.noise_std), embedder, moves, say)  # type: ignore[attr-defined]

    def choose(self, records: Sequence[SyntheticRecord], counts: Sequence[int]) -> list[SyntheticRecord]:
        """``counts[label]`` of the records of each label, and fewer where there are no more with a text."""
        there = [record for record in records if record.text]
        labels = np.array([record.label for record in there], dtype=np.int64)
        if not there:
            return list(records)[: sum(counts)]
        vectors = np.asarray(self.embedder.embed([record.text for record in there]), dtype=np.float32)
        choice = choose(self.guide, vectors, labels, counts, moves=self.moves)
        kept = [
            replace(
                there[index],
                label=label,
                provenance={**there[index].provenance, "chosen_from": len(there)}
                | ({"made_for": there[index].label} if there[index].label != label else {}),
            )
            for label, chosen in enumerate(choice.chosen)
            for index in chosen.tolist()
        ]
        told = f"The guide chose {len(kept)} of {len(there)} texts"
        if len(counts) > 1:
            told += f", of which {choice.confirmed} speak for their label"
        self.say(f"{told}{f' ({choice.moved} were moved to another)' if choice.moved else ''}.")
        missing = [
            SyntheticRecord("", label, {"source": "none"})
            for label, count in enumerate(counts)
            for _ in range(count - len(choice.chosen[label]))
        ]
        return kept + missing
