"""Every mechanism of the project, by name."""

from __future__ import annotations

from understudy.audit.mechanisms.audit import Auditable
from understudy.audit.mechanisms.terms import sum_of_terms, term_counts
from understudy.errors import ConfigError

_ONE_MORE_RECORD = "with and without one record that holds every term of the vocabulary"

MECHANISMS: dict[str, Auditable] = {
    each.name: each
    for each in (
        Auditable(
            "term-counts",
            "dp-kps, aug-pe: counts of public terms, Gaussian noise",
            _ONE_MORE_RECORD,
            lambda budget: sum_of_terms(term_counts(), "gaussian", budget),
        ),
    )
}
ALL = "all"


def chosen(name: str) -> list[Auditable]:
    """The mechanism of this name, or all of them.

    Raises:
        ConfigError: if there is none of this name.
    """
    if name == ALL:
        return list(MECHANISMS.values())
    if name not in MECHANISMS:
        raise ConfigError(
            f"There is no mechanism {name!r:.80} to audit.", "See `understudy audit mechanism --list`, or say `all`."
        )
    return [MECHANISMS[name]]
