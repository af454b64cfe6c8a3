"""Classifiers: linear ones and a small network, whose answer for one text never depends on other texts, and a
fine-tuned encoder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.lazy import torch
from understudy.evaluate.metrics.sample import Sample
from understudy.models.builtin import EMBEDDER, builtin_path
from understudy.models.catalog import model_folder
from understudy.models.embedder import load_transformer
from understudy.models.machine import best_device, one_core, require_local

_HIDDEN = (256, 128)
_BATCH = 128
_STEPS = 10  # in a round, at least; else once over the texts
_ROUNDS = 30
_PATIENCE = 5  # rounds without a better loss on the texts held out
_HELD_OUT = 10  # one text in so many is held out, if that makes as many or more
_RATE, _DECAY = 1e-3, 1e-2
_ENCODER_BATCH = 16
_EPOCHS = 3
_ENCODER_STEPS = 60  # at least, however few texts there are
_ENCODER_RATE, _HEAD_RATE = 5e-5, 1e-3
_WARM = 0.1  # share of the steps in which the rates rise

Layers = list[tuple[Any, Any]]


def fit_network(train: Sample, targets: NDArray[np.int64], *, seed: int, recipient: Sample | None = None) -> Predict:
    """Train a network of layers d, 256, 128, k with ReLU on embeddings, by AdamW on the cross-entropy.

    It stops early by the cross-entropy on a tenth of ``train`` that it is not trained on (below 100 texts it goes on to
    the end). With ``recipient`` the loss is cross-entropy plus :func:`coral` between the last layer's outputs for the
    texts of a step and for as many of the recipient's (the layer of Sun and Saenko 2016).

    No global state of torch is left changed: random numbers come from a generator, in one core.

    Args:
        train: texts with embeddings of unit length.
        recipient: unlabelled texts with embeddings, of those who will use the classifier; never the test's.
    """
    require_local()
    assert train.embeddings is not None
    generator = torch.Generator().manual_seed(seed)
    with one_core(), torch.inference_mode(False), torch.enable_grad():
        others = None if recipient is None else _inputs(recipient)
        layers = _train(_inputs(train), torch.from_numpy(targets), others, generator)
        exact, reach = [], math.sqrt(train.embeddings.shape[1])
        for weights, bias in layers:
            exact.append(ExactLinear.rounded(weights.detach().numpy(), bias.detach().numpy(), reach=reach))
            reach = exact[-1].reach

    def predict(sample: Sample) -> NDArray[np.int64]:
        rows: NDArray[Any] = _inputs(sample).numpy()
        for layer in exact[:-1]:
            rows = np.maximum(layer(rows), 0)
        return exact[-1].highest(rows)

    return predict


def coral(first: Any, second: Any) -> Any:
    """Return ``|C_1 - C_2|_F^2 / (4 d^2)``, C the covariance of the rows of ``Float[n, d]``.

    Source: Sun and Saenko 2016, equation 1. (The DP-KPS paper prints the fraction upside down.)
    """
    difference = _covariance(first) - _covariance(second)
    return (difference**2).sum() / (4 * first.shape[1] ** 2)


def _covariance(rows: Any) -> Any:
    centred = rows - rows.mean(0)
    return centred.T @ centred / max(1, len(rows) - 1)


def _train(inputs: Any, targets: Any, recipient: Any | None, generator: Any) -> Layers:
    """Return the layers with the lowest cross-entropy on held-out texts, or the last ones if no texts are held out."""
    layers = _start((inputs.shape[1], *_HIDDEN, int(targets.max()) + 1), generator)
    parameters = [parameter for layer in layers for parameter in layer]
    optimizer = torch.optim.AdamW(parameters, lr=_RATE, weight_decay=_DECAY)

    def loss(rows: Any, others: Any | None = None) -> Any:
        outputs = _forward(layers, inputs[rows])
        found = torch.nn.functional.cross_entropy(outputs, targets[rows])
        return found if others is None else found + coral(outputs, _forward(layers, others))

    order = torch.randperm(len(inputs), generator=generator)
    held = len(inputs) // _HELD_OUT
    held_out, learned = order.tensor_split([held if held >= _HELD_OUT else 0])
    order_of_training = batches(learned, _BATCH, generator)
    best, best_loss, waited = parameters, math.inf, 0
    for _ in range(_ROUNDS):
        for rows in islice(order_of_training, max(_STEPS, math.ceil(len(learned) / _BATCH))):
            others = None
            if recipient is not None:
                others = recipient[torch.randint(len(recipient), rows.shape, generator=generator)]
            optimizer.zero_grad()
            loss(rows, others).backward()
            optimizer.step()
        if not len(held_out):
            continue
        with torch.no_grad():
            current = float(loss(held_out))
        waited += 1
        if current < best_loss:
            best, best_loss, waited = [parameter.detach().clone() for parameter in parameters], current, 0
        if waited >= _PATIENCE:
            break
    return list(zip(best[::2], best[1::2], strict=True))


def batches(rows: Any, size: int, generator: Any) -> Iterator[Any]:
    """Yield batches of ``size`` rows without end, in a new random order for every pass over the rows."""
    while True:
        yield from rows[torch.randperm(len(rows), generator=generator)].split(size)


def _start(widths: tuple[int, ...], generator: Any) -> Layers:
    layers = []
    for d, k in pairwise(widths):
        weights = torch.randn(d, k, generator=generator) * math.sqrt(2 / d)
        layers.append((weights.requires_grad_(), torch.zeros(k, requires_grad=True)))
    return layers


def _forward(layers: Layers, rows: Any) -> Any:
    for weights, bias in layers[:-1]:
        rows = (rows @ weights + bias).relu()
    weights, bias = layers[-1]
    return rows @ weights + bias


def _inputs(sample: Sample) -> Any:
    """Return embeddings scaled to coordinates of about 1."""
    assert sample.embeddings is not None
    return torch.from_numpy(sample.embeddings * np.float32(math.sqrt(sample.embeddings.shape[1])))


def fit_encoder(train: Sample, targets: NDArray[np.int64], *, seed: int, encoder: str) -> Predict:
    """Tune all weights of a sentence embedder, with a linear layer on its vectors, on the cross-entropy.

    Three epochs (at least 60 steps) of AdamW in batches of 16, with rates that rise and fall in straight lines, as
    Devlin et al. 2019 tune BERT. Dropout samples from torch's global generators, whose state is put back. By rounding,
    a text's class may depend on the other texts, so this kind cannot be counted for a charge.
    """
    with torch.random.fork_rng(), torch.inference_mode(False), torch.enable_grad():
        torch.manual_seed(seed)
        folder = builtin_path(EMBEDDER) if encoder == "builtin" else model_folder(encoder.removeprefix("hf:"))
        model, _ = load_transformer(folder, name=encoder, device=best_device())
        width = _vectors(model, ["a"]).shape[1]
        head = torch.nn.Linear(width, int(targets.max()) + 1, device=model.device)
        _tune(model, head, list(train.texts), torch.from_numpy(targets).to(model.device))

    def predict(sample: Sample) -> NDArray[np.int64]:
        found = np.zeros(len(sample), dtype=np.int64)
        by_length = sorted(range(len(sample)), key=lambda row: len(sample.texts[row]))
        with torch.inference_mode():
            for start in range(0, len(sample), _ENCODER_BATCH):
                rows = by_length[start : start + _ENCODER_BATCH]
                found[rows] = head(_vectors(model, [sample.texts[row] for row in rows])).argmax(1).cpu().numpy()
        return found

    return predict


def _tune(model: Any, head: Any, texts: list[str], targets: Any) -> None:
    model.train()
    optimizer = torch.optim.AdamW(
        [{"params": model.parameters(), "lr": _ENCODER_RATE}, {"params": head.parameters(), "lr": _HEAD_RATE}]
    )
    steps = max(_ENCODER_STEPS, _EPOCHS * math.ceil(len(texts) / _ENCODER_BATCH))
    pace = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / (_WARM * steps), (steps - step) / steps)
    )
    for rows in islice(batches(torch.arange(len(texts)), _ENCODER_BATCH, torch.default_generator), steps):
        outputs = head(_vectors(model, [texts[row] for row in rows]))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(outputs, targets[rows.to(targets.device)]).backward()
        optimizer.step()
        pace.step()
    model.eval()


def _vectors(model: Any, texts: list[str]) -> Any:
    """Return the model's vectors, scaled to coordinates of about 1, ``Float32[len(texts), d]``."""
    encoded = model.tokenizer(
        texts, truncation=True, max_length=model.max_seq_length or 512, padding=True, return_tensors="pt"
    )
    vectors = model.forward({name: each.to(model.device) for name, each in encoded.items()})["sentence_embedding"]
    return vectors * math.sqrt(vectors.shape[1])


