"""Whom the user trusts with private texts besides this machine: the endpoint of an embedder, by a flag."""

from __future__ import annotations

from understudy.errors import ModelError
from understudy.models.types import Embedder


def require_trusted(embedder: Embedder, *, trust_endpoint: bool) -> None:
    """See that an embedder may read private texts.

    Args:
        trust_endpoint: whether the user says that whoever runs its endpoint may read them.

    Raises:
        ModelError: texts leave this machine and the user does not say so, or the embedder does not say whether they do.
    """
    local = getattr(embedder, "local", None)
    if not isinstance(local, bool):
        raise ModelError(
            f"The embedder {embedder.model_id!r} does not say whether texts stay on this machine.",
            "Use another embedder, or a version of it that has the attribute `local`.",
        )
    if not local and not trust_endpoint:
        raise ModelError(
            f"The embedder {embedder.model_id!r} sends texts away from this machine, and would read private ones.",
            "Use a local embedder; or, if whoever runs its endpoint may read them, say so with --trust-endpoint.",
        )


def trusted_with_texts(embedder: Embedder | None) -> tuple[str, ...]:
    """What the statement says about whom the user trusts with private texts: one sentence, or none."""
    if embedder is None or embedder.local:
        return ()
    return (
        f"The endpoint of the embedder {embedder.model_id} read the private texts (--trust-endpoint): nothing is "
        "promised against whoever runs it or listens there.",
    )
