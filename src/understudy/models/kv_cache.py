"""A KV cache with room for all tokens to come: a step writes into it and copies nothing, and going back is free.

transformers' own dynamic cache copies every row's keys and values at each token, which is memory traffic as large
as attention's own. Imported only where torch is there.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer


class RoomyLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped here
    """One layer's keys and values ``[rows, heads, capacity, width]``; ``keys`` and ``values`` show the filled part.

    A layer with a sliding window keeps all tokens too: its mask leaves out those beyond the window.
    """

    def __init__(self, *, capacity: int) -> None:
        super().__init__()
        self._capacity = capacity
        self._room: tuple[Any, Any] | None = None

    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Append new tokens; all keys and values so far, as views."""
        start, added = self.get_seq_length(), key_states.shape[2]
        if self._room is None:
            self.lazy_initialization(key_states, value_states)
            self._room = (self._empty(key_states), self._empty(value_states))
        for room, states in zip(self._room, (key_states, value_states), strict=True):
            room[:, :, start : start + added] = states
        self._show(start + added)
        return self.keys, self.values

    def crop(self, tokens_to_remove: int) -> None:
        """Forget the last ``-tokens_to_remove`` tokens."""
        if self._room is not None:
            self._show(self.get_seq_length() + tokens_to_remove)

    def _empty(self, states: Any) -> Any:
        return states.new_empty(states.shape[0], states.shape[1], self._capacity, states.shape[3])

    def _show(self, length: int) -> None:
        assert self._room is not None
        self.keys, self.values = (room[:, :, :length] for room in self._room)


def roomy_cache(capacity: int) -> Any:
    """An empty cache for at most ``capacity`` tokens a row."""
    return Cache(layer_class_to_replicate=partial(RoomyLayer, capacity=capacity))


def repeated(cache: Any, *, rows: int, capacity: int) -> Any:
    """A cache in which each of ``rows`` rows begins with the one row of ``cache``."""
    found = roomy_cache(capacity)
    for number, layer in enumerate(cache.layers):
        found.update(layer.keys.expand(rows, -1, -1, -1), layer.values.expand(rows, -1, -1, -1), number)
    return found


def cache_bytes(cache: Any) -> int:
    """Bytes of the filled part."""
    return sum(layer.keys.nbytes + layer.values.nbytes for layer in cache.layers)


def can_go_back(model: Any) -> bool:
    """Whether all that the model keeps of past tokens is keys and values, which can be cut off again."""
    layers = DynamicCache(config=model.config).layers
    return all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)
