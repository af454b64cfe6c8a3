"""A studio and a browser without a screen: requests and what is answered."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from made_runs import made_statement, make_run, measure
from markupsafe import escape
from starlette.testclient import TestClient

from understudy.base.files import private_folder
from understudy.ledger import Ledger
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.events import GaussianEvent
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import Declared
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.unit import Unit
from understudy.studio.app import make_app
from understudy.studio.guard import Tokens
from understudy.studio.jobs import Jobs

ADDRESS = "http://127.0.0.1:8765"
COMMAND = [sys.executable, "-m", "understudy", "studio"]
SCRIPT = "<script>alert(1)</script>"


@dataclass
class Studio:
    """A client that was let in, unless ``let_in`` is False."""

    root: Path
    tokens: Tokens
    client: TestClient
    jobs: Jobs

    @classmethod
    def over(cls, root: Path, *, runs: Path | None = None, let_in: bool = True) -> Studio:
        tokens = Tokens()
        folder, ledger = runs or root / "out", str(root / "ledger.sqlite")
        jobs = Jobs(folder, ledger=ledger)
        app = make_app(runs=folder, ledger=ledger, tokens=tokens, jobs=jobs)
        client = TestClient(app, base_url=ADDRESS, follow_redirects=False, raise_server_exceptions=False)
        if let_in:
            client.get("/", params={"token": tokens.shown})
        return cls(root, tokens, client, jobs)

    def read(self, address: str) -> str:
        """A page's HTML, which must be there."""
        answer = self.client.get(address)
        assert answer.status_code == 200, answer.text
        return answer.text

    def link(self, name: str) -> str:
        """The address of a run by its name on the page of runs."""
        found = re.search(rf'<a href="(/runs/\w+)">{re.escape(str(escape(name)))}</a>', self.read("/runs"))
        assert found is not None
        return found[1]


def make_world(root: Path) -> Path:
    """Two measured runs, a Release alone, and a ledger with two charges and a raised cap."""
    out = root / "out"
    for epsilon in (1, 6):
        folder = make_run(out / f"run-{epsilon}", statement=made_statement(epsilon))
        measure(folder, accuracy=0.6 + epsilon / 50)
    make_run(out / "team" / "release-only", [])
    private_folder(out / "not-a-run")
    book_charges(root / "ledger.sqlite")
    return root


def book_charges(location: Path) -> None:
    with Ledger.create(location) as ledger:
        ledger.open_dataset("clinic", cap=Budget(10, "1e-5"), unit=Unit())
        ledger.charge("clinic", made_plan(2), run_id="first", note=SCRIPT)
        ledger.charge("clinic", made_plan(3), run_id="second")
        ledger.raise_cap("clinic", cap=Budget(20, "1e-5"), note="agreed")
        ledger.open_dataset("untouched", cap=Budget(1, "1e-6"), unit=Unit())


def made_plan(epsilon: int) -> Plan:
    budget = Budget(epsilon, "1e-6")
    (noise,) = gaussian_split(budget, [1])
    return Plan("dp-kps", Unit(), budget, (Charge("density", Declared(GaussianEvent(noise)), "noisy counts"),))


@contextmanager
def running(*words: str, folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address that it prints, and its process."""
    command = [*COMMAND, "--no-browser", "--ledger", str(folder / "ledger.sqlite"), *words]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.search(r"http://127\.0\.0\.1:\d+/\?token=\S{40,}", line)
            assert found, line
            yield found[0], process
        finally:
            process.kill()