_GRID = 2.0**22
"""Rows and columns are at most this long in steps: a product is at most 2^44 and a little, for what rounding adds to a
length. A row that is longer than it should be is clipped: with d coordinates of at most 2^22 a product is at most
sqrt(d) 2^44. Up to d = 2^17 all are below the 2^53 that float64 holds exactly."""


@dataclass(frozen=True)
class ExactLinear:
    """A linear layer ``x W + b`` whose sums are exact, so that a row's result does not depend on other rows.

    Floating-point products round differently in another block, thread or kernel, so that a record can turn the
    prediction of its neighbour, and then one record moves a count of right predictions by more than 1. Here rows and
    weights are rounded to integers of which float64 holds every partial sum, whatever the order; all else is done
    element by element.

    Args:
        weights: ``Float64[d, k]``, integers.
        bias: ``Float64[k]``.
        row_step, weight_step: powers of two by which rows are, and weights were, multiplied.
        reach: no row of results is longer (L2), if no row ``x`` is longer than what this was made for.
    """

    weights: NDArray[np.float64]
    bias: NDArray[np.float64]
    row_step: float
    weight_step: float
    reach: float

    @classmethod
    def rounded(cls, weights: NDArray[Any], bias: NDArray[Any], *, reach: float) -> ExactLinear:
        """Round the weights ``Float[d, k]`` and the bias ``Float[k]`` of a layer for rows of L2 norm at most
        ``reach``."""
        lengths = np.sqrt((weights.astype(np.float64) ** 2).sum(0))
        row_step, weight_step = _step(reach), _step(float(lengths.max(initial=0.0)))
        return cls(
            np.rint(weights.astype(np.float64) * weight_step),
            bias.astype(np.float64),
            row_step,
            weight_step,
            float(np.linalg.norm(lengths * reach + np.abs(bias))),
        )

    def __call__(self, rows: Any) -> NDArray[np.float64]:
        """Return the layer's results ``Float64[n, k]`` for rows ``Float[n, d]``, dense or sparse, of norm at most
        ``reach``."""
        scaled = rows.astype(np.float64) * self.row_step
        steps = np.rint(scaled).clip(-_GRID, _GRID) if isinstance(scaled, np.ndarray) else scaled.rint()
        return np.asarray(steps @ self.weights) / (self.row_step * self.weight_step) + self.bias

    def highest(self, rows: Any) -> NDArray[np.int64]:
        """Return the first column with the highest result of each row, ``Int64[n]``."""
        found: NDArray[np.int64] = np.argmax(self(rows), axis=1)
        return found


