"""What a Release of SecPE holds."""

from __future__ import annotations

from understudy.methods.contents import Contents, Held
from understudy.methods.sec_pe.parameters import SecPEParameters
from understudy.methods.sec_pe.plan import release_names
from understudy.privacy.events import MixtureEvent
from understudy.release import Release

_LARGEST_COORDINATE = 1e15  # its square, summed over a dimension, is still a float32


def contents(parameters: SecPEParameters, release: Release) -> Contents:
    """Per label K public clusters, the noisy sums of what private records say about them, and the centres of these."""
    labels = max(1, len(release.schema.labels))
    clusters = (labels, parameters.clusters)
    return Contents(
        dict.fromkeys(release_names(parameters), MixtureEvent.kind),
        {
            "sizes": Held("float64", clusters),
            "centres": Held("float32", (*clusters, "dimension"), -_LARGEST_COORDINATE, _LARGEST_COORDINATE),
            "public_centres": Held("int16", (*clusters, "dimension")),
            "public_sizes": Held("int64", clusters, 1),
            **{
                f"sums-{number + 1}": Held("float64", (*clusters, "dimension with size"))
                for number in range(parameters.releases)
            },
        },
        public_inputs=("embedder",),
    )
