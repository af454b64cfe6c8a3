"""Keep a noisy value together with its seal. Everything public is made from such values only.

Whether a value is private is a property of the value, never of the process that shows it. Its seal is stored with it,
and the ledger confirms both together before the value is used (``docs/decisions/034``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from understudy.base.errors import PrivacyError
from understudy.privacy.events import Event, event_from_json, event_to_json
from understudy.privacy.unit import Unit

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NoiseOrigin = Literal["system", "seeded", "none"]
"""Source of the noise: the operating system's entropy, a seed, or no noise at all."""

SYSTEM: NoiseOrigin = "system"
"""The only origin with which the guarantee holds."""

Arrays = Mapping[str, "NDArray[Any]"]


def moved_store(problem: str) -> PrivacyError:
    return PrivacyError(problem, "Restore the private folder as the run left it: a store cannot be moved between runs.")


def charge_of(name: str) -> str:
    """Return the charge that pays for the value ``name``: the name itself, or the part before a slash.

    >>> charge_of("tokens/0/3/17")
    'tokens'
    """
    return name.partition("/")[0]


@dataclass(frozen=True)
class Seal:
    """Describe a value: its charge, its cost, its noise, and its entry in the ledger.

    Args:
        name: of the charge that paid for the value, or ``CHARGE/PART``.
        event: the cost of the whole charge.
        unit: that the noise protects.
        noise: its source.
        run_id: of the run that made the value.
        ledger_id: of the ledger that booked the charge; empty if nothing was charged.
        charge_number: of the run's entry in that ledger; 0 if nothing was charged.
        rows: keyed hash of the rows that were read; empty if nothing was charged. Private, as the key is the
            ledger's: it stays in ``private/``.

    >>> from understudy.privacy.events import PureEvent
    >>> Seal("words", PureEvent(2.0), Unit(), "none", "run").private
    False
    """

    name: str
    event: Event
    unit: Unit
    noise: NoiseOrigin
    run_id: str
    ledger_id: str = ""
    charge_number: int = 0
    rows: str = field(default="", repr=False)

    @property
    def private(self) -> bool:
        """Return whether the guarantee holds: the noise is from the system's entropy, and the value was charged."""
        return self.noise == SYSTEM and bool(self.ledger_id) and self.charge_number > 0

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "event": event_to_json(self.event), "unit": self.unit.to_json()}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Seal:
        known = {**fields, "event": event_from_json(fields["event"]), "unit": Unit.from_json(fields["unit"])}
        return cls(**known)


@dataclass(frozen=True, repr=False)
class SealedValue:
    """A noisy value, stored and confirmed, with its seal.

    Args:
        arrays: by name; a sum has the one array ``value``.
        seal: describes them.
    """

    arrays: Arrays
    seal: Seal

    def __repr__(self) -> str:
        return f"<SealedValue {self.seal.name}: {self.seal.event}, {self.seal.noise} noise>"

    @property
    def value(self) -> NDArray[Any]:
        """Return the noisy sum, if the value is one."""
        return self.arrays["value"]

    @property
    def names(self) -> list[str]:
        """Return the names that the numbers of ``value`` belong to, if the release selected names."""
        return decode_names(self.arrays["names"])


def encode_names(names: Sequence[str]) -> NDArray[np.uint8]:
    """Encode non-empty names without line breaks as ``UInt8[bytes]``, which can be stored."""
    import numpy as np

    return np.frombuffer("\n".join(names).encode(), dtype=np.uint8)


def decode_names(encoded: NDArray[np.uint8]) -> list[str]:
    """Return the names that :func:`encode_names` encoded.

    >>> decode_names(encode_names(["knee", "skin"]))
    ['knee', 'skin']
    """
    joined = encoded.tobytes().decode()
    return joined.split("\n") if joined else []
