"""Which models can be trusted with rows that must not change one another, before anything is tried on a device.

The same refusals hold for whatever reads private text: private models and embedders.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from understudy.errors import ModelError
from understudy.models.attention import KERNELS

_NO_ROUTING = ("shared", "per_tok")
_EXPERTS = ("expert", "moe", "router")  # in the names of modules
_BY_LONGEST = ("longrope", "dynamic")
_WHOLE = 16


def require_separate_rows(model: Any, *, name: str) -> None:
    """See that nothing in the model is shared out over the rows of a batch.

    Routed experts work on the tokens of all rows that come to them, in products whose shapes depend on how many those
    are; 8-bit weights may come with scales or outlier columns of a whole batch; batch normalisation without statistics
    of its own takes the batch's; attention kernels that drop the padding see all rows as one. Layers whose width is no
    multiple of 16 leave a few numbers over after the processor's vectors, which it computes in another way (measured:
    SiLU and GELU in widths that are odd, products over 33 numbers), so that a row's last bits show its place. Rounding
    then lets one row show in another, and no few trials on a device would find it reliably.

    Args:
        model: a transformers or sentence-transformers model, ready to infer.
        name: in errors.

    Raises:
        ModelError: there is such a thing in one of its modules.
    """
    settings, modules = _settings(model), list(model.modules())
    if any(_routes(key, value) for each in settings for key, value in each.items()) or any(map(_is_routed, modules)):
        raise ModelError(
            f"{name} has routed experts, in which the texts of a batch change one another's results.",
            "Use a dense model (Llama, Qwen, Gemma, Mistral and the like).",
        )
    if any(each.get("quantization_config") for each in settings) or any(map(_is_small, model.parameters())):
        raise ModelError(
            f"{name} is quantised, and a quantised product may mix the texts of a batch.",
            "Use the model's unquantised weights.",
        )
    if any(map(_mixes_rows, modules)):
        raise ModelError(
            f"{name} normalises over the texts of a batch, or draws at random as in training.",
            "Use a model with layer normalisation alone, made for inference.",
        )
    if kernels := {getattr(module.config, "_attn_implementation", None) for module in _configured(model)} - KERNELS:
        raise ModelError(
            f"{name} asks for attention by {min(map(str, kernels))!r}, which may run all texts of a batch as one.",
            "Use the model with torch's own attention (sdpa or eager).",
        )
    if odd := _odd_width(model, modules):
        raise ModelError(
            f"{name} has a layer of width {odd}, no multiple of {_WHOLE}, in which a text's last bits depend on its "
            "place in the batch.",
            f"Use a model whose layers have widths that are multiples of {_WHOLE}, as nearly all have.",
        )


def separate_positions(model: Any, window: int) -> int:
    """The window within which a row's positions are encoded whatever the other rows' are.

    Position encodings of these kinds (LongRoPE, dynamic) take other factors for the whole batch once its longest row
    passes the length that the model was first trained with, and keep them in the model.
    """
    first, most = "original_max_position_embeddings", "max_position_embeddings"
    settings = _settings(model)
    if not any(each.get("rope_type", each.get("type")) in _BY_LONGEST for each in settings):
        return window
    firsts = [int(each[first]) for each in settings if each.get(first)]
    return min([window, *(firsts or [int(each[most]) for each in settings if each.get(most)])])


def positions(model: Any) -> int:
    """Columns for which the model has positions."""
    most = "max_position_embeddings"
    found = [each[most] for each in _settings(model) if isinstance(each.get(most), int) and each[most] > 0]
    return min(found, default=2**31)


def _routes(key: str, value: Any) -> bool:
    """Whether the setting ``key`` counts experts among which tokens are shared out."""
    counts = "experts" in key and not any(word in key for word in _NO_ROUTING)
    return counts and isinstance(value, int) and value > 1


def _is_routed(module: Any) -> bool:
    return any(word in type(module).__name__.lower() for word in _EXPERTS)


def _is_small(parameter: Any) -> bool:
    """Whether it is no floating-point number of two bytes or more."""
    return not parameter.is_floating_point() or parameter.element_size() < 2


def _mixes_rows(module: Any) -> bool:
    """Whether it is in training, or takes statistics of the batch."""
    from torch.nn.modules.batchnorm import _BatchNorm

    return module.training or (isinstance(module, _BatchNorm) and module.running_mean is None)


def _odd_width(model: Any, modules: list[Any]) -> int | None:
    """A width of a layer's weights that leaves numbers over; the number of tokens at both ends may be any."""
    from torch.nn import Embedding

    ends = getattr(model, "get_output_embeddings", lambda: None)()
    layers = [each for each in modules if each is not ends and not isinstance(each, Embedding)]
    weights = [weight for each in layers for weight in each.parameters(recurse=False) if weight.ndim == 2]
    return next((width for weight in weights for width in weight.shape if width % _WHOLE), None)


def _configured(model: Any) -> Iterator[Any]:
    """The modules that have a configuration of transformers."""
    return (module for module in model.modules() if hasattr(getattr(module, "config", None), "to_dict"))


def _settings(model: Any) -> list[dict[str, Any]]:
    """The configurations of all modules, and all that is nested in them."""
    found: list[dict[str, Any]] = []
    waiting = [config.to_dict() for config in {id(each.config): each.config for each in _configured(model)}.values()]
    while waiting:
        each = {str(key): value for key, value in waiting.pop().items()}
        found.append(each)
        waiting += [value for value in each.values() if isinstance(value, dict)]
    return found
