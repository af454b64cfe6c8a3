"""What a Release of DP-KPS holds."""

from __future__ import annotations

from understudy.methods.contents import Contents, Held
from understudy.methods.dp_kps.parameters import DPKPSParameters, needs_embeddings
from understudy.methods.dp_kps.plan import sketch_names
from understudy.privacy.events import GaussianEvent, PureEvent
from understudy.release import Release

_DIGEST_BYTES = 32


def contents(parameters: DPKPSParameters, release: Release) -> Contents:
    """Noisy counts of N terms, a noisy sketch per label, and with a bandwidth the embeddings and random features."""
    terms, labels = len(release.terms), max(1, len(release.schema.labels))
    sketches = sketch_names(parameters)
    arrays = {"counts": Held("float64", (terms,))}
    columns = terms
    if needs_embeddings(parameters):
        columns = 2 * parameters.features
        arrays["embeddings"] = Held("float32", (terms, "dimension"), -1.01, 1.01)
        digests = {f"frequencies-{length}": Held("uint8", (_DIGEST_BYTES,)) for length in sketches.values()}
        arrays |= digests
    arrays |= {name: Held("float64", (labels, columns)) for name in sketches}
    kind = GaussianEvent.kind if parameters.noise == "gaussian" else PureEvent.kind
    return Contents(dict.fromkeys(("vocabulary", *sketches), kind), arrays, terms=None)
