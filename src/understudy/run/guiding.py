"""A guide in a run: measured beside what the method releases, and used to choose among what it writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.base import Released, ReleaseTools
from understudy.methods.guided_evolution.release import release as release_guide
from understudy.methods.shared.guide.guide import Guide, choose, guide_of
from understudy.methods.shared.guide.plan import NO_EMBEDDER, ChoosingParameters
from understudy.models.catalog import embedder_here
from understudy.models.types import Embedder
from understudy.privacy.plan import Plan
from understudy.release import Release
from understudy.run.parts import PublicEmbedder
from understudy.run.session import Listener
from understudy.text.writing import SyntheticRecord

_AT_ONCE = 1024
"""Texts embedded between two words on how far it is."""


def with_guide(released: Released, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
    """What a method released, and the guide of the same records."""
    guide = release_guide(corpus, plan, tools)
    return replace(
        released,
        arrays={**released.arrays, **guide.arrays},
        public_inputs={**released.public_inputs, **guide.public_inputs},
        noise_check=released.noise_check + replace(guide.noise_check, verdict=None),
    )


def has_guide(made: Release) -> bool:
    """Whether the Release was made with ``--guide``."""
    return bool(made.parameters.get("guide"))


@dataclass(frozen=True)
class GuidedChooser:
    """Chooses among a run's texts by the Release's guide: a :class:`~understudy.methods.public.Chooser`.

    Args:
        say, progress: take a line for the user, and how far embedding is.
    """

    guide: Guide
    embedder: Embedder
    say: Callable[[str], None] = lambda _line: None
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None
    _known: dict[str, NDArray[np.float32]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(
        cls, made: Release, wanted: ChoosingParameters, named: PublicEmbedder, private: Path, listener: Listener
    ) -> GuidedChooser | None:
        """None where the Release has no guide, or it is to be ignored."""
        if not has_guide(made) or wanted.guide_candidates == 0:
            return None
        if wanted.guide_candidates is None and not embedder_here(named.embedder):
            listener.say(f"The guide of this Release is not used: {NO_EMBEDDER}.")
            return None
        embedder = named.load(private, made.schema.form)
        cure = "Generate with the embedder that it was made with (--embedder), or with guide_candidates: 0."
        return cls(guide_of(made, embedder, cure=cure), embedder, listener.say, listener.progress)

    def choose(self, texts: Sequence[str], labels: Sequence[int], counts: Sequence[int]) -> list[list[int]]:
        """As :class:`~understudy.methods.public.Chooser`; none is moved."""
        choice = choose(self.guide, self._vectors(texts), np.asarray(labels, dtype=np.int64), counts)
        return [chosen.tolist() for chosen in choice.chosen]

    def agreement(self, texts: Sequence[str], labels: Sequence[int]) -> float:
        """As :class:`~understudy.methods.public.Chooser`."""
        margins = self.guide.margins(self._vectors(texts), np.asarray(labels, dtype=np.int64))
        return float(np.mean(margins > 0)) if len(margins) else 1.0

    def choose_records(self, records: Sequence[SyntheticRecord], counts: Sequence[int]) -> list[SyntheticRecord]:
        """``counts[label]`` of the records of each label, those without a text last."""
        there = [record for record in records if record.text]
        labels = np.array([record.label for record in there], dtype=np.int64)
        choice = choose(self.guide, self._vectors([record.text for record in there]), labels, counts)
        kept = []
        for label, (count, chosen) in enumerate(zip(counts, choice.chosen, strict=True)):
            kept += [there[index] for index in chosen.tolist()]
            blank = (record for record in records if not record.text and record.label == label)
            kept += islice(blank, count - len(chosen))
        if len(there) > sum(counts):
            told = f"The guide chose {sum(map(len, choice.chosen))} of {len(there)} texts"
            if len(counts) > 1:
                told += f", {choice.confirmed} of which match the label that they were made for"
            self.say(f"{told}.")
        return kept

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The texts' vectors; texts of the previous call are not embedded again."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        found = dict[str, NDArray[np.float32]]()
        for start in range(0, len(new), _AT_ONCE):
            if len(new) > _AT_ONCE:
                self.progress("candidates embedded", start, len(new))
            found |= zip(new[start : start + _AT_ONCE], self.embedder.embed(new[start : start + _AT_ONCE]), strict=True)
        if len(new) > _AT_ONCE:
            self.progress("candidates embedded", len(new), len(new))
        found |= {text: self._known[text] for text in texts if text in self._known}
        self._known.clear()
        self._known.update(found)
        empty = np.zeros((0, self.guide.sums.shape[1] - 1), dtype=np.float32)
        return np.stack([found[text] for text in texts]) if texts else empty
