"""Forecasts made in the background, so that a page shows what is there and asks again."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from understudy.base.errors import ConfigError, UnderstudyError
from understudy.run.forecast import Forecast, forecast
from understudy.run.settings import run_config

Outcome = Forecast | UnderstudyError
"""What came of a configuration."""
MOST_KEPT, MOST_WAITING = 2000, 200
WORKERS = 2
"""So that one slow point does not hold up quick ones."""


class Forecasts:
    """Outcomes by configuration: kept once made, those asked for last made first.

    Most take milliseconds; where the accountant adds up privacy loss distributions, some take seconds.
    """

    def __init__(self) -> None:
        self._made: OrderedDict[str, Outcome] = OrderedDict()
        self._waiting: OrderedDict[str, Mapping[str, Any]] = OrderedDict()
        self._changed = threading.Condition()
        self._workers: list[threading.Thread] = []

    def ask(self, wanted: list[Mapping[str, Any]], *, patience: float = 0.0) -> list[Outcome | None]:
        """The outcome of each configuration, None for those still to be made, which are then made in this order.

        Args:
            patience: seconds to wait for all of them.
        """
        keys = [json.dumps(values, sort_keys=True) for values in wanted]
        with self._changed:
            for key, values in reversed(list(zip(keys, wanted, strict=True))):
                if key not in self._made:
                    self._waiting[key] = values
                    self._waiting.move_to_end(key)
            while len(self._waiting) > MOST_WAITING:
                self._waiting.popitem(last=False)
            while len(self._workers) < WORKERS:
                self._workers.append(threading.Thread(target=self._work, daemon=True))
                self._workers[-1].start()
            self._changed.notify_all()
            self._changed.wait_for(lambda: all(key in self._made for key in keys), timeout=patience)
            return [self._made.get(key) for key in keys]

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                key, values = self._waiting.popitem()
            outcome = _outcome(values)
            with self._changed:
                self._made[key] = outcome
                self._waiting.pop(key, None)  # asked for again meanwhile
                while len(self._made) > MOST_KEPT:
                    self._made.popitem(last=False)
                self._changed.notify_all()


def _outcome(values: Mapping[str, Any]) -> Outcome:
    try:
        return forecast(run_config(values))
    except UnderstudyError as error:
        return error
    except Exception as error:  # the worker must live on
        return ConfigError(f"This cannot be planned ({type(error).__name__}).", "This is a bug; please report it.")
