"""docs/errors.md and the code agree."""

from __future__ import annotations

import re
from pathlib import Path

from understudy.base.errors import UnderstudyError
from understudy.cli import INTERNAL_ERROR, INTERRUPTED

DOCUMENT = (Path(__file__).parents[2] / "docs" / "errors.md").read_text("utf-8")


def test_every_kind_of_error_is_documented_with_its_exit_code() -> None:
    documented = {name: int(code) for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", DOCUMENT, re.MULTILINE)}
    assert documented == {kind.__name__: kind.exit_code for kind in UnderstudyError.__subclasses__()}
    assert len(set(documented.values())) == len(documented)
    assert {f"| {INTERNAL_ERROR} |", f"| {INTERRUPTED} |"} <= set(re.findall(r"^\| \d+ \|", DOCUMENT, re.MULTILINE))
