"""Turn a GGUF file into a folder that transformers loads quickly: safetensors, configuration, tokenizer."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from understudy.models.extra import require_local


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Write ``gguf``, a Llama-family chat model with a byte-level BPE tokenizer, into ``folder``.

    Weights are stored as float16, whose rounding (0.05 %) is a hundredth of a 4-bit file's own step.

    Raises:
        ModelError: the extra ``local`` is not installed.
    """
    require_local()
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with contextlib.redirect_stderr(io.StringIO()):  # two progress bars for three seconds of work
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # The weights are plain numbers now; saving refuses a model that still claims to be quantised.
    del model.config.quantization_config
    model.hf_quantizer = None
    model.is_quantized = False
    # Llama-family "smollm" pre-tokenization splits digits one by one; the conversion leaves that step out.
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), backend.pre_tokenizer]
    )
    model.to(torch.float16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():  # safetensors writes for its owner only; a cache may be shared
        path.chmod(0o644)
