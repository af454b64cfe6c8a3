"""The run store: one run's plan, its noisy values and the answers it paid for, durable, in ``private/``."""

from understudy.ledger.store.database import AnswerStore
from understudy.ledger.store.folder import is_in_use
from understudy.ledger.store.run_store import RunStore

__all__ = ["AnswerStore", "RunStore", "is_in_use"]
