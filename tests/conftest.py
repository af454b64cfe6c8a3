"""What every test shares: hypothesis measures no time, since a busy machine is no fault."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("understudy", deadline=None)
settings.load_profile("understudy")
