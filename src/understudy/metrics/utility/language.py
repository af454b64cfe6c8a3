"""Are the texts good for tuning a language model? One tuned on them predicts real texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.errors import ConfigError
from understudy.metrics.intervals import bootstrap
from understudy.metrics.sample import Sample
from understudy.metrics.value import REAL, Metric, MetricValue
from understudy.models.machine import single_threaded_inference

if TYPE_CHECKING:
    from understudy.models.causal import CausalModel

UNTUNED = "untuned"
_BATCH = 8
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


@dataclass(frozen=True, eq=False, repr=False)
class Rows:
    """Texts in tokens, each after the token that begins a text.

    Args:
        start: what every row begins with: the tokenizer's beginning-of-sequence token, without one its end-of-sequence
            token, without either nothing.
        tokens: the whole rows, ``start`` included. Texts are cut; those that leave no target token are left out.
        characters: how many characters of each text are targets.
    """

    start: tuple[int, ...]
    tokens: tuple[tuple[int, ...], ...]
    characters: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.tokens)


def rows_of(model: CausalModel, texts: Sequence[str], *, tokens: int) -> Rows:
    """The texts' first ``tokens`` tokens each, or as many as the model's window holds."""
    start = tuple(model.begin or sorted(model.ends)[:1])
    most = min(tokens, model.window - len(start))
    first = 0 if start else 1
    cut = [tuple(model.encode(text)[:most]) for text in texts]
    cut = [each for each in cut if len(each) > first]
    return Rows(start, tuple((*start, *each) for each in cut), tuple(len(model.decode(each[first:])) for each in cut))


def predictions(network: Any, rows: Rows, numbers: Sequence[int]) -> tuple[Any, Any, Any]:
    """The logits before each token that is a target, in the rows at ``numbers``.

    Rows are padded at their right end, where a causal model does not look.

    Returns:
        logits ``Float32[T, V]``, the true tokens ``Int64[T]``, and each one's place in ``numbers`` ``Int64[T]``.
    """
    import torch
    from torch.nn.utils.rnn import pad_sequence

    device = network.device
    padded = pad_sequence([torch.tensor(rows.tokens[number]) for number in numbers], batch_first=True).to(device)
    ends = torch.tensor([len(rows.tokens[number]) for number in numbers], device=device)[:, None]
    places = torch.arange(1, padded.shape[1], device=device)
    wanted = (places >= len(rows.start)) & (places < ends)
    logits = network(input_ids=padded[:, :-1]).logits
    return logits[wanted].float(), padded[:, 1:][wanted], wanted.nonzero()[:, 0]


@dataclass(frozen=True, eq=False)
class Scores:
    """What a model made of N texts.

    Args:
        surprise: each text's negative log-likelihood in nats, ``Float64[N]``.
        right: how many of its tokens had the highest probability of all, ``Int64[N]``.
        tokens: how many there are, ``Int64[N]``.
        characters: and how many characters, ``Int64[N]``.
    """

    surprise: NDArray[np.float64]
    right: NDArray[np.int64]
    tokens: NDArray[np.int64]
    characters: NDArray[np.int64]


def score(network: Any, rows: Rows) -> Scores:
    """Predict every token of ``rows`` from those before it."""
    import torch

    surprise, right, tokens = (torch.zeros(len(rows), dtype=torch.float64) for _ in range(3))
    by_length = sorted(range(len(rows)), key=lambda number: len(rows.tokens[number]))
    with single_threaded_inference():
        for first in range(0, len(rows), _BATCH):
            numbers = by_length[first : first + _BATCH]
            logits, true, owner = predictions(network, rows, numbers)
            owner = torch.tensor(numbers)[owner.cpu()]
            losses = torch.nn.functional.cross_entropy(logits, true, reduction="none")
            surprise.index_add_(0, owner, losses.cpu().double())
            right.index_add_(0, owner, (logits.argmax(-1) == true).cpu().double())
            tokens.index_add_(0, owner, torch.ones(len(owner), dtype=torch.float64))
    return Scores(
        surprise.numpy(),
        right.long().numpy(),
        tokens.long().numpy(),
        np.asarray(rows.characters, dtype=np.int64),
    )


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


def tuned(network: Any, rows: Rows, recipe: Recipe, *, seed: int) -> Any:
    """A copy of ``network`` tuned to predict ``rows``; the frozen weights are one and the same.

    Without dropout, and with the learning weights in float32 whatever the network computes in, so that the outcome
    depends on nothing but the arguments and the device.

    Args:
        network: a transformers causal model in evaluation mode whose weights are frozen.
        rows: at least one.
        recipe: how.
        seed: of the order of texts.
    """
    import torch

    frozen = {id(weight) for weight in network.parameters()}
    frozen -= {id(weight) for weight in _last_blocks(network, recipe.blocks).parameters()}
    copy = deepcopy(network, {id(weight): weight for weight in network.parameters() if id(weight) in frozen})
    learning = [weight.requires_grad_() for weight in _last_blocks(copy, recipe.blocks).parameters()]
    masters = [weight.detach().float().clone() for weight in learning]
    generator = np.random.default_rng(seed)
    steps = [
        order[first : first + recipe.batch].tolist()
        for order in (generator.permutation(len(rows)) for _ in range(recipe.epochs))
        for first in range(0, len(rows), recipe.batch)
    ]
    optimizer = torch.optim.AdamW(masters, lr=recipe.rate)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / len(steps))
    for numbers in steps:
        logits, true, _ = predictions(copy, rows, numbers)
        gradients = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, true), learning)
        for master, gradient in zip(masters, gradients, strict=True):
            master.grad = gradient.float()
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        decay.step()
        with torch.no_grad():
            for weight, master in zip(learning, masters, strict=True):
                weight.copy_(master)
    return copy


def _last_blocks(network: Any, count: int) -> Any:
    """The last of the blocks that a transformer stacks, in the longest list of modules that it has."""
    import torch

    lists = (module for module in network.modules() if isinstance(module, torch.nn.ModuleList))
    return max(lists, key=len)[-count:]


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
    causal = load_causal(model, device=device)
    causal.network.requires_grad_(False)
    test = rows_of(causal, test_real.at_most(test_texts, seed=seed).texts, tokens=recipe.tokens)
    tables = {name: each.at_most(recipe.texts, seed=seed) for name, each in synthetic.items()}
    if train_real is not None:
        most = max((len(each) for each in tables.values()), default=recipe.texts)
        tables[REAL] = train_real.at_most(most, seed=seed)

    def values(name: str) -> list[MetricValue]:
        network, note = causal.network, "not tuned"
        if len(test) == 0:
            return _without(name, model, "no test text has a target token")
        if name != UNTUNED:
            rows = rows_of(causal, tables[name].texts, tokens=recipe.tokens)
            if len(rows) == 0:
                return _without(name, model, "there is no text to tune on")
            network = tuned(network, rows, recipe, seed=seed)
            note = f"tuned on {len(rows)} texts of at most {recipe.tokens} tokens"
        return _values(name, score(network, test), model=model, note=note, seed=seed)

    with worker_pool(causal.device) as pool:
        return tuple(measured for each in pool.map(values, (UNTUNED, *tables)) for measured in each)


def _values(name: str, scores: Scores, *, model: str, note: str, seed: int) -> list[MetricValue]:
    nats, bits = scores.surprise, scores.surprise / np.log(2)
    statistics: dict[Metric, Callable[[NDArray[np.int64]], float]] = {
        PERPLEXITY: lambda rows: float(np.exp(nats[rows].sum() / scores.tokens[rows].sum())),
        ACCURACY: lambda rows: float(scores.right[rows].sum() / scores.tokens[rows].sum()),
        BITS: lambda rows: float(bits[rows].sum() / scores.characters[rows].sum()),
    }
    if not np.isfinite(nats).all():
        return _without(name, model, "the model's logits are not finite")
    rows, over, settings = np.arange(len(nats)), "the test texts", {"model": model}
    return [
        MetricValue(metric, each(rows), name, bootstrap(each, len(rows), seed=seed, over=over), settings, note)
        for metric, each in statistics.items()
    ]


def _without(name: str, model: str, note: str) -> list[MetricValue]:
    metrics = (PERPLEXITY, ACCURACY, BITS)
    return [MetricValue(metric, None, name, settings={"model": model}, note=note) for metric in metrics]
