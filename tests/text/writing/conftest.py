from __future__ import annotations

from run_fixtures import own_ledger, understudy, use_chat  # noqa: F401
