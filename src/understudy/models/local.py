"""Chat with a causal language model whose weights are on this machine."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

from understudy.errors import ModelError
from understudy.models.attention import use_grouped_attention
from understudy.models.cache import sha256_files
from understudy.models.decoding import Decoder, Prompt
from understudy.models.extra import best_device, require_local
from understudy.models.sampling import request_uniforms
from understudy.models.threads import worker_count, worker_pool
from understudy.models.types import ChatRequest, Completion, Message

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
            (64 rows of 160; 0.25 GB of cache for the embedded model), 131,072 on a GPU.
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
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        self._device = device or best_device()
        self._seed = seed
        self._max_batch_tokens = max_batch_tokens or _BATCH_TOKENS[self._device]
        try:
            weights = sha256_files(folder, [*folder.glob("*.safetensors"), *folder.glob("tokenizer*")])
            self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            model: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                local_files_only=True,
                use_safetensors=True,
                dtype=getattr(torch, dtype or _fast_dtype(self._device)),
            )
        except Exception as error:  # the libraries raise whatever they like on a foreign folder
            raise ModelError(
                f"The folder of {name} holds no causal language model that can be loaded ({type(error).__name__}).",
                "Give a transformers model with weights in safetensors and no code of its own.",
            ) from error
        use_grouped_attention(model)
        self._decoder = Decoder(model.eval().to(self._device), self._tokenizer)
        self._window = int(getattr(model.config.get_text_config(), "max_position_embeddings", 2**31))
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
        text = self._rendered(request.messages) if template else _plain(request.messages)
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

    def _rendered(self, messages: Sequence[Message]) -> str:
        """The messages in the model's own chat form; a template without system turns gets it in the user's."""
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            return str(self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
        except Exception:  # jinja2.TemplateError, raised by the template itself
            if len(turns) < 2 or turns[0]["role"] != "system":
                raise
            merged = {"role": "user", "content": f"{turns[0]['content']}\n\n{turns[1]['content']}"}
            turns = [merged, *turns[2:]]
            return str(self._tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))


def _plain(messages: Sequence[Message]) -> str:
    return "\n".join([*(f"{message.role}: {message.content}" for message in messages), "assistant:"])


def _fast_dtype(device: str) -> str:
    """bfloat16 where the processor multiplies in it (measured four times as fast), else float32."""
    import torch

    if device == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    able = torch.cpu.get_capabilities()
    return "bfloat16" if able.get("avx512_bf16") or able.get("amx_bf16") else "float32"
