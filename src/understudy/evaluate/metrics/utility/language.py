"""Are the texts good for tuning a language model? One tuned on them predicts real texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError
from understudy.evaluate.metrics.intervals import bootstrap
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import REAL, Metric, MetricValue
from understudy.models.machine import single_threaded_inference
from understudy.models.training import (
    AdamW,
    Block,
    LearningRate,
    TokenRow,
    Weights,
    losses_of,
    target_logits,
    token_losses,
)

if TYPE_CHECKING:
    from understudy.models.causal import CausalModel

UNTUNED = "untuned"
_BATCH = 8
_WEIGHT_DECAY = 0.01
"""As torch's AdamW has it."""
_MOST_NATS = 69.0  # per token
_HOW = (
    "A causal language model whose last blocks are tuned on the table's texts predicts real test texts, each token "
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


def rows_of(causal: CausalModel, texts: Sequence[str], *, tokens: int) -> list[TokenRow]:
    """The texts' first ``tokens`` tokens each, or as many as the model's window holds, after one that begins a text.

    That one is the tokenizer's beginning-of-sequence token, without it its end-of-sequence token; without either a
    text's first token is no target. Texts that leave no target are left out.
    """
    start = causal.begin or sorted(causal.ends)[:1]
    most = min(tokens, causal.window - len(start))
    cut = [causal.encode(text)[:most] for text in texts]
    split = [(start, each) if start else (each[:1], each[1:]) for each in cut]
    return [TokenRow(prompt, np.array(target, dtype=np.int32)) for prompt, target in split if target]


@dataclass(frozen=True, eq=False)
class Scores:
    """What a model made of N texts.

    Args:
        surprise: each text's negative log-likelihood in nats, ``Float64[N]``.
        right: how many of its tokens had the highest probability of all, ``Int64[N]``.
        tokens: how many there are, ``Int64[N]``.
    """

    surprise: NDArray[np.float64]
    right: NDArray[np.int64]
    tokens: NDArray[np.int64]


def score(causal: CausalModel, network: Any, rows: Sequence[TokenRow]) -> Scores:
    """Predict every target of ``rows`` from the tokens before it.

    Args:
        network: the model's own, or one made of it.
    """
    surprise, right = np.zeros(len(rows)), np.zeros(len(rows), dtype=np.int64)
    tokens = np.array([len(row.target) for row in rows], dtype=np.int64)
    by_length = np.argsort(tokens, kind="stable")
    with single_threaded_inference():
        for first in range(0, len(rows), _BATCH):
            numbers = by_length[first : first + _BATCH]
            block = Block.around([rows[number] for number in numbers], device=causal.device)
            logits = target_logits(causal, network, block)
            surprise[numbers] = losses_of(logits, block).double().sum(1).cpu().numpy()
            right[numbers] = ((logits.argmax(-1) == block.targets) & block.wanted).sum(1).cpu().numpy()
    return Scores(surprise, right, tokens)


@dataclass(frozen=True)
class Recipe:
    """How a model is tuned: AdamW, its rate falling to 0 in a line, gradients clipped to norm 1.

    Args:
        texts: most texts to tune on.
        tokens: most tokens of a text, from its beginning.
        epochs: how often each text is seen.
        blocks: how many of the model's last blocks learn.
        batch: texts per step.
        rate: the first step's learning rate.

    Raises:
        ConfigError: one of them is not positive.
    """

    texts: int = 200
    tokens: int = 64
    epochs: int = 2
    blocks: int = 6
    batch: int = 8
    rate: float = 3e-4

    def __post_init__(self) -> None:
        if min(self.texts, self.tokens, self.epochs, self.blocks, self.batch) < 1 or not 0 < self.rate < 1:
            raise ConfigError(
                "A language model is tuned on at least one text, token, epoch, block and text a step, at a rate "
                "between 0 and 1.",
                "Give positive numbers, or leave them out.",
            )


def tune(weights: Weights, rows: Sequence[TokenRow], recipe: Recipe, *, seed: int) -> None:
    """Tune a model's last blocks to predict ``rows``, at least one.

    Without dropout, and with the learning weights in float32 whatever the network computes in, so that the outcome
    depends on nothing but the arguments and the device.

    Args:
        seed: of the order of texts.
    """
    causal, generator = weights.causal, np.random.default_rng(seed)
    batches = [
        [rows[number] for number in order[first : first + recipe.batch]]
        for order in (generator.permutation(len(rows)) for _ in range(recipe.epochs))
        for first in range(0, len(rows), recipe.batch)
    ]
    rate = LearningRate(recipe.rate, len(batches))
    optimizer = AdamW(weights.start(), rate, device=causal.device, weight_decay=_WEIGHT_DECAY)
    for batch in batches:
        block = Block.around(batch, device=causal.device)
        gradient = weights.gradient(partial(_loss, weights, block))
        optimizer.step(gradient / gradient.norm().clamp(min=1.0))
        weights.load(optimizer.weights)


def _loss(weights: Weights, block: Block) -> Any:
    return token_losses(weights.causal, weights.network, block).sum() / block.counts.sum()


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
) -> tuple[MetricValue, ...]:
    """Perplexity, next-token accuracy and bits per character of a small language model on real test texts.

    Tuned on each synthetic table, as it is (``untuned``), and tuned on as many real texts (``real``). The model reads
    private text, so it is one on this machine. Intervals: bootstrap over the test texts; the tuning is done once.

    Args:
        train_real: real texts that are not among the test texts; None for no values of ``real``.
        test_real: real test texts.
        synthetic: tables by name, each to tune on.
        model: ``builtin``, ``hf:ORG/NAME`` or ``hf:./FOLDER``.
        device: ``"cpu"`` or ``"cuda"``; default CUDA where there is one.
        recipe: how it is tuned; default :class:`Recipe`'s.
        test_texts: most test texts; sampled at random.
        seed: of everything random.

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
    causal, copying = load_causal(model, device=device), Lock()
    test = rows_of(causal, test_real.at_most(test_texts, seed=seed).texts, tokens=recipe.tokens)
    tables = {name: each.at_most(recipe.texts, seed=seed) for name, each in synthetic.items()}
    if train_real is not None:
        most = max((len(each) for each in tables.values()), default=recipe.texts)
        tables[REAL] = train_real.at_most(most, seed=seed)

    characters = np.array([len(causal.decode(row.target.tolist())) for row in test], dtype=np.int64)

    def values(name: str) -> list[MetricValue]:
        if len(test) == 0:
            return _without(name, model, "no test text has a target token")
        if name == UNTUNED:
            found, note = score(causal, causal.network, test), "not tuned"
        else:
            rows = rows_of(causal, tables[name].texts, tokens=recipe.tokens)
            if len(rows) == 0:
                return _without(name, model, "there is no text to tune on")
            with copying:
                weights = Weights(causal, blocks=recipe.blocks)
            tune(weights, rows, recipe, seed=seed)
            found = score(causal, weights.network, test)
            note = f"tuned on {len(rows)} texts of at most {recipe.tokens} tokens"
        return _values(name, found, characters, model=model, note=note, seed=seed)

    with worker_pool(causal.device) as pool:
        return tuple(measured for each in pool.map(values, (UNTUNED, *tables)) for measured in each)


def perplexity(scores: Scores, rows: NDArray[np.int64]) -> float:
    """Of the texts at ``rows``."""
    return float(np.exp(scores.surprise[rows].sum() / scores.tokens[rows].sum()))


def is_finite(scores: Scores) -> bool:
    """Whether the perplexity of any of the texts is a number that an evaluation can hold (at most 1e30)."""
    return bool((scores.surprise <= _MOST_NATS * scores.tokens).all())


def _values(
    name: str, scores: Scores, characters: NDArray[np.int64], *, model: str, note: str, seed: int
) -> list[MetricValue]:
    bits = scores.surprise / np.log(2)
    statistics: dict[Metric, Callable[[NDArray[np.int64]], float]] = {
        PERPLEXITY: lambda rows: perplexity(scores, rows),
        ACCURACY: lambda rows: float(scores.right[rows].sum() / scores.tokens[rows].sum()),
        BITS: lambda rows: float(bits[rows].sum() / characters[rows].sum()),
    }
    if not is_finite(scores):
        return _without(name, model, "the model's perplexity is not finite")
    rows, over, settings = np.arange(len(bits)), "the test texts", {"model": model}
    return [
        MetricValue(metric, each(rows), name, bootstrap(each, len(rows), seed=seed, over=over), settings, note)
        for metric, each in statistics.items()
    ]


def _without(name: str, model: str, note: str) -> list[MetricValue]:
    metrics = (PERPLEXITY, ACCURACY, BITS)
    return [MetricValue(metric, None, name, settings={"model": model}, note=note) for metric in metrics]
