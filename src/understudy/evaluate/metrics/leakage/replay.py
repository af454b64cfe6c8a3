"""Personal data of the real texts that stand in the output: counted, never shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from understudy.corpus.secrets.detectors import Detector, make_detectors
from understudy.corpus.secrets.finder import SecretFinder
from understudy.evaluate.metrics.intervals import chance_of_none, mean_of_choices, wilson_interval
from understudy.evaluate.metrics.value import Metric, MetricValue, Setting

_STRINGS = "Strings are compared in the detector's canonical spelling."

COUNT = Metric(
    "pii_replayed",
    "Personal strings of the real texts in the output",
    "leakage",
    "How many distinct strings that a detector finds in the real texts, and that stand in no public input, stand in a "
    f"table. Where the tables differ in size, also the expectation in as many texts as the smaller one has. {_STRINGS}",
    "Lukas et al. 2023, arXiv:2302.00539 (PII extraction)",
    "lower",
)
SHARE = Metric(
    "pii_replayed_share",
    "Share of the real texts' personal strings in the output",
    "leakage",
    "The count of replayed strings, over all distinct strings that the detector finds in the real texts and that stand "
    f"in no public input; in [0, 1]. {_STRINGS}",
    "Lukas et al. 2023, arXiv:2302.00539 (PII extraction, recall)",
    "lower",
)
PUBLIC = Metric(
    "pii_replayed_public",
    "The same, of strings that public inputs hold as well",
    "leakage",
    "How many distinct strings that a detector finds in the real texts stand in a table, and in a public input too: "
    "the output may have them from there.",
    "",
    "none",
)


def measure_replay(
    real: Sequence[str], others: Mapping[str, Sequence[str]], *, public: Sequence[str], detectors: Sequence[str]
) -> list[MetricValue]:
    """What of the real texts' personal data stands in other texts, by detector.

    Args:
        real: the real texts.
        others: texts by the name of their table.
        public: texts and strings that were public inputs.
        detectors: names; see :func:`~understudy.corpus.secrets.make_detectors`.

    Raises:
        ConfigError: a detector is unknown, or its extra is missing.
    """
    return [each for detector in make_detectors(detectors) for each in _of_detector(detector, real, others, public)]


def _of_detector(
    detector: Detector, real: Sequence[str], others: Mapping[str, Sequence[str]], public: Sequence[str]
) -> Iterable[MetricValue]:
    strings = set(_texts_with(SecretFinder(detectors=[detector]), real))
    finder = SecretFinder(listed=strings, detectors=[detector])
    known = strings & set(_texts_with(finder, public))
    own = strings - known
    smallest = min(len(texts) for texts in others.values())
    for of, texts in others.items():
        found = _texts_with(finder, texts)
        holders = np.array([found[string] for string in sorted(own & found.keys())], dtype=np.int64)
        by_detector: dict[str, Setting] = {"detector": detector.name}
        for size in dict.fromkeys((len(texts), smallest)):
            expected = float((1 - chance_of_none(holders, len(texts), size)).sum())
            settings = {**by_detector, "texts": size}
            yield MetricValue(COUNT, expected, of, settings=settings, note=mean_of_choices(size, len(texts)))
        yield _share(len(holders), len(own), of, by_detector)
        if known:
            yield MetricValue(PUBLIC, float(len(known & found.keys())), of, settings=by_detector)


def _share(replayed: int, strings: int, of: str, settings: Mapping[str, Setting]) -> MetricValue:
    if strings == 0:
        return MetricValue(SHARE, None, of, settings=settings, note="The real texts hold no such string of their own.")
    return MetricValue(SHARE, replayed / strings, of, wilson_interval(replayed, strings), settings)


def _texts_with(finder: SecretFinder, texts: Sequence[str]) -> Counter[str]:
    """In how many texts each string is that the finder finds."""
    return Counter(string for text in texts for string in finder.find(text))
