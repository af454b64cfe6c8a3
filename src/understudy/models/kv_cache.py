"""Keep a KV cache with room for future tokens: a step writes into it without copying.

transformers' dynamic cache copies all keys and values at every token. Views of a larger tensor do not help: the
CPU's matrix products copy tensors that are not contiguous. So keys and values include their free columns, contiguous;
the mask excludes those, and they are zeros, so that a weight of 0 makes them 0. Imported only if torch is
installed.
"""

from __future__ import annotations

from typing import Any

from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

_STRIDE = 32  # columns; fewer copy more often, more multiply more zeros


def columns(length: int) -> int:
    """Return the number of columns that a cache needs for ``length`` tokens per row."""
    return -(-length // _STRIDE) * _STRIDE


class RoomyLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped here
    """One layer of the cache: ``keys`` and ``values`` of shape ``[rows, heads, columns(length), width]``, zeros from
    ``length`` on.

    A layer with a sliding window keeps all tokens too: its mask would leave out those beyond the window.
    """

    def __init__(self) -> None:
        super().__init__()
        self._length = 0

    def update(self, key_states: Any, value_states: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Append new tokens; return all columns so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = key_states[:, :, :0], value_states[:, :, :0]
        start, self._length = self._length, self._length + key_states.shape[2]
        self._fit()
        self.keys[:, :, start : self._length] = key_states
        self.values[:, :, start : self._length] = value_states
        return self.keys, self.values

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last ``-tokens_to_remove`` tokens, and free their room."""
        end, self._length = self._length, self._length + tokens_to_remove
        for states in (self.keys, self.values):
            states[:, :, self._length : end] = 0
        self._fit()

    def get_seq_length(self) -> int:
        return self._length

    def get_mask_sizes(self, query_length: Any) -> tuple[int, int]:
        """Return the columns of a mask for ``query_length`` more tokens, and the first one's number."""
        added = query_length if isinstance(query_length, int) else query_length.shape[0]  # positions before 5.0
        return columns(self._length + added), 0

    def _fit(self) -> None:
        """Resize keys and values to the columns that the length needs."""
        have, need = self.keys.shape[2], columns(self._length)
        if have != need:
            self.keys, self.values = _resized(self.keys, need), _resized(self.values, need)


def _resized(states: Any, need: int) -> Any:
    found = states.new_zeros(states.shape[0], states.shape[1], need, states.shape[3])
    kept = min(states.shape[2], need)
    found[:, :, :kept] = states[:, :, :kept]
    return found


def roomy_cache(model: Any) -> Any:
    """Return an empty cache for the model."""
    layers = len(DynamicCache(config=model.config).layers) or model.config.get_text_config().num_hidden_layers
    return Cache(layers=[RoomyLayer() for _ in range(layers)])


def can_go_back(model: Any) -> bool:
    """Return whether the model keeps only keys and values of past tokens, which can be removed again."""
    layers = DynamicCache(config=model.config).layers
    return all(type(layer) in (DynamicLayer, DynamicSlidingWindowLayer) for layer in layers)


def sliding_window(model: Any) -> int:
    """Return the largest number of columns that every layer sees. Beyond it, a layer with a sliding window would count
    padding."""
    layers = DynamicCache(config=model.config).layers
    return min((layer.sliding_window for layer in layers if type(layer) is DynamicSlidingWindowLayer), default=2**31)
