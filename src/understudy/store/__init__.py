"""The run store: one run's plan, its noisy values and the answers it paid for, durable, in ``private/``."""

from understudy.store.answers import AnswerStore
from understudy.store.run_store import RunStore

__all__ = ["AnswerStore", "RunStore"]
