"""Libraries that load when they are first used."""

from __future__ import annotations

import pickle
import subprocess
import sys

import pytest

from understudy.base import lazy


def test_none_is_loaded_before_something_of_it_is_used() -> None:
    code = (
        "import sys\nfrom understudy.base.lazy import pa, special, torch\n"
        "assert not {'pyarrow', 'scipy', 'torch'} & sys.modules.keys()\n"
        "pa.array([1])\nassert 'pyarrow' in sys.modules and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_one_that_is_not_installed_is_an_import_error_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(ImportError):
        _ = lazy.special.ndtri


def test_workers_are_sent_the_name_of_a_library_alone() -> None:
    found = pickle.loads(pickle.dumps(lazy.pa))
    assert found.int64() == lazy.pa.int64()
