"""Where the noise of a value came from: what decides whether the value is private, whoever shows it."""

from __future__ import annotations

from typing import Literal

NoiseOrigin = Literal["system", "seeded", "none"]
"""The operating system's entropy, a seed, or nowhere. Stored with every value."""

SYSTEM: NoiseOrigin = "system"
"""The only origin that keeps the promise."""
