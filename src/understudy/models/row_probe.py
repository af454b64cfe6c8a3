"""Tries on the device at hand, with the shapes that will be used, that a row's logits stay the same beside others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from understudy.errors import PrivacyError
from understudy.models.contexts import Contexts
from understudy.models.threads import worker_pool

if TYPE_CHECKING:
    from understudy.models.causal import CausalModel

_MORE_CANDIDATES = 3  # times as many: where candidates come with a margin there may be more than were asked for
_COLUMNS = 4096  # of logits, made into integers at once


@dataclass(frozen=True)
class Shape:
    """What decides which kernels run: functions of public parameters, all of them.

    Args:
        prefix, width, suffix: tokens of a row, as in :meth:`understudy.models.causal.CausalModel.contexts`.
        tokens: most that are appended to a prompt.
        rows_at_once: R, the rows of a block.
        candidates: tokens whose logits are looked at; None for the whole vocabulary.
    """

    prefix: int
    width: int
    suffix: int
    tokens: int
    rows_at_once: int
    candidates: int | None

    @property
    def steps(self) -> int:
        """Tokens to append until the KV cache has grown once; fewer where fewer will be appended."""
        from understudy.models.kv_cache import columns

        prompt = self.prefix + 1 + self.width + self.suffix
        return min(self.tokens, columns(prompt) - prompt + 1)


def require_row_invariance(model: CausalModel, shape: Shape, *, in_flight: int) -> None:
    """Try, on this device with this shape, that a row's logits stay the same bit for bit beside others.

    A block of different random rows, from empty to as long as can be, must give every second of them the same logits
    half a block further on beside the shortest rows, the others beside rows that are as long as can be; and one of them
    must give the same at every place of a block. All on the path that texts are decoded on: by the head of as many
    candidates, after the prompt, step by step until the cache has grown, and once gone back; several blocks at once
    where several batches will be.

    Args:
        in_flight: batches that will be decoded at the same time.

    Raises:
        PrivacyError: they do not.
    """
    import torch

    rows_at_once = shape.rows_at_once
    if rows_at_once == 1:
        return
    draw = torch.Generator().manual_seed(0)

    def some(length: int) -> list[int]:
        found: list[int] = torch.randint(model.vocabulary, (length,), generator=draw).tolist()
        return found

    prefix, suffix, steps = some(shape.prefix), some(shape.suffix), some(shape.steps)
    sizes: list[int | None] = [None]
    if shape.candidates is not None:
        most = min(_MORE_CANDIDATES * shape.candidates, model.vocabulary)
        sizes = [min(shape.candidates, model.vocabulary), most]
    keys = torch.randint(-(2**62), 2**62, (model.vocabulary,), generator=draw).to(model.device)
    among = [
        None if size is None else torch.randperm(model.vocabulary, generator=draw)[:size].sort().values.to(model.device)
        for size in sizes
    ]
    shortest = 0 if shape.suffix else min(1, shape.width)
    lengths = torch.linspace(shortest, shape.width, rows_at_once).round().long()
    rows = [some(length) for length in lengths[torch.randperm(rows_at_once, generator=draw)].tolist()]
    half, one = rows_at_once // 2 + 1, rows_at_once // 3
    beside_short = [
        row if number % 2 else some(min(shortest + number % 3, shape.width)) for number, row in enumerate(rows)
    ]
    further = [*beside_short[-half:], *beside_short[:-half]]
    beside_long = [some(shape.width) if number % 2 else row for number, row in enumerate(rows)]
    copies = [rows[one]] * rows_at_once

    def seen(block: list[list[int]]) -> list[Any]:
        """Each row's digest of its logits, ``Int64[R]``, wherever they are looked at."""
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
            if number in (0, len(steps) // 2, len(steps) - 2, len(steps) - 1):  # the last ones stand around the growth
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
                f"The logits that {model.model_id} gives a text change with the texts beside it on this device, so the "
                "influence of one record would have no bound.",
                "Use another model, or run it in another precision (--private-dtype) or on another device.",
            )


def _digests(logits: Any, keys: Any) -> Any:
    """A number for the bits of each row, ``Int64[R]``: sums of products modulo 2^64, exact in any order."""
    import torch

    bits = logits.contiguous().view({2: torch.int16, 4: torch.int32}[logits.element_size()])
    parts = zip(bits.split(_COLUMNS, dim=1), keys[: bits.shape[1]].split(_COLUMNS), strict=True)
    return sum((part.long() * key).sum(1) for part, key in parts)
