"""Which models can be trusted with rows that must not change one another, before anything is tried on a device."""

from __future__ import annotations

from typing import Any

from understudy.errors import ModelError

_NO_ROUTING = ("shared", "per_tok")
_BY_LONGEST = ("longrope", "dynamic")


def require_separate_rows(model: Any, *, name: str) -> None:
    """See that nothing in the model is shared out over the rows of a batch.

    Routed experts work on the tokens of all rows that come to them, in products whose shapes depend on how many those
    are; 8-bit weights may come with scales or outlier columns of a whole batch. Rounding then lets one row show in
    another, and no few trials on a device would find it reliably.

    Args:
        model: a transformers model.
        name: in errors.

    Raises:
        ModelError: there are routed experts, or quantised weights.
    """
    settings = _settings(model.config)
    if any(_routes(key, value) for each in settings for key, value in each.items()):
        raise ModelError(
            f"{name} has routed experts, in which the texts of a batch change one another's results.",
            "Use a dense model (Llama, Qwen, Gemma, Mistral and the like).",
        )
    if any(each.get("quantization_config") for each in settings):
        raise ModelError(
            f"{name} is quantised, and a quantised product may mix the texts of a batch.",
            "Use the model's unquantised weights.",
        )


def separate_positions(model: Any, window: int) -> int:
    """The window within which a row's positions are encoded whatever the other rows' are.

    Position encodings of these kinds (LongRoPE, dynamic) take other factors for the whole batch once its longest row
    passes the length that the model was first trained with, and keep them in the model.
    """
    settings = _settings(model.config)
    if not any(each.get("rope_type", each.get("type")) in _BY_LONGEST for each in settings):
        return window
    first = "original_max_position_embeddings"
    return min([window, *(int(each[first]) for each in settings if each.get(first))])


def _routes(key: str, value: Any) -> bool:
    """Whether the setting ``key`` counts experts among which tokens are shared out."""
    counts = "experts" in key and not any(word in key for word in _NO_ROUTING)
    return counts and isinstance(value, int) and value > 1


def _settings(config: Any) -> list[dict[str, Any]]:
    """The configuration and all that is nested in it."""
    found: list[dict[str, Any]] = []
    waiting = [config.to_dict()]
    while waiting:
        each = {str(key): value for key, value in waiting.pop().items()}
        found.append(each)
        waiting += [value for value in each.values() if isinstance(value, dict)]
    return found
