"""An addition is one folder and one line of registration: a fourth one works with every verb, and with the others."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from clinic import settings

HERE = Path(__file__).parent
REGISTERED = """
import sys
sys.path.insert(0, {here!r})
from lengths_addition import Lengths
from understudy.methods.additions import registry
registry.ADDITIONS += (Lengths,)
"""
USED = """
import json
import understudy as us
from understudy.cli import cli
from understudy.run.forecast import forecast
from understudy.run.pipeline import run
from understudy.run.settings import run_config

values = json.loads({values!r})
planned = forecast(run_config(values)).plan
assert [charge.name for charge in planned.charges] == {charges}, planned.charges
assert abs(planned.total - 6) < 1e-3, planned.total
made = run(run_config(values))
assert run(run_config(values)).release.digest == made.release.digest, "a resumed run charges and releases nothing"
loaded = us.load_release({output!r} + "/release/dp-kps.release")
assert loaded.arrays["lengths"].shape == (8,)
assert abs(loaded.arrays["lengths"].sum() - 40) < 60, loaded.arrays["lengths"]
texts = us.generate(loaded, llm="none", records=6, output={output!r} + "-more")
assert len(texts.records) == 6
cli.main(["run", "--help-all"], standalone_mode=False)
"""


def used(tmp_path: Path, charges: list[str], **changes: object) -> str:
    values = settings(tmp_path, epsilon="6", delta="1e-6", lengths=True, guide=False, **changes)
    output = str(values["output"])
    code = REGISTERED.format(here=str(HERE)) + USED.format(values=json.dumps(values), charges=charges, output=output)
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_fourth_addition_is_planned_charged_released_checked_and_an_option_of_every_verb(tmp_path: Path) -> None:
    assert "--lengths" in used(tmp_path, ["vocabulary", "density", "lengths"])


def test_it_joins_the_typed_columns(tmp_path: Path) -> None:
    columns = {"clinician": [f"dr-{number}" for number in range(5)]}
    counted = ["vocabulary", "density", "column-density"]
    used(tmp_path, [*counted, "lengths", "columns", "column-pairs"], columns=columns)
