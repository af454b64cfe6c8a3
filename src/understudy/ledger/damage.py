"""What the ledger holds and nobody could have written: one error, whichever field it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from understudy.errors import LedgerError, UnderstudyError


def damaged() -> LedgerError:
    """The error for a field that makes no sense."""
    return LedgerError(
        "The ledger is damaged: it holds a value that cannot be read.",
        "Restore it from a backup: what it recorded must not be forgotten.",
    )


@contextmanager
def reading_fields() -> Iterator[None]:
    """Turn whatever goes wrong while stored fields are read into that one error.

    A field's own validator would blame a flag that the user never gave, and quote the field.

    Raises:
        LedgerError: in the place of any such error; one that is raised inside is passed on.
    """
    try:
        yield
    except LedgerError:
        raise
    except (UnderstudyError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
        raise damaged() from None
