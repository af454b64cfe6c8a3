"""How much the texts of a table are like one another, by BLEU."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from understudy.metrics.intervals import bootstrap
from understudy.metrics.value import SYNTHETIC, Figure, Metric

TEXTS = 200

SELF_BLEU = Metric(
    name="self_bleu",
    title="Self-BLEU",
    family="fidelity",
    definition=(
        f"Mean sentence BLEU-4 of each of {TEXTS} texts of a table, drawn at random, against all the others of them; "
        "in [0, 1], the higher the less diverse. Tables of fewer texts have lower values."
    ),
    source="Zhu et al. 2018 (Texygen); sacrebleu's sentence BLEU (tokenizer 13a, exp smoothing, effective order)",
    better="same",
)


def self_bleu(texts: Sequence[str]) -> list[float]:
    """Each text's BLEU-4 against all others, in [0, 1]; at least two texts."""
    from sacrebleu.metrics import BLEU

    bleu = BLEU(effective_order=True)
    others = [[*texts[:place], *texts[place + 1 :]] for place in range(len(texts))]
    return [bleu.sentence_score(text, rest).score / 100 for text, rest in zip(texts, others, strict=True)]


def self_bleu_figures(texts: Sequence[str], of: str, *, seed: int, draws: int) -> tuple[Figure, ...]:
    """The mean over a sample, with an interval over its texts as hypotheses."""
    rows = np.sort(np.random.default_rng(seed).permutation(len(texts))[:TEXTS])
    scores = np.asarray(self_bleu([texts[row] for row in rows]))
    interval = bootstrap(
        lambda chosen: float(scores[chosen].mean()), len(scores), seed=seed, draws=draws, over=f"{len(scores)} texts"
    )
    return (Figure(SELF_BLEU, float(scores.mean()), of, interval, reads_private=of != SYNTHETIC),)
