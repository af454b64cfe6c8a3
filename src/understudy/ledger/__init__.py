"""Keep the durable record of each dataset's spending, over all runs.

>>> import tempfile
>>> from understudy.ledger import Ledger
>>> from understudy.privacy.guarantee import Budget
>>> from understudy.privacy.unit import Unit
>>> folder = tempfile.TemporaryDirectory()
>>> with Ledger.create(folder.name + "/ledger.sqlite") as ledger:
...     dataset = ledger.open_dataset("clinic", cap=Budget(3, "1e-6"), unit=Unit("record"))
...     print(dataset.cap, ledger.spent("clinic"))
(epsilon=3, delta=1e-06) None
>>> folder.cleanup()

What is named here loads SQLAlchemy when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from understudy.ledger.ledger import Ledger as Ledger
    from understudy.ledger.location import default_location as default_location
    from understudy.ledger.values import Balance as Balance
    from understudy.ledger.values import Dataset as Dataset
    from understudy.ledger.values import Entry as Entry
    from understudy.ledger.verbs import create as create
    from understudy.ledger.verbs import history as history
    from understudy.ledger.verbs import open as open  # noqa: A004 - the verb's name
    from understudy.ledger.verbs import raise_cap as raise_cap
    from understudy.ledger.verbs import show as show

_HOMES = {
    "Ledger": "ledger",
    "default_location": "location",
    "Balance": "values",
    "Dataset": "values",
    "Entry": "values",
    **dict.fromkeys(("create", "history", "open", "raise_cap", "show"), "verbs"),
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
