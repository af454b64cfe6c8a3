"""Has a released language model learnt from the private texts? It predicts real texts, and so does its base model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from understudy.evaluate.metrics.intervals import bootstrap
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.language import UNTUNED, Scores, is_finite, perplexity, score
from understudy.evaluate.metrics.value import SYNTHETIC, Metric, MetricValue
from understudy.methods.shared.decoding.tuned import TunedModel

PERPLEXITY = Metric(
    "released_model_perplexity",
    "Perplexity of the released language model",
    "utility",
    "The language model that the Release holds predicts real test texts, each token from the instruction that asks for "
    "a text of its label and from the tokens before it; texts are cut, and instructions and the token that ends a text "
    "are not predicted. exp of the mean negative log-likelihood per token over all test texts; from 1 (certain) on.",
    "Jelinek et al. 1977; Tian et al. 2022 (SeqPATE) for tuned models",
    "lower",
)
_TRAINED_ON = "the test texts are of the real table, on which the model was tuned: give others with --holdout"


def measure_released_model(
    test: Sample,
    tuned: TunedModel,
    *,
    tokens: int = 128,
    test_texts: int = 200,
    seed: int = 0,
    trained_on: bool = False,
) -> tuple[MetricValue, ...]:
    """Perplexity of a released model on real test texts, beside that of its base model (``untuned``).

    Both get the same instructions. Intervals: bootstrap over the test texts, the same resamples for both.

    Args:
        test: real texts, with the labels that the model knows if it knows any.
        tokens: most tokens of a text, from its beginning.
        test_texts: most texts; sampled at random.
        seed: of sample and intervals.
        trained_on: whether the model was tuned on these very texts; a note then says so.
    """
    from understudy.models.machine import worker_pool

    chosen = test.at_most(test_texts, seed=seed)
    rows = [replace(row, target=row.target[:tokens]) for row in tuned.rows(chosen.transcripts, chosen.labels)]

    def value(name: str) -> MetricValue:
        settings = {"model": tuned.causal.model_id}
        if not rows:
            note = "no test text has a known label and a token"
            return MetricValue(PERPLEXITY, None, name, settings=settings, note=note)
        if name == UNTUNED:
            scores, note = score(tuned.causal, tuned.causal.network, rows), "not tuned"
        else:
            with tuned.active():
                scores = score(tuned.causal, tuned.network, rows)
            note = _TRAINED_ON if trained_on else ""
        return _value(name, scores, settings=settings, note=note, seed=seed)

    with worker_pool(tuned.causal.device) as pool:
        return tuple(pool.map(value, (SYNTHETIC, UNTUNED)))


def _value(name: str, scores: Scores, *, settings: dict[str, str], note: str, seed: int) -> MetricValue:
    if not is_finite(scores):
        note = "the model's perplexity is not finite"
        return MetricValue(PERPLEXITY, None, name, settings=settings, note=note)
    count = len(scores.tokens)
    interval = bootstrap(lambda rows: perplexity(scores, rows), count, seed=seed, over="the test texts")
    return MetricValue(PERPLEXITY, perplexity(scores, np.arange(count)), name, interval, settings, note)
