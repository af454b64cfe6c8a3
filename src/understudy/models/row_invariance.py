"""Ensure that the rows of a batch do not change one another: refuse some models, and test private ones.

Embedders are refused here by the same rules; the others are tested in :mod:`understudy.models.embedder_checks`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from understudy.base.errors import ModelError, PrivacyError
from understudy.base.lazy import torch
from understudy.models.machine import worker_pool
from understudy.models.shared_prefix import Contexts, LocalNetwork
from understudy.models.weights import KERNELS

_NO_ROUTING = ("shared", "per_tok")
_EXPERTS = ("expert", "moe", "router")  # in the names of modules
_BY_LONGEST = ("longrope", "dynamic")
_WHOLE = 16


def require_separate_rows(model: Any, *, name: str) -> None:
    """Refuse a model in which rounding lets one row of a batch affect another; tests would not find it reliably.

    Routed experts compute the tokens of all rows sent to them, in products whose shapes depend on their number; 8-bit
    weights may have scales or outlier columns of a whole batch; batch normalisation without stored statistics uses the
    batch's; attention kernels that drop the padding see all rows as one. Layers whose width is not a multiple of 16
    leave a few numbers after the processor's vectors, which it computes in a different way (measured: SiLU and GELU in
    odd widths, products over 33 numbers), so that a row's last bits show its place.

    The model is one of transformers or sentence-transformers, ready to infer; ``name`` is for the ModelError.
    """
    settings, modules = _settings(model), list(model.modules())
    routed = any(word in type(module).__name__.lower() for module in modules for word in _EXPERTS)
    counts = [
        (key, value) for each in settings for key, value in each.items() if "experts" in key and isinstance(value, int)
    ]
    if routed or any(value > 1 and not any(word in key for word in _NO_ROUTING) for key, value in counts):
        raise ModelError(
            f"{name} has routed experts, in which the texts of a batch change one another's results.",
            "Use a dense model (Llama, Qwen, Gemma, Mistral and the like).",
        )
    small = any(not each.is_floating_point() or each.element_size() < 2 for each in model.parameters())
    if small or any(each.get("quantization_config") for each in settings):
        raise ModelError(
            f"{name} is quantised, and a quantised product may mix the texts of a batch.",
            "Use the model's unquantised weights.",
        )
    if any(map(_mixes_rows, modules)):
        raise ModelError(
            f"{name} normalises over the texts of a batch, or samples at random as in training.",
            "Use a model with only layer normalisation, prepared for inference.",
        )
    if kernels := {getattr(module.config, "_attn_implementation", None) for module in _configured(model)} - KERNELS:
        raise ModelError(
            f"{name} requires attention by {min(map(str, kernels))!r}, which may run all texts of a batch as one.",
            "Use the model with torch's own attention (sdpa or eager).",
        )
    if odd := _odd_width(model, modules):
        raise ModelError(
            f"{name} has a layer of width {odd}, no multiple of {_WHOLE}, in which a text's last bits depend on its "
            "place in the batch.",
            f"Use a model whose layers have widths that are multiples of {_WHOLE}, as nearly all have.",
        )


def separate_positions(model: Any, window: int) -> int:
    """Return the context window within which the positions of a row do not depend on other rows.

    Position encodings of these kinds (LongRoPE, dynamic) switch to other factors for the whole batch once its longest
    row passes the length that the model was first trained with, and keep them in the model.
    """
    first, most = "original_max_position_embeddings", "max_position_embeddings"
    settings = _settings(model)
    if not any(each.get("rope_type", each.get("type")) in _BY_LONGEST for each in settings):
        return window
    firsts = [int(each[first]) for each in settings if each.get(first)]
    return min([window, *(firsts or [int(each[most]) for each in settings if each.get(most)])])


def positions(model: Any) -> int:
    """Return how many columns the model has positions for."""
    most = "max_position_embeddings"
    found = [each[most] for each in _settings(model) if isinstance(each.get(most), int) and each[most] > 0]
    return min(found, default=2**31)


def _mixes_rows(module: Any) -> bool:
    """Return whether a module is in training mode, or uses statistics of the batch."""
    from torch.nn.modules.batchnorm import _BatchNorm

    return module.training or (isinstance(module, _BatchNorm) and module.running_mean is None)


def _odd_width(model: Any, modules: list[Any]) -> int | None:
    """Return a layer's width that is not a multiple of the required number; None if all are. The input and output
    layers may have any number of tokens."""
    ends = getattr(model, "get_output_embeddings", lambda: None)()
    layers = [each for each in modules if each is not ends and not isinstance(each, torch.nn.Embedding)]
    weights = [weight for each in layers for weight in each.parameters(recurse=False) if weight.ndim == 2]
    return next((width for weight in weights for width in weight.shape if width % _WHOLE), None)


def _configured(model: Any) -> Iterator[Any]:
    """Yield the modules that have a configuration of transformers."""
    return (module for module in model.modules() if hasattr(getattr(module, "config", None), "to_dict"))


def _settings(model: Any) -> list[dict[str, Any]]:
    """Return the configurations of all modules, and every mapping nested in them."""
    found: list[dict[str, Any]] = []
    waiting = [config.to_dict() for config in {id(each.config): each.config for each in _configured(model)}.values()]
    while waiting:
        each = {str(key): value for key, value in waiting.pop().items()}
        found.append(each)
        waiting += [value for value in each.values() if isinstance(value, dict)]
    return found


_MORE_CANDIDATES = 3  # times as many: where candidates come with a margin there may be more than were asked for
_COLUMNS = 4096  # of logits, made into integers at once


@dataclass(frozen=True)
class Shape:
    """The public numbers that determine which kernels a computation uses.

    As in :meth:`understudy.models.causal.CausalModel.contexts`.
    """

    prefix: int
    width: int
    suffix: int
    tokens: int
    rows_at_once: int
    candidates: int | None

    @property
    def steps(self) -> int:
        """Return how many tokens a test appends: until the KV cache has grown once, or fewer if a run appends fewer."""
        from understudy.models.kv_cache import columns

        prompt = self.prefix + 1 + self.width + self.suffix
        return min(self.tokens, columns(prompt) - prompt + 1)


def require_row_invariance(model: LocalNetwork, shape: Shape, *, in_flight: int) -> None:
    """Test on this device, in this shape, that other rows do not change a row's logits by a bit; else PrivacyError.

    It computes a block of random rows of all lengths. Every second row must have the same logits half a block further
    on together with the shortest rows, the others together with the longest, and one row at every place of a block. All
    use the code that decodes texts: the head of as many candidates, after the prompt, step by step until the cache
    has grown, and after going back; ``in_flight`` blocks at once, like the batches later.
    """
    rows_at_once = shape.rows_at_once
    if rows_at_once == 1:
        return
    rng = torch.Generator().manual_seed(0)

    def some(length: int) -> list[int]:
        found: list[int] = torch.randint(model.vocabulary, (length,), generator=rng).tolist()
        return found

    prefix, suffix, steps = some(shape.prefix), some(shape.suffix), some(shape.steps)
    sizes: list[int | None] = [None]
    if shape.candidates is not None:
        most = min(_MORE_CANDIDATES * shape.candidates, model.vocabulary)
        sizes = [min(shape.candidates, model.vocabulary), most]
    keys = torch.randint(-(2**62), 2**62, (model.vocabulary,), generator=rng).to(model.device)
    among = [
        None if size is None else torch.randperm(model.vocabulary, generator=rng)[:size].sort().values.to(model.device)
        for size in sizes
    ]
    shortest = 0 if shape.suffix else min(1, shape.width)
    lengths = torch.linspace(shortest, shape.width, rows_at_once).round().long()
    rows = [some(length) for length in lengths[torch.randperm(rows_at_once, generator=rng)].tolist()]
    half, one = rows_at_once // 2 + 1, rows_at_once // 3
    beside_short = [
        row if number % 2 else some(min(shortest + number % 3, shape.width)) for number, row in enumerate(rows)
    ]
    further = [*beside_short[-half:], *beside_short[:-half]]
    beside_long = [some(shape.width) if number % 2 else row for number, row in enumerate(rows)]
    copies = [rows[one]] * rows_at_once

    def seen(block: list[list[int]]) -> list[Any]:
        """Return each row's digest of its logits, ``Int64[R]``, at every step that is checked."""
        contexts = Contexts(
            model,
            block,
            prefix=prefix,
            width=shape.width,
            suffix=suffix,
            tokens=shape.tokens,
            rows_at_once=rows_at_once,
        )

        def now() -> list[Any]:
            return [_digests(next(contexts.blocks(candidates)).logits, keys) for candidates in among]

        found = now()
        for number, token in enumerate(steps):
            contexts.step(token)
            if number in (0, len(steps) // 2, len(steps) - 2, len(steps) - 1):  # the last: around the growth
                found += now()
        if steps:
            contexts.rewind()
            found += now()
            contexts.step(steps[0])
            found += now()
        return found

    alone = seen(rows)
    with worker_pool(model.device, most=in_flight) as pool:
        rolled, beside, everywhere = pool.map(seen, (further, beside_long, copies))
    for at, expected in enumerate(alone):
        if not (
            torch.equal(rolled[at].roll(-half, 0)[1::2], expected[1::2])
            and torch.equal(beside[at][::2], expected[::2])
            and torch.equal(everywhere[at], expected[one].expand_as(expected))
        ):
            raise PrivacyError(
                f"The logits that {model.model_id} gives a text change with the other texts on this device, so the "
                "influence of one record would have no bound.",
                "Use another model; or set UNDERSTUDY_DTYPE=float32, or UNDERSTUDY_DEVICE to another device.",
            )


def _digests(logits: Any, keys: Any) -> Any:
    """Return a number for the bits of each row, ``Int64[R]``: sums of products modulo 2^64, exact in any order."""
    bits = logits.contiguous().view({2: torch.int16, 4: torch.int32}[logits.element_size()])
    parts = zip(bits.split(_COLUMNS, dim=1), keys[: bits.shape[1]].split(_COLUMNS), strict=True)
    return sum((part.long() * key).sum(1) for part, key in parts)
