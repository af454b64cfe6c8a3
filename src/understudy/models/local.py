"""Chat with a causal language model whose weights are on this machine."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from understudy.models.decoding import Decoder, Prompt
from understudy.models.extra import best_device, require_local
from understudy.models.sampling import request_uniforms
from understudy.models.threads import worker_count, worker_pool
from understudy.models.types import ChatRequest, Completion
from understudy.models.weights import load_weights, model_window, render

_BATCH_TOKENS = {"cpu": 10_240, "cuda": 131_072}
_TURN = "\nuser:"


class LocalChat:
    """A transformers causal model in a local folder, as a ``ChatModel``.

    Requests are sorted by length and answered in batches, several at once on a CPU with several cores, outside
    the event loop. Sampling is steered by ``seed`` and the request alone, so a resumed run or another order gives
    the same draws, as far as the float noise of another batch shape allows. It runs in bfloat16 where the
    processor computes in it, else in float32.

    A tokenizer without a chat template belongs to a base model: it sees the messages as lines ``role: content``
    and completes the assistant's line.

    Args:
        folder: configuration, tokenizer and weights in safetensors. Code in it is never run.
        name: the model's name in ``model_id``.
        seed: steers sampling.
        max_batch_tokens: most rows times tokens (prompt and answer) in one batch; default 10,240 on a CPU
            (64 rows of 160; 0.25 GB of cache for the built-in model), 131,072 on a GPU.
        device: ``"cpu"`` or ``"cuda"``; default CUDA where there is one.
        dtype: ``"float32"`` or ``"bfloat16"``; default by processor.

    Raises:
        ModelError: the extra ``local`` is missing, or the folder holds no such model.
    """

    def __init__(
        self,
        folder: Path,
        *,
        name: str,
        seed: int = 0,
        max_batch_tokens: int | None = None,
        device: str | None = None,
        dtype: str | None = None,
    ) -> None:
        require_local()
        self._device = device or best_device()
        self._seed = seed
        self._max_batch_tokens = max_batch_tokens or _BATCH_TOKENS[self._device]
        model, self._tokenizer, weights = load_weights(folder, name=name, device=self._device, dtype=dtype)
        self._decoder = Decoder(model, self._tokenizer)
        self._window = model_window(model)
        self._model_id = f"{name}@{weights[:12]}"

    @property
    def model_id(self) -> str:
        return self._model_id

    async def complete(self, requests: Sequence[ChatRequest]) -> AsyncIterator[tuple[int, Completion]]:
        """Yield ``(index into requests, Completion)`` as batches end.

        A prompt that leaves no room in the model's window is a ``failed`` completion; an answer that would run
        over it is cut there (``length``).
        """
        loop = asyncio.get_running_loop()
        prompts = await asyncio.to_thread(lambda: [self._prompt(request) for request in requests])
        for index, prompt in enumerate(prompts):
            if prompt is None:
                reason = f"the prompt fills the model's window of {self._window} tokens"
                yield index, Completion(text="", finish_reason="failed", error=reason)
        cancelled = threading.Event()
        pool = worker_pool(self._device)
        try:
            running = [loop.run_in_executor(pool, self._answer, batch, cancelled) for batch in self._batches(prompts)]
            for batch in asyncio.as_completed(running):
                for answered in await batch:
                    yield answered
        finally:
            cancelled.set()
            pool.shutdown(wait=False, cancel_futures=True)

    def _answer(self, batch: list[tuple[int, Prompt]], cancelled: threading.Event) -> list[tuple[int, Completion]]:
        completions = self._decoder.answer([prompt for _, prompt in batch], cancelled=cancelled)
        return [(index, completion) for (index, _), completion in zip(batch, completions, strict=False)]

    def _batches(self, prompts: Sequence[Prompt | None]) -> Iterator[list[tuple[int, Prompt]]]:
        """Prompts of like lengths together, longest first, with work for every worker."""
        waiting = [(index, prompt) for index, prompt in enumerate(prompts) if prompt is not None]
        waiting.sort(key=lambda item: len(item[1].tokens), reverse=True)
        most_rows = max(1, math.ceil(len(waiting) / worker_count(self._device)))
        while waiting:
            prompt_tokens, answer_tokens, rows = len(waiting[0][1].tokens), 0, 0
            for _, prompt in waiting[:most_rows]:
                answer_tokens = max(answer_tokens, len(prompt.uniforms))
                if rows and (rows + 1) * (prompt_tokens + answer_tokens) > self._max_batch_tokens:
                    break
                rows += 1
            yield waiting[:rows]
            waiting = waiting[rows:]

    def _prompt(self, request: ChatRequest) -> Prompt | None:
        """The request in tokens, or None where it leaves no room for an answer."""
        template = self._tokenizer.chat_template is not None
        text = render(self._tokenizer, request.messages)
        tokens = self._tokenizer(text, add_special_tokens=not template)["input_ids"]
        room = min(request.max_tokens, self._window - len(tokens))
        if room < 1:
            return None
        return Prompt(
            tokens=tokens,
            temperature=request.temperature,
            top_p=request.top_p,
            stop=request.stop if template else (*request.stop, _TURN),
            uniforms=request_uniforms(self._seed, request.key(self._model_id), count=room),
        )