def _step(length: float) -> float:
    """Return the power of two by which ``length`` is scaled to at most the grid."""
    return 2.0 ** math.floor(math.log2(_GRID / max(length, 1e-12)))


Predict = Callable[[Sample], NDArray[np.int64]]
"""From texts to the numbers of their classes; a text's class does not depend on the other texts."""

_C = 10.0
_MOST_WEIGHTS = 2_000_000  # terms times classes; the solver keeps about 20 copies of them


def fit_tfidf(train: Sample, targets: NDArray[np.int64]) -> Predict:
    """Fit a logistic regression to the TF-IDF of words and pairs of words, ``(1 + ln count) idf``, scaled to length 1.

    The vocabulary is that of ``train`` alone: its most frequent terms, as many as make two million weights.

    Args:
        targets: ``Int64[len(train)]``, classes numbered 0, 1, ..., k - 1, each of which occurs, k at least 2.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    classes = int(targets.max()) + 1
    vectorizer = TfidfVectorizer(sublinear_tf=True, ngram_range=(1, 2), max_features=max(1, _MOST_WEIGHTS // classes))
    analyze = vectorizer.build_analyzer()
    if not any(analyze(text) for text in train.texts):
        commonest = int(np.bincount(targets).argmax())
        return lambda sample: np.full(len(sample), commonest, dtype=np.int64)
    scores = _regression(vectorizer.fit_transform(train.texts), targets)

    def predict(sample: Sample) -> NDArray[np.int64]:
        return scores.highest(vectorizer.transform(sample.texts))

    return predict


def fit_embedding(train: Sample, targets: NDArray[np.int64]) -> Predict:
    """Fit a logistic regression to embeddings. The arguments are those of :func:`fit_tfidf`."""
    scores = _regression(train.embeddings, targets)

    def predict(sample: Sample) -> NDArray[np.int64]:
        return scores.highest(sample.embeddings)

    return predict


def _regression(rows: Any, targets: NDArray[np.int64]) -> ExactLinear:
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=_C, max_iter=2000).fit(rows, targets)
    weights, bias = model.coef_.T, model.intercept_
    if weights.shape[1] == 1:  # two classes: the margin of the second
        weights, bias = np.hstack([0 * weights, weights]), np.array([0.0, bias[0]])
    return ExactLinear.rounded(weights, bias, reach=1.0)
