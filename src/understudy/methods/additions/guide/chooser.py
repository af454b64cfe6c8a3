"""Choosing among a run's texts by a Release's guide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.methods.additions.guide.guide import Guide, choose, guide_of
from understudy.models.types import Embedder
from understudy.release import Release
from understudy.text.records import SyntheticRecord

_AT_ONCE = 1024
"""Number of texts embedded between two progress reports."""


@dataclass(frozen=True)
class GuidedChooser:
    """Chooses among a run's texts by the Release's guide: a :class:`~understudy.methods.facts.Chooser`.

    Args:
        say, progress: show the user a line, and how far embedding is.
    """

    guide: Guide
    embedder: Embedder
    say: Callable[[str], None] = lambda _line: None
    progress: Callable[[str, int, int], None] = lambda _what, _done, _total: None
    _known: dict[str, NDArray[np.float32]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def of(cls, made: Release, embedder: Embedder, **told: Any) -> GuidedChooser:
        """Return a chooser with the guide of a Release. Raises ReleaseError if the embedder is not the one that the
        Release names. ``told`` is passed on: ``say`` and ``progress``."""
        cure = "Generate with the embedder that it was made with (--embedder), or with guide_candidates: 0."
        return cls(guide_of(made, embedder, cure=cure), embedder, **told)

    def choose(self, texts: Sequence[str], labels: Sequence[int], counts: Sequence[int]) -> list[list[int]]:
        """Choose texts of each label (see :class:`~understudy.methods.facts.Chooser`). Texts keep their labels."""
        choice = choose(self.guide, self._vectors(texts), np.asarray(labels, dtype=np.int64), counts)
        return [chosen.tolist() for chosen in choice.chosen]

    def agreement(self, texts: Sequence[str], labels: Sequence[int]) -> float:
        """Return the share of texts that match their label (see :class:`~understudy.methods.facts.Chooser`)."""
        known = np.asarray(labels, dtype=np.int64)
        margins = self.guide.margins(self._vectors(texts), known)[self.guide.present[known]]
        return float(np.mean(margins > 0)) if len(margins) else 1.0

    def choose_records(self, records: Sequence[SyntheticRecord], counts: Sequence[int]) -> list[SyntheticRecord]:
        """Choose ``counts[label]`` of the records of each label. Records without a text come last."""
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
                told += f", {choice.confirmed} of which match their intended label"
            self.say(f"{told}.")
        return kept

    def _vectors(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Return the texts' vectors; texts of the previous call are not embedded again."""
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
