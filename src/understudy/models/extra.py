"""The extra ``local``: torch and what loads models with it. Checked here, so that its absence is one clear error."""

from __future__ import annotations

import os
from importlib.util import find_spec

from understudy.errors import ModelError

_PACKAGES = ("torch", "transformers", "sentence_transformers", "gguf", "accelerate", "safetensors")


def require_local() -> None:
    """Make sure that local models can be loaded, without the hub's telemetry, before anything imports torch.

    Raises:
        ModelError: one of the extra's packages is missing.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ModelError(
            f"Local models need packages that are not installed: {', '.join(missing)}.",
            "Install the extra: pip install 'understudy[local]'",
        )
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def best_device() -> str:
    """``"cuda"`` where torch sees one, else ``"cpu"``.

    Raises:
        ModelError: the extra is missing.
    """
    require_local()
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def require_device(device: str | None) -> None:
    """See that the machine has the device that is asked for.

    Raises:
        ModelError: it has not, or the extra is missing.
    """
    require_local()
    if device == "cuda" and best_device() != "cuda":
        raise ModelError("torch sees no CUDA device on this machine.", "Leave the device out, or name cpu.")
