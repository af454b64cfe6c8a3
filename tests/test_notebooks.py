"""The notebooks in ``examples/`` run as they stand, in a kernel, without a language model, and hold no output."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from understudy.ledger import Ledger

EXAMPLES = Path(__file__).parent.parent / "examples"
NOTEBOOKS = sorted((EXAMPLES / "notebooks").glob("*.ipynb"))
# Words that the outputs of each hold.
SHOWN = {
    "first-synthetic-table": {"Method dp-kps", "Wrote 20 synthetic records", "Privacy statement", "report.html"},
    "choosing-a-method": {"Method dp-kps", "private-prediction", "50,000 records", "8 phrases, epsilon 12"},
    "a-release-for-a-partner": {"Release of dp-kps", "Privacy statement", "12 synthetic records"},
}


def name(notebook: Path) -> str:
    return notebook.stem


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name)
def test_a_notebook_holds_no_output(notebook: Path) -> None:
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    for cell in cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert cells[0]["cell_type"] == "markdown"


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each notebook shows, with the folder as in the repository, a ledger of its own, and no models. They run in
    one kernel, one after the other: to start one, and to import everything in it, takes longest."""
    for needed in ("pandas", "sklearn", "nbclient", "ipykernel"):
        pytest.importorskip(needed)
    import nbformat
    from nbclient import NotebookClient

    root, whole = tmp_path_factory.mktemp("notebooks"), nbformat.v4.new_notebook()
    for notebook in NOTEBOOKS:
        folder = root / notebook.stem
        shutil.copytree(EXAMPLES, folder / "examples", ignore=shutil.ignore_patterns("out"))
        Ledger.create(folder / "ledger.sqlite").close()
        cells = nbformat.read(notebook, as_version=4).cells
        (parameters,) = [cell for cell in cells if "parameters" in cell.metadata.get("tags", ())]
        parameters.source = 'llm = "none"'
        places = {"UNDERSTUDY_LEDGER": str(folder / "ledger.sqlite"), "UNDERSTUDY_CACHE": str(folder / "cache")}
        begun = f"import os; os.chdir({str(folder / 'examples' / 'notebooks')!r}); os.environ.update({places})"
        for number, cell in enumerate([*map(nbformat.v4.new_code_cell, ("%reset -f", begun)), *cells]):
            whole.cells.append(nbformat.from_dict({**cell, "id": f"{notebook.stem}-{number}"}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(root / "ipython"))
        NotebookClient(whole, timeout=900, startup_timeout=300, kernel_name="python3").execute()
    found = dict.fromkeys((notebook.stem for notebook in NOTEBOOKS), "")
    for cell in whole.cells:
        for output in cell.get("outputs", ()):
            assert output.output_type != "error"
            found[cell.id.rpartition("-")[0]] += output.get("text", "") + output.get("data", {}).get("text/plain", "")
    return found


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=name)
def test_a_notebook_runs_and_shows_what_it_makes(notebook: Path, shown: dict[str, str]) -> None:
    assert not [words for words in SHOWN[notebook.stem] if words not in shown[notebook.stem]]
