"""Facts of a plan's forecast or a noise check: typed entries, which are put into words when they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from pydantic import Field

from understudy.base.untrusted import read_form
from understudy.privacy.verdict import Verdict

Value = int | float | str | tuple[int | float, ...]


@dataclass(frozen=True)
class Fact:
    """One entry: an identifier for programs, its value, and a title for people with the unit in brackets.

    >>> Fact("count_noise", 12.3456, "noise on a count (std)").line()
    'noise on a count (std): 12.35'
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")]
    value: Value
    title: str

    def line(self, labels: Sequence[str] = ()) -> str:
        """Return the entry as a line for people; ``labels`` name the numbers of a fact that has one per label."""
        if not isinstance(self.value, tuple):
            return f"{self.title}: {_shown(self.value)}"
        if len(labels) != len(self.value) or len(labels) < 2:
            return f"{self.title}: {', '.join(map(_shown, self.value))}"
        return f"{self.title}: " + ", ".join(
            f"{_shown(number)} for {label}" for label, number in zip(labels, self.value, strict=True)
        )


@dataclass(frozen=True)
class Facts:
    """Entries in order, with unique names; warnings of a sentence or two each; and a verdict.

    >>> (Facts((Fact("a", 1, "one"),)) + Facts((Fact("b", 2, "two"),))).lines()
    ['one: 1', 'two: 2']
    """

    entries: Annotated[tuple[Fact, ...], Field(max_length=200)] = ()
    warnings: Annotated[tuple[str, ...], Field(max_length=20)] = ()
    verdict: Verdict | None = None

    def __add__(self, other: Facts) -> Facts:
        verdict = self.verdict or other.verdict
        return Facts((*self.entries, *other.entries), (*self.warnings, *other.warnings), verdict)

    def __getitem__(self, name: str) -> Value:
        return {entry.name: entry.value for entry in self.entries}[name]

    def __contains__(self, name: object) -> bool:
        return any(entry.name == name for entry in self.entries)

    def lines(self, labels: Sequence[str] = (), *, warnings: bool = True) -> list[str]:
        """Return a line per fact, then one per warning unless ``warnings`` is False."""
        told = [f"Warning: {each}" for each in self.warnings] if warnings else []
        return [*(entry.line(labels) for entry in self.entries), *told]

    def to_json(self) -> dict[str, Any]:
        return {
            "entries": [
                {**vars(entry), "value": list(entry.value) if isinstance(entry.value, tuple) else entry.value}
                for entry in self.entries
            ],
            "warnings": list(self.warnings),
            **({"verdict": asdict(self.verdict)} if self.verdict else {}),
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Facts:
        """Read the fields that :meth:`to_json` made. They are not trusted: ValueError if they are invalid."""
        needed = {name: fields[name] for name in ("entries", "warnings")}
        return read_form(cls, {**needed, "verdict": fields.get("verdict")})


def _shown(value: int | float | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
