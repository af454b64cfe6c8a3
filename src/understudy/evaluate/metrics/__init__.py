"""Quality and leakage: real texts against synthetic ones."""

from __future__ import annotations

from importlib.util import find_spec

from understudy.base.errors import ConfigError

_LIBRARIES = ("datasketch", "jsonschema", "rapidfuzz", "sacrebleu", "sklearn", "threadpoolctl")


def require_evaluate() -> None:
    """Check that the extra ``evaluate`` is installed, without loading it."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise ConfigError(
            f"Evaluation needs the extra 'evaluate' (missing: {', '.join(missing)}).",
            "Install it: pip install 'understudy[evaluate]'",
        )
