"""Run a causal language model on this machine, for the next-token logits of many contexts at once."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from understudy.base.errors import ModelError
from understudy.base.lazy import torch
from understudy.models.builtin import CHAT, builtin_path, is_builtin
from understudy.models.local import Decoder
from understudy.models.machine import best_device, require_local, worker_count
from understudy.models.row_invariance import Shape, require_row_invariance, require_separate_rows, separate_positions
from understudy.models.shared_prefix import Contexts, find_head
from understudy.models.types import Message
from understudy.models.weights import end_tokens, load_weights, model_window, render
from understudy.models.writer import fingerprint_with, merge

_REGISTER = 8
_MEMORY_SHARE = 0.5  # of free memory, for the KV caches of all batches in flight
_ROWS_AT_ONCE = {"cpu": 128, "cuda": 512}  # each block reads all weights once
_GPU_BATCHES = 2  # one computes while the other's token is sampled on the host


class CausalModel:
    """A transformers causal language model in a local folder, used for private text.

    It runs in bfloat16 if the processor supports it, else in float32. Several threads may use it at once,
    each with separate contexts.

    Args:
        folder: configuration, tokenizer and weights in safetensors. Code in it is never run.
        name: the model's name in ``model_id``.
        device: ``"cpu"`` or ``"cuda"``; default CUDA if available.
        dtype: ``"float32"`` or ``"bfloat16"``; default by processor.

    Attributes:
        network: the transformers model.
        vocabulary: V, the number of tokens that the tokenizer knows and the model can give.
        head: maps hidden states to logits; None if only the whole model can do that.
        window: most tokens of a prompt and its continuation together; no more than its narrowest layer sees.

    Raises ModelError if the extra ``local`` is missing, the folder does not contain such a model, or the model keeps
    more state than keys and values and so cannot go back to its prompt.
    """

    def __init__(self, folder: Path, *, name: str, device: str | None = None, dtype: str | None = None) -> None:
        require_local()
        from understudy.models.kv_cache import can_go_back, sliding_window

        self._folder, self._name = folder.absolute(), name
        self.device = device or best_device()
        self.network, self._tokenizer, self.fingerprint = load_weights(
            folder, name=name, device=self.device, dtype=dtype
        )
        self.model_id = f"{name}@{self.fingerprint[:12]}"
        if not can_go_back(self.network):
            raise ModelError(
                f"{name} keeps a state that cannot be reset to the end of the prompt.",
                "Use a model with only attention (Llama, Qwen, Gemma, Mistral and the like).",
            )
        require_separate_rows(self.network, name=name)
        words = self.network.get_output_embeddings().weight.shape[0]
        self.vocabulary = min(int(words), len(self._tokenizer))
        self.head = find_head(self.network, vocabulary=self.vocabulary)
        window = min(model_window(self.network), sliding_window(self.network) - 1)  # a column is padding
        self.window = separate_positions(self.network, window)
        self.ends = end_tokens(self.network, self._tokenizer)
        self._tried: set[Shape] = set()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, tuple[Path, str, str, str, str]]:
        dtype = str(self.network.dtype).removeprefix("torch.")
        return _again, (self._folder, self._name, self.device, dtype, self.fingerprint)

    @property
    def is_writer(self) -> bool:
        """Return whether it is the built-in model with the writer's adapters added."""
        return "+writer@" in self.model_id

    def add_writer(self) -> None:
        """Add the writer's adapters, once, if it is the built-in model, which changes its name and fingerprint."""
        if self._name == f"builtin:{CHAT.name}" and not self.is_writer:
            merge(self.network)
            self.fingerprint = fingerprint_with(self.fingerprint)
            self.model_id = f"{self._name}+writer@{self.fingerprint[:12]}"

    def becomes(self, fingerprint: str | None) -> bool:
        """Return whether the model has this fingerprint, after adding the writer's adapters if the fingerprint includes
        them."""
        if fingerprint == fingerprint_with(self.fingerprint):
            self.add_writer()
        return fingerprint == self.fingerprint

    @property
    def has_chat_template(self) -> bool:
        return self._tokenizer.chat_template is not None

    @property
    def begin(self) -> list[int]:
        """Return the tokens before every text: the beginning-of-sequence token, or nothing."""
        plain, whole = self.encode("a"), self._tokenizer("a")["input_ids"]
        return whole[: whole.index(plain[0])] if plain and plain[0] in whole else []

    def encode(self, text: str) -> list[int]:
        """Return the text in tokens, without special ones around it."""
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        """Return the text of the tokens, without special ones."""
        return str(self._tokenizer.decode(list(tokens), skip_special_tokens=True))

    def render(self, messages: Sequence[Message]) -> str:
        return render(self._tokenizer, messages)

    def decoder(self, network: Any) -> Decoder:
        """Return a decoder that samples texts from a ``network`` made from the model."""
        return Decoder(network, self._tokenizer)

    @property
    def end(self) -> int | None:
        """Return the token that ends a text, if the tokenizer has one."""
        own = self._tokenizer.eos_token_id
        return own if own is not None else min(self.ends, default=None)

    def contexts(
        self,
        rows: Sequence[Sequence[int]],
        *,
        prefix: Sequence[int],
        width: int,
        suffix: Sequence[int] = (),
        tokens: int,
        rows_at_once: int,
        candidates: int | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> Contexts:
        """Prefill the KV cache with ``prefix + own tokens + suffix`` for every row; the shared prefix is computed once.

        The first contexts of a shape check that rows cannot change each other's logits on this device.

        Args:
            rows: each row's own tokens, row 0 the public one; at most ``width`` each, not empty if the suffix is empty.
            width: tokens to which own tokens are padded; like all these numbers a function of public parameters.
            tokens: most tokens that :meth:`Contexts.step` will append before it goes back.
            rows_at_once: R, the rows of a block.
            candidates: about how many tokens' logits will be used; None for the whole vocabulary.
            check: called before each block; it raises if the run is being stopped.

        Raises:
            ModelError: prompt and new tokens do not fit the model's window.
            PrivacyError: a row's logits change with the other rows.
        """
        if not rows or width < 0 or rows_at_once < 1 or tokens < 0:
            raise ValueError("contexts need rows, a width and room of 0 or more tokens, and blocks of 1 row or more")
        if max(map(len, rows)) > width:
            raise ValueError("a row is longer than the padded width")
        if not suffix and min(map(len, rows)) == 0:
            raise ValueError("a row without own tokens needs a suffix")
        longest = len(prefix) + width + len(suffix) + tokens
        if longest > self.window:
            raise ModelError(
                f"A prompt of {longest - tokens} tokens and {tokens} new ones do not fit the window of "
                f"{self.window} tokens of {self.model_id}.",
                "Shorten the prompt or the examples, or use a model with a larger window.",
            )
        shape = Shape(len(prefix), width, len(suffix), tokens, rows_at_once, candidates)
        with self._lock:
            if shape not in self._tried:
                require_row_invariance(self, shape, in_flight=self.batches_in_flight(rows_at_once, longest))
                self._tried.add(shape)
        return Contexts(
            self, rows, prefix=prefix, width=width, suffix=suffix, tokens=tokens, rows_at_once=rows_at_once, check=check
        )

    def rows_at_once(self, batch_size: int) -> int:
        """Return R, the rows of a block, for batches of about ``batch_size`` rows and the public one: equal blocks with
        room for one standard deviation more. Depends on public numbers only."""
        expected = batch_size + 1 + math.isqrt(batch_size)
        return whole_rows(math.ceil(expected / math.ceil(expected / _ROWS_AT_ONCE[self.device])))

    def batches_in_flight(self, rows: int, tokens: int) -> int:
        """Return how many batches of ``rows`` rows of ``tokens`` tokens (prompt and answer) to decode at the same time.

        As many as have KV caches that fit into half of the free memory, at least one; on a CPU at most the number of
        worker threads, on a GPU two (one computes while the other's token is sampled on the host).
        """
        most = worker_count(self.device) if self.device == "cpu" else _GPU_BATCHES
        return max(1, min(most, int(_free_bytes(self.device) * _MEMORY_SHARE) // (rows * tokens * self.token_bytes)))

    @cached_property
    def token_bytes(self) -> int:
        """Return the measured bytes of one token of one row in the KV cache."""
        from understudy.models.kv_cache import columns

        probe = Contexts(self, [[0]], prefix=(), width=1, suffix=(), tokens=0, rows_at_once=1)
        return probe.cache_bytes // columns(2)


@lru_cache(maxsize=1)
def _again(folder: Path, name: str, device: str, dtype: str, fingerprint: str) -> CausalModel:
    """Load, in a worker, the model that another process uses; a built-in model comes from this machine's cache."""
    require_local(device)
    found = CausalModel(builtin_path(CHAT) if is_builtin(name) else folder, name=name, device=device, dtype=dtype)
    if not found.becomes(fingerprint):
        raise ModelError(
            f"A worker's machine has a different model under the name {name}.", "Copy the same files to every machine."
        )
    return found


def whole_rows(rows: int) -> int:
    """Round the number of rows of a block up to whole vector registers. Processors compute left-over rows differently,
    so a row's last bits would depend on its place."""
    return -(-rows // _REGISTER) * _REGISTER


def _free_bytes(device: str) -> int:
    """Return the memory that is free now on the cache's device."""
    if device == "cpu":
        import psutil  # type: ignore[import-untyped]

        return int(psutil.virtual_memory().available)
    return int(torch.cuda.mem_get_info()[0])
