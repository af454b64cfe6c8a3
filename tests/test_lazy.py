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


def test_privacy_losses_are_computed_without_the_statistics_that_their_library_loads_for_others() -> None:
    code = (
        "import sys\nfrom understudy.privacy.subsampled import subsampled_multiplier\n"
        "from understudy.privacy.guarantee import Budget\n"
        "subsampled_multiplier(Budget(6, '1e-6'), rate=0.1, count=3)\n"
        "assert not {'scipy.stats', 'scipy.signal', 'dp_accounting'} & sys.modules.keys()\n"
        "import dp_accounting, scipy\n"  # whoever wants the whole of them has it
        "from dp_accounting.pld import privacy_loss_distribution as pld\n"
        "assert dp_accounting.pld.PLDAccountant and pld.from_laplace_mechanism(1.0)\n"
        "assert scipy.stats.norm.cdf(0) == 0.5 and scipy.signal.fftconvolve([1.0], [2.0]) == [2.0]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_one_that_is_not_installed_is_an_import_error_where_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.special", None)
    with pytest.raises(ImportError):
        _ = lazy.special.ndtri


def test_workers_are_sent_the_name_of_a_library_alone() -> None:
    found = pickle.loads(pickle.dumps(lazy.pa))
    assert found.int64() == lazy.pa.int64()
