"""What every test shares: hypothesis measures no time, since a busy machine is no fault."""

from __future__ import annotations

import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent / "models"))  # models made in a test

settings.register_profile("understudy", deadline=None)
settings.load_profile("understudy")
