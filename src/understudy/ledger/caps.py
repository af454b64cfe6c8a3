"""What a dataset's cap may be, and what it may be raised to."""

from __future__ import annotations

from understudy.errors import ConfigError, LedgerError
from understudy.ledger.values import Dataset, require_name
from understudy.privacy.accountant import CrossRunRule
from understudy.privacy.guarantee import Budget
from understudy.privacy.plan import require_budget_of
from understudy.privacy.secrets.budget import SecretBudget
from understudy.privacy.unit import Unit


def rule_for(cap: Budget | SecretBudget, unit: Unit, rule: str | None) -> CrossRunRule:
    """How runs under this cap compose; ``rule`` if it may be chosen.

    Raises:
        ConfigError: if there is no such rule, it does not go with the cap, or the cap does not go with the unit.
    """
    require_budget_of(unit, cap)
    if rule not in (None, "basic", "rdp"):
        raise ConfigError(f"There is no rule {rule!r} of composition over runs.", "Use basic or rdp.")
    if isinstance(cap, SecretBudget):
        if rule == "basic":
            raise ConfigError("Posteriors of secrets do not add up over runs.", "Use rule rdp, or leave the rule out.")
        return "rdp"
    if rule != "rdp":
        return "basic"
    if cap.delta == 0:
        raise ConfigError("The rule rdp needs a delta greater than 0.", "Give a delta, or use rule basic.")
    return "rdp"


def require_no_lower(dataset: Dataset, cap: Budget | SecretBudget) -> None:
    """See that the dataset's cap may become ``cap``.

    Raises:
        LedgerError: if it is lower, of another kind, or for another prior.
    """
    old, of = dataset.cap, f"of dataset {dataset.name!r}"
    if isinstance(old, SecretBudget) and isinstance(cap, SecretBudget):
        if cap.prior != old.prior:
            raise LedgerError(
                f"The cap {cap} has another prior than the cap {old} {of}: neither is the higher.",
                "Keep the prior, and give a higher posterior.",
            )
        lower, cure = cap.posterior < old.posterior, "its posterior"
    elif isinstance(old, Budget) and isinstance(cap, Budget):
        lower, cure = cap.epsilon < old.epsilon or cap.delta < old.delta, "its epsilon and its delta"
    else:
        raise LedgerError(
            f"The cap {cap} is of another kind than the cap {old} {of}.", f"Raise it with: {raising(dataset)}"
        )
    if lower:
        raise LedgerError(
            f"The cap {cap} is lower than the cap {old} {of}.", f"A cap can only be raised: give at least {cure}."
        )


def raising(dataset: Dataset) -> str:
    """The command that raises the dataset's cap."""
    secret = isinstance(dataset.cap, SecretBudget)
    numbers = "--secret-prior P --secret-posterior R" if secret else "--epsilon E --delta D"
    return f"understudy ledger open {dataset.name} {numbers} --raise"


def not_opened(name: str, unit: Unit) -> LedgerError:
    """The error for a run on a dataset that a strict ledger does not know."""
    require_name(name)  # so that the message quotes no more than a name
    flags = {
        "record": "--epsilon E --delta D",
        "owner": f"--owner {unit.column} --epsilon E --delta D",
        "secret": "--secret-detectors ... --max-records-per-secret M --secret-prior P --secret-posterior R",
    }[unit.kind]
    return LedgerError(
        f"The ledger is strict, and has no dataset {name!r}: a run cannot open one.",
        f"Name one that is open (--dataset NAME), or open it with a cap: understudy ledger open {name} {flags}",
    )
