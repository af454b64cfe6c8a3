"""The run store: one run's plan, its noisy values and the answers it paid for, durable, in ``private/``."""

from understudy.store.database import AnswerStore
from understudy.store.folder import is_in_use
from understudy.store.run_store import RunStore

__all__ = ["AnswerStore", "RunStore", "is_in_use"]
