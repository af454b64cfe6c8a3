"""What the ledger knows, for people: numbers rounded to the side that promises nothing too much."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction

from understudy.ledger.values import Dataset
from understudy.privacy.guarantee import Budget
from understudy.privacy.secrets.budget import SecretBudget


def numbers(budget: Budget | SecretBudget | None, *, left: bool = False) -> tuple[str, str] | None:
    """Epsilon and delta, or prior and posterior, in six digits; None for no budget.

    Args:
        left: of what may still be spent, which is rounded down; what is spent is rounded up. (The prior of a secret is
            rounded to the other side.)
    """
    if budget is None:
        return None
    rounding, other = (ROUND_FLOOR, ROUND_CEILING) if left else (ROUND_CEILING, ROUND_FLOOR)
    if isinstance(budget, Budget):
        return _digits(budget.epsilon, rounding), _digits(budget.delta, rounding)
    return _digits(budget.prior, other), _digits(budget.posterior, rounding)


def both(budget: Budget | SecretBudget | None, *, left: bool = False) -> str:
    """The two of :func:`numbers` with a comma between them; a hyphen for no budget."""
    return ", ".join(numbers(budget, left=left) or "-")


def what_remains(dataset: Dataset, remaining: Budget | SecretBudget | None) -> str:
    """What is left of a dataset's cap."""
    if remaining is None:  # posteriors do not subtract
        return "depends on the run" if dataset.unit.kind == "secret" else "0"
    return both(remaining, left=True)


def unit_words(dataset: Dataset) -> str:
    """Whom the dataset's runs protect."""
    unit = dataset.unit
    return unit.kind if unit.kind == "record" else f"{unit.name}, at most {unit.max_records} records"


def _digits(number: Fraction, rounding: str) -> str:
    context = Context(prec=6, rounding=rounding)
    return f"{float(context.divide(Decimal(number.numerator), Decimal(number.denominator))):g}"
