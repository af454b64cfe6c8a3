"""Is the synthetic text good for tuning a language model? One tuned on it meets real texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ConfigError
from understudy.metrics.intervals import bootstrap
from understudy.metrics.sample import Sample
from understudy.metrics.utility.next_tokens import Scores, rows_of, score
from understudy.metrics.utility.tuning import Recipe, tuned
from understudy.metrics.value import REAL, Figure, Metric

UNTUNED = "untuned"

_HOW = (
    "A causal language model whose last blocks are tuned on the table's texts foretells real test texts, each token "
    "from those before it in its text, the first from the tokenizer's token for the beginning (or else the end) of a "
    "text; texts are cut, padding is left out."
)
_SOURCE = "Xie et al. 2024 (Aug-PE), section 4; Radford et al. 2019 for the untuned model's"

PERPLEXITY = Metric(
    "language_model_perplexity",
    "Perplexity of a tuned language model",
    "utility",
    f"{_HOW} exp of the mean negative log-likelihood per token over all test texts; from 1 (certain) on, the size of "
    "the vocabulary for a model that knows nothing.",
    _SOURCE,
    "lower",
)
ACCURACY = Metric(
    "language_model_accuracy",
    "Next-token accuracy of a tuned language model",
    "utility",
    f"{_HOW} The share of tokens to which it gives the highest probability of all; 0 to 1.",
    _SOURCE,
    "higher",
)
BITS = Metric(
    "language_model_bits",
    "Bits per character of a tuned language model",
    "utility",
    f"{_HOW} The negative log-likelihood in bits of all test texts by their characters; from 0 on, comparable between "
    "models of different vocabularies.",
    _SOURCE,
    "lower",
)


def measure_language_model(
    train_real: Sample | None,
    test_real: Sample,
    synthetic: Mapping[str, Sample],
    *,
    model: str = "builtin",
    device: str | None = None,
    recipe: Recipe | None = None,
    test_texts: int = 200,
    seed: int = 0,
) -> tuple[Figure, ...]:
    """Perplexity, next-token accuracy and bits per character of a small language model on real test texts.

    Tuned on each synthetic table, as it is (``untuned``), and tuned on as many real texts (``real``). The model reads
    private text, so it is one on this machine. Intervals: bootstrap over the test texts; the tuning is done once.

    Args:
        train_real: real texts that are not among the test texts; None for no figures of ``real``.
        test_real: real test texts.
        synthetic: tables by name, each to tune on.
        model: ``builtin``, ``hf:ORG/NAME`` or ``hf:./FOLDER``.
        device: ``"cpu"`` or ``"cuda"``; default CUDA where there is one.
        recipe: how it is tuned; default :class:`Recipe`'s.
        test_texts: most test texts; drawn at random.
        seed: of all draws.

    Raises:
        ConfigError: a table has the name of a yardstick, or there is room for no test text.
        ModelError: the model is none on this machine, or cannot be loaded.
    """
    from understudy.models.catalog import load_causal
    from understudy.models.machine import worker_pool

    if {UNTUNED, REAL} & set(synthetic) or test_texts < 1:
        raise ConfigError(
            f"A synthetic table may not be called {UNTUNED} or {REAL}, and at least one test text is needed.",
            "Give the table another name, or more test texts.",
        )
    recipe = recipe or Recipe()
    causal = load_causal(model, device=device)
    causal.network.requires_grad_(False)
    test = rows_of(causal, test_real.at_most(test_texts, seed=seed).texts, tokens=recipe.tokens)
    tables = {name: each.at_most(recipe.texts, seed=seed) for name, each in synthetic.items()}
    if train_real is not None:
        most = max((len(each) for each in tables.values()), default=recipe.texts)
        tables[REAL] = train_real.at_most(most, seed=seed)

    def figures(name: str) -> tuple[Figure, ...]:
        network, note = causal.network, "not tuned"
        if len(test) == 0:
            return _without(name, model, "no test text has a token to foretell")
        if name != UNTUNED:
            rows = rows_of(causal, tables[name].texts, tokens=recipe.tokens)
            if len(rows) == 0:
                return _without(name, model, "there is no text to tune on")
            network = tuned(network, rows, recipe, seed=seed)
            note = f"tuned on {len(rows)} texts of at most {recipe.tokens} tokens"
        return _figures(name, score(network, test), model=model, note=note, seed=seed)

    with worker_pool(causal.device) as pool:
        return tuple(figure for each in pool.map(figures, (UNTUNED, *tables)) for figure in each)


def _figures(name: str, scores: Scores, *, model: str, note: str, seed: int) -> tuple[Figure, ...]:
    def perplexity(rows: NDArray[np.int64]) -> float:
        return float(np.exp(scores.surprise[rows].sum() / scores.tokens[rows].sum()))

    def accuracy(rows: NDArray[np.int64]) -> float:
        return float(scores.right[rows].sum() / scores.tokens[rows].sum())

    def bits(rows: NDArray[np.int64]) -> float:
        return float(scores.surprise[rows].sum() / scores.characters[rows].sum() / np.log(2))

    count = len(scores.tokens)
    statistics: dict[Metric, Callable[[NDArray[np.int64]], float]]
    statistics = {PERPLEXITY: perplexity, ACCURACY: accuracy, BITS: bits}
    if not np.isfinite(scores.surprise).all():
        return _without(name, model, "the model's logits are not finite")
    return tuple(
        Figure(
            metric,
            statistic(np.arange(count)),
            name,
            bootstrap(statistic, count, seed=seed, over="the test texts"),
            {"model": model},
            note,
        )
        for metric, statistic in statistics.items()
    )


def _without(name: str, model: str, note: str) -> tuple[Figure, ...]:
    return tuple(
        Figure(metric, None, name, settings={"model": model}, note=note) for metric in (PERPLEXITY, ACCURACY, BITS)
    )
