"""Silence of libraries while private data pass through them: whether they warn is a bit that no epsilon covers."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from understudy.base.errors import UnderstudyWarning


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Show no warnings and log lines but understudy's own; what a library prints, or hands to a handler of its own, is
    not kept back."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, UnderstudyWarning):
            shown(message, category, *place, **more)

    ours = logging.Filter("understudy")
    handlers = [each for each in (*logging.root.handlers, logging.lastResort) if each is not None]
    with warnings.catch_warnings():
        shown, warnings.showwarning = warnings.showwarning, show
        for each in handlers:
            each.addFilter(ours)
        try:
            yield
        finally:
            for each in handlers:
                each.removeFilter(ours)
