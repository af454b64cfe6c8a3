"""What a plan forecasts and a noise check finds: typed entries, put into words where they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Value = int | float | str | tuple[int | float, ...]


@dataclass(frozen=True)
class Fact:
    """One entry: an identifier for programs, its value, and what it is for people, its unit in brackets."""

    name: str
    value: Value
    title: str

    def line(self, labels: Sequence[str] = ()) -> str:
        """For people; ``labels`` are those by which the numbers of a fact per label go."""
        if not isinstance(self.value, tuple):
            return f"{self.title}: {_shown(self.value)}"
        if len(labels) != len(self.value) or len(labels) < 2:
            return f"{self.title}: {', '.join(map(_shown, self.value))}"
        return f"{self.title}: " + ", ".join(
            f"{_shown(number)} for {label}" for label, number in zip(labels, self.value, strict=True)
        )


@dataclass(frozen=True)
class Facts:
    """Entries in order, no two of one name, and what to be warned of, in a sentence or two each."""

    entries: tuple[Fact, ...] = ()
    warnings: tuple[str, ...] = ()

    def __add__(self, other: Facts) -> Facts:
        """Both, one behind the other."""
        return Facts((*self.entries, *other.entries), (*self.warnings, *other.warnings))

    def __getitem__(self, name: str) -> Value:
        """The value of the entry ``name``. Raises KeyError if there is none."""
        return {entry.name: entry.value for entry in self.entries}[name]

    def __contains__(self, name: object) -> bool:
        return any(entry.name == name for entry in self.entries)

    def lines(self, labels: Sequence[str] = ()) -> list[str]:
        """For people, the warnings last."""
        return [*(entry.line(labels) for entry in self.entries), *(f"Warning: {each}" for each in self.warnings)]

    def to_json(self) -> dict[str, Any]:
        return {
            "entries": [
                {**vars(entry), "value": list(entry.value) if isinstance(entry.value, tuple) else entry.value}
                for entry in self.entries
            ],
            "warnings": list(self.warnings),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Facts:
        entries = (
            Fact(each["name"], tuple(value) if isinstance(value := each["value"], list) else value, each["title"])
            for each in fields["entries"]
        )
        return cls(tuple(entries), tuple(fields["warnings"]))


def _shown(value: int | float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
