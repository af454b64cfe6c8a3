"""The notebooks in ``examples/`` run as they stand, in a kernel, without a language model, and hold no output."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from understudy.ledger import Ledger

EXAMPLES = Path(__file__).parent.parent / "examples"
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))
SHOWN = {
    "first-synthetic-table": {"Method dp-kps", "Wrote 20 synthetic records", "Privacy statement", "report.html"},
    "choosing-a-method": {"Method dp-kps", "private-prediction", "50,000 records", "8 phrases, epsilon 12"},
    "a-release-for-a-partner": {"Release of dp-kps", "Privacy statement", "12 synthetic records"},
}
"""Words that the outputs of each hold."""


def name(notebook: Path) -> str:
    return notebook.stem


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name)
def test_a_notebook_holds_no_output(notebook: Path) -> None:
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    for cell in cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert cells[0]["cell_type"] == "markdown"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the notebooks as in the repository, a ledger of its own, and no models."""
    pytest.importorskip("pandas")
    pytest.importorskip("sklearn")
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    folder = shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("out")) / "notebooks"
    Ledger.create(tmp_path / "ledger.sqlite").close()
    monkeypatch.setenv("UNDERSTUDY_LEDGER", str(tmp_path / "ledger.sqlite"))
    monkeypatch.setenv("UNDERSTUDY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    return folder


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name)
def test_a_notebook_runs_and_shows_what_it_makes(notebook: Path, kernel: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    found: Any = nbformat.read(notebook, as_version=4)
    (parameters,) = [cell for cell in found.cells if "parameters" in cell.metadata.get("tags", ())]
    parameters.source = 'llm = "none"'
    resources = {"metadata": {"path": str(kernel)}}
    NotebookClient(found, timeout=900, startup_timeout=300, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in found.cells for output in cell.get("outputs", ())]
    assert not [output for output in outputs if output.output_type == "error"]
    shown = "".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in outputs)
    assert not [words for words in SHOWN[notebook.stem] if words not in shown]
