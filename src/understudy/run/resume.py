"""What must hold for a run to go on where it was, besides its settings and its data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from understudy.config import RunConfig
from understudy.errors import ConfigError, ResumeError
from understudy.methods.base import Method
from understudy.methods.registry import method_class
from understudy.release import Release
from understudy.run.session import Session

if TYPE_CHECKING:
    from understudy.models.causal import CausalModel
    from understudy.models.types import Embedder


def require_continuable(config: RunConfig) -> None:
    """That a run of these settings can be continued, before its folder is touched.

    Raises:
        ConfigError: if the method's releases do not stop before their charges are used up, or all is to start anew.
    """
    if not method_class(config.method).stopping_parameters:
        raise ConfigError(
            f"A release of {config.method} uses all that it pays for, so there is nothing to continue.",
            "Leave --continue out (a killed run goes on by itself); more of the same data is a new run.",
        )
    if config.fresh:
        raise ConfigError(
            "A release cannot both go on and start anew.", "Give one of --continue and --fresh (which charges again)."
        )


def require_begun(session: Session) -> None:
    """That there is something to go on with.

    Raises:
        ConfigError: if no run began here.
    """
    if not session.begun:
        raise ConfigError(
            "No run began in this output folder, so there is nothing to continue.",
            "Name the folder of the run with --output, or leave --continue out.",
        )


def require_no_less(method: Method, made: Release) -> None:
    """That a release that goes on stops no earlier than the one that is there.

    Raises:
        ConfigError: if it would, and so write a smaller Release over a larger one.
    """
    wanted = method.dump()
    for name in sorted(method.stopping_parameters):
        before, now = made.parameters.get(name), wanted[name]
        if now is not None and (before is None or now < before):
            flag = "--" + name.replace("_", "-")
            raise ConfigError(
                f"{flag} {now} would stop earlier than the Release that is there ({before or 'no limit'}).",
                f"Give {flag} the same number or a higher one.",
            )


def require_same_model(session: Session, model: CausalModel | Embedder, *, what: str = "private model") -> None:
    """That a run which goes on reads with the model that it began with: the statement names one.

    Args:
        what: the model is in this run.

    Raises:
        ResumeError: if its weights or tokenizer are others.
    """
    sha = np.frombuffer(model.fingerprint.encode(), dtype=np.uint8)
    if not np.array_equal(session.store.keep_once(what, lambda: {"sha": sha})["sha"], sha):
        raise ResumeError(
            f"The {what} is not the one that this run began with: its weights or its tokenizer changed.",
            "Use the model it began with, or --fresh to start anew (which charges the budget again).",
        )
