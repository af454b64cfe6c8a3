"""What is released of typed columns, which rows are sampled, and what prompts show of them."""

from __future__ import annotations

from typing import Any, ClassVar

from understudy.base.parameters import Gone, GoneOnes, Parameters

SELECTED, TREE, ALL, NONE = "selected", "tree", "all", "none"
COLUMNS_SHARE = 0.3
"""Of the budget (of mu^2): what the columns get."""


class TablesParameters(Parameters):
    """The typed columns beside the text (--columns): released as noisy marginals."""

    column_pairs: str = SELECTED
    """Pairs of columns whose joint histograms are measured: ``selected`` (those of which more is to be learnt than
    their noise costs, selected under privacy), ``tree`` (as few of them as connect all columns), ``all``, ``none``, or
    ``A*B,B*C``, which is public."""

    gone: ClassVar[GoneOnes] = {"columns_share": Gone(COLUMNS_SHARE, "columns get 30 % of the budget (of mu^2)")}


class RowsParameters(Parameters):
    """Which rows are sampled of a Release with columns."""

    where: str | dict[str, Any] | None = None
    """Only rows like these: ``priority=high,opened=2024-03-01..2024-03-31``; ``A|B`` for one of several."""
    prompt_columns: str | tuple[str, ...] = ALL
    """Columns that a prompt shows of its row: ``all``, ``none``, or names, separated by commas."""
