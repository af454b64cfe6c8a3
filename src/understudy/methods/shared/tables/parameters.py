"""What is released of typed columns, which rows are sampled, and what prompts show of them."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from understudy.base.parameters import Parameters

SELECTED, TREE, ALL, NONE = "selected", "tree", "all", "none"


class TablesParameters(Parameters):
    """The typed columns beside the text (--columns): released as noisy marginals."""

    columns_share: float = Field(0.3, gt=0, lt=1)
    """Share of the budget (of mu^2) that the columns get; ``plan`` says what it buys."""
    column_pairs: str = SELECTED
    """Pairs of columns whose joint histograms are measured: ``selected`` (those of which more is to be learnt than
    their noise costs, selected under privacy), ``tree`` (as few of them as connect all columns), ``all``, ``none``, or
    ``A*B,B*C``, which is public."""


class RowsParameters(Parameters):
    """Which rows are sampled of a Release with columns."""

    where: str | dict[str, Any] | None = None
    """Only rows like these: ``priority=high,opened=2024-03-01..2024-03-31``; ``A|B`` for one of several."""
    prompt_columns: str | tuple[str, ...] = ALL
    """Columns that a prompt shows of its row: ``all``, ``none``, or names, separated by commas."""
