"""A three-layer network on embeddings, with Deep CORAL towards unlabelled texts of the recipient if there are any."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.metrics.sample import Sample
from understudy.metrics.utility.exact import ExactLinear
from understudy.metrics.utility.linear import Predict
from understudy.models.machine import one_core, require_local

_HIDDEN = (256, 128)
_BATCH = 128
_STEPS = 10  # in a round, at least; else once over the texts
_ROUNDS = 30
_PATIENCE = 5  # rounds without a better loss on the texts held out
_HELD_OUT = 10  # one text in so many is held out, if that makes as many or more
_RATE, _DECAY = 1e-3, 1e-2

Layers = list[tuple[Any, Any]]


def fit_network(train: Sample, targets: NDArray[np.int64], *, seed: int, recipient: Sample | None = None) -> Predict:
    """Train d -> 256 -> 128 -> k with ReLU on embeddings, by AdamW on the cross-entropy.

    It stops early by the cross-entropy on a tenth of ``train`` that it is not trained on (below 100 texts it goes on to
    the end). With ``recipient`` the loss is cross-entropy plus :func:`coral` between the last layer's outputs for the
    texts of a step and for as many of the recipient's (the layer of Sun and Saenko 2016).

    No global state of torch is left changed: random numbers come from a generator, in one core.

    Args:
        train: texts with embeddings of unit length.
        targets: ``Int64[len(train)]``, classes numbered 0, 1, ..., k - 1.
        seed: of the weights, the texts held out and the order of training.
        recipient: unlabelled texts with embeddings, of those who will use the classifier; never the test's.

    Raises:
        ModelError: the extra ``local`` is missing, which holds torch.
    """
    require_local()
    import torch

    assert train.embeddings is not None
    draw = torch.Generator().manual_seed(seed)
    with one_core(), torch.inference_mode(False), torch.enable_grad():
        layers = _train(
            _inputs(train),
            torch.from_numpy(targets),
            None if recipient is None else _inputs(recipient),
            draw,
        )
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
    """``|C_1 - C_2|_F^2 / (4 d^2)``, C the covariance of the rows of ``Float[n, d]``.

    Source: Sun and Saenko 2016, equation 1. (The DP-KPS paper prints the fraction upside down.)
    """
    difference = _covariance(first) - _covariance(second)
    return (difference**2).sum() / (4 * first.shape[1] ** 2)


def _covariance(rows: Any) -> Any:
    centred = rows - rows.mean(0)
    return centred.T @ centred / max(1, len(rows) - 1)


def _train(inputs: Any, targets: Any, recipient: Any | None, draw: Any) -> Layers:
    """The layers with the lowest cross-entropy on the texts held out, or the last ones."""
    import torch

    layers = _start((inputs.shape[1], *_HIDDEN, int(targets.max()) + 1), draw)
    parameters = [parameter for layer in layers for parameter in layer]
    optimizer = torch.optim.AdamW(parameters, lr=_RATE, weight_decay=_DECAY)

    def loss(rows: Any, others: Any | None = None) -> Any:
        outputs = _forward(layers, inputs[rows])
        found = torch.nn.functional.cross_entropy(outputs, targets[rows])
        return found if others is None else found + coral(outputs, _forward(layers, others))

    order = torch.randperm(len(inputs), generator=draw)
    held = len(inputs) // _HELD_OUT
    held_out, learned = order.tensor_split([held if held >= _HELD_OUT else 0])
    order_of_training = batches(learned, _BATCH, draw)
    best, best_loss, waited = parameters, math.inf, 0
    for _ in range(_ROUNDS):
        for rows in islice(order_of_training, max(_STEPS, math.ceil(len(learned) / _BATCH))):
            others = None
            if recipient is not None:
                others = recipient[torch.randint(len(recipient), rows.shape, generator=draw)]
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


def batches(rows: Any, size: int, draw: Any) -> Iterator[Any]:
    """``size`` rows at a time, over and over, each time in another order of the generator ``draw``."""
    import torch

    while True:
        yield from rows[torch.randperm(len(rows), generator=draw)].split(size)


def _start(widths: tuple[int, ...], draw: Any) -> Layers:
    """Layers with weights by He et al. 2015, and biases of 0."""
    import torch

    layers = []
    for d, k in pairwise(widths):
        weights = torch.randn(d, k, generator=draw) * math.sqrt(2 / d)
        layers.append((weights.requires_grad_(), torch.zeros(k, requires_grad=True)))
    return layers


def _forward(layers: Layers, rows: Any) -> Any:
    for weights, bias in layers[:-1]:
        rows = (rows @ weights + bias).relu()
    weights, bias = layers[-1]
    return rows @ weights + bias


def _inputs(sample: Sample) -> Any:
    """Embeddings scaled to coordinates of about 1."""
    import torch

    assert sample.embeddings is not None
    return torch.from_numpy(sample.embeddings * np.float32(math.sqrt(sample.embeddings.shape[1])))
