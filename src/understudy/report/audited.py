"""What the audit of a run found, as its file says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.errors import ConfigError
from understudy.metrics.form import IntervalForm, Number, Share
from understudy.metrics.value import Interval
from understudy.statement.form import Count
from understudy.untrusted import Form, read_json


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


class _Guesses(Form):
    epsilon: Number


class _Attack(Form):
    name: str
    auc: Number
    auc_interval: IntervalForm | None = None
    true_positives: Number
    true_positives_interval: IntervalForm | None = None
    guesses: list[_Guesses]


class _Audit(Form):
    epsilon: Number
    bound: Number
    largest_bound: Number
    confidence: Share
    canaries: Count
    planted: Count
    verdict: str
    attacks: list[_Attack]
    canaries_needed: Count | None = None
    private: bool


def read_audit(path: Path) -> Audited:
    """What is in ``private/audit.json``.

    Raises:
        ConfigError: if it cannot be read.
    """
    try:
        fields = read_json(path)
        _Audit.model_validate(fields)
        return Audited(
            epsilon=float(fields["epsilon"]),
            bound=float(fields["bound"]),
            largest_bound=float(fields["largest_bound"]),
            confidence=float(fields["confidence"]),
            canaries=fields["canaries"],
            planted=fields["planted"],
            verdict=fields["verdict"],
            attacks=tuple(_attacked(attack) for attack in fields["attacks"]),
            canaries_needed=fields.get("canaries_needed"),
            private=fields["private"],
        )
    except Exception:  # a damaged file fails in many ways
        raise ConfigError(
            f"The audit {path.name} cannot be read: it is damaged or was made by another version.",
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
