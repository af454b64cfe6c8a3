"""A process that ends right after it has read a Release ends well: Arrow threads aborted one in three once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from test_release_file import make


def test_a_process_that_only_loads_a_release_ends_well(tmp_path: Path) -> None:
    path = tmp_path / "dp-kps.release"
    make().save(path)
    reading = "from pathlib import Path; from understudy.release.reading import read_release"
    code = f"{reading}; read_release(Path({str(path)!r}))"
    for _ in range(8):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
