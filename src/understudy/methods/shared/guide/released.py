"""The guide of a Release, with the embedder that it was made with."""

from __future__ import annotations

from understudy.base.errors import ReleaseError
from understudy.methods.shared.guide.guide import Guide
from understudy.methods.shared.guide.plan import GUIDE
from understudy.models.types import Embedder
from understudy.privacy.events import GaussianEvent
from understudy.release import Release


def guide_of(made: Release, embedder: Embedder, *, cure: str) -> Guide:
    """The guide that a Release holds, which may come from anybody.

    Args:
        embedder: that is to be used with it.
        cure: what to do if it is another.

    Raises:
        ReleaseError: if the embedder is not the one that the Release names, or there is no guide of its vectors.
    """
    named = made.statement.public_inputs.get("embedder", {})
    if embedder.fingerprint != named.get("sha256"):
        source = named.get("source", "another embedder")
        raise ReleaseError(
            f"The guide of this Release is made of embeddings of {source}, not of {embedder.model_id}.", cure
        )
    events = [charge.event for charge in made.statement.charges if charge.name == GUIDE]
    sums, columns = made.arrays.get(GUIDE), 1 + embedder.embed(["a public text"]).shape[1]
    if sums is None or sums.shape != (made.schema.label_set.size, columns) or len(events) != 1:
        raise ReleaseError("The Release holds no guide of this embedder's vectors.", "Ask whoever made it.")
    (event,) = events
    sealed = made.statement.sealed
    noisy = isinstance(event, GaussianEvent) and (sealed is None or sealed.noise != "none")
    return Guide(sums, event.noise_multiplier if noisy else 0.0)  # type: ignore[union-attr]
