"""Detectors of the library Presidio (extra ``pii``): its expressions and checks, never its language models."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

from understudy.errors import ConfigError

_FETCHES = {"EMAIL_ADDRESS": "email"}
"""Entities whose recogniser asks the internet for a list, and the built-in detector in its place."""


@dataclass(frozen=True)
class PresidioDetector:
    """All recognisers of one entity, in whatever language or country; every score above zero counts."""

    name: str
    entity: str
    recognizers: tuple[Any, ...]

    def find(self, text: str) -> Iterator[str]:
        for start, end in sorted(self._spans(text)):
            yield text[start:end]

    def whole(self, text: str) -> str | None:
        text = text.strip()
        return text if (0, len(text)) in self._spans(text) else None

    def _spans(self, text: str) -> set[tuple[int, int]]:
        return {
            (found.start, found.end)
            for recognizer in self.recognizers
            for found in recognizer.analyze(text, [self.entity], None)
            if found.entity_type == self.entity and found.score > 0
        }


def presidio_detector(entity: str) -> PresidioDetector:
    """The detector ``presidio:ENTITY``.

    Raises:
        ConfigError: the extra is not installed, or no recogniser finds this entity by its form.
    """
    by_entity = _recognizers()
    if entity in _FETCHES:
        raise ConfigError(
            f"Presidio fetches a list from the internet to find {entity}.",
            f"Use the detector {_FETCHES[entity]}, which is built in.",
        )
    if entity not in by_entity:
        raise ConfigError(
            f"Presidio does not find {entity!r} by its form.",
            "Use an entity of Presidio's that it finds by patterns; list names, for which it needs a language model, "
            "in a column or a file.",
        )
    return PresidioDetector(f"presidio:{entity}", entity, tuple(by_entity[entity]))


@cache
def _recognizers() -> dict[str, list[Any]]:
    """Every recogniser that works by patterns and rules alone, by the entity that it finds."""
    try:
        presidio = import_module("presidio_analyzer")
    except ImportError:
        raise ConfigError(
            "Presidio's detectors need a package that is not installed: presidio-analyzer.",
            "Install the extra: pip install 'understudy[pii]'",
        ) from None
    log = logging.getLogger("presidio-analyzer")  # it logs strings that fail a check
    log.disabled = True
    predefined = import_module("presidio_analyzer.predefined_recognizers")
    by_entity: dict[str, list[Any]] = {}
    for name in predefined.__all__:
        kind = getattr(predefined, name)
        if not isinstance(kind, type) or not (
            issubclass(kind, presidio.PatternRecognizer) or name == "PhoneRecognizer"
        ):
            continue
        recognizer = kind()
        for entity in recognizer.supported_entities:
            by_entity.setdefault(entity, []).append(recognizer)
    return by_entity
