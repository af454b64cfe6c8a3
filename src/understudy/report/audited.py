"""What the audit of a run found, as its file says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from understudy.errors import ConfigError
from understudy.evaluation.figure import Interval


@dataclass(frozen=True)
class Attacked:
    """One attack: area under the curve and true positives at 1 % false positives, with intervals, and its bound."""

    name: str
    auc: float
    auc_interval: Interval | None
    true_positives: float
    true_positives_interval: Interval | None
    bound: float


@dataclass(frozen=True)
class Audited:
    """The promised epsilon, the lower bound that was found, and the largest that could have been found.

    ``private`` False: the audited run had no noise, to try the audit itself.
    """

    epsilon: float
    bound: float
    largest_bound: float
    confidence: float
    canaries: int
    planted: int
    verdict: str
    attacks: tuple[Attacked, ...]
    canaries_needed: int | None
    private: bool


def read_audit(fields: Mapping[str, Any]) -> Audited:
    """From ``private/audit.json``.

    Raises:
        ConfigError: if something is missing in it.
    """
    try:
        return Audited(
            epsilon=float(fields["epsilon"]),
            bound=float(fields["bound"]),
            largest_bound=float(fields["largest_bound"]),
            confidence=float(fields["confidence"]),
            canaries=int(fields["canaries"]),
            planted=int(fields["planted"]),
            verdict=str(fields["verdict"]),
            attacks=tuple(_attacked(attack) for attack in fields["attacks"]),
            canaries_needed=fields.get("canaries_needed"),
            private=bool(fields["private"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ConfigError(
            "The audit audit.json is damaged or was made by another version.",
            "Make it anew with `understudy audit run`.",
        ) from None


def _attacked(fields: Mapping[str, Any]) -> Attacked:
    return Attacked(
        str(fields["name"]),
        float(fields["auc"]),
        _interval(fields.get("auc_interval")),
        float(fields["true_positives"]),
        _interval(fields.get("true_positives_interval")),
        max((float(each["epsilon"]) for each in fields["guesses"]), default=0.0),
    )


def _interval(fields: Mapping[str, Any] | None) -> Interval | None:
    return None if fields is None else Interval(**fields)
