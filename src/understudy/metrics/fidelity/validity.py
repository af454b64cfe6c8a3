"""Are the texts JSON, and do they keep to a schema?"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from understudy.decoding.structured import Fault, JSONSchema, read_json
from understudy.metrics.intervals import of_share
from understudy.metrics.value import SYNTHETIC, Figure, Metric

JSON_PARSED = Metric(
    name="json_parsed",
    title="Texts that are JSON",
    family="fidelity",
    definition=(
        "Share of texts that are one JSON value, in [0, 1]. Keys that occur twice, NaN, infinities, halves of "
        "surrogate pairs and more than 64 levels do not count."
    ),
    source="RFC 8259, with the limits of I-JSON (RFC 7493)",
    better="higher",
)
JSON_VALID = Metric(
    name="json_valid",
    title="Texts that keep to the schema",
    family="fidelity",
    definition="Share of texts that are JSON and keep to the schema, in [0, 1].",
    source="JSON Schema, draft 2020-12 unless the schema names another",
    better="higher",
)


def validity_figures(texts: Sequence[str], of: str, *, schema: Mapping[str, Any]) -> tuple[Figure, ...]:
    """Both shares of a table's texts.

    Raises:
        ConfigError: ``schema`` is no JSON schema, or needs another one.
    """
    check = JSONSchema("schema.json", content=json.dumps(schema).encode())
    values = [read_json(text) for text in texts]
    parsed = [value for value in values if not isinstance(value, Fault)]
    found = ((JSON_PARSED, len(parsed)), (JSON_VALID, sum(map(check.fits, parsed))))
    return tuple(
        Figure(metric, count / len(texts), of, of_share(count, len(texts)), reads_private=of != SYNTHETIC)
        for metric, count in found
    )
