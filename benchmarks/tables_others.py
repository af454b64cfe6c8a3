"""MST and AIM of others, on a table of cells. Run by ``benchmarks.tables`` with a Python that has what they need.

    python benchmarks/tables_others.py NAME TABLE.npz ROWS.npz

``opendp-mst`` and ``opendp-aim`` need ``pip install 'opendp[mbi]' pandas``, which pins an older ``mbi`` than ours.
``mst`` and ``aim`` are the published scripts in ``mechanisms`` of github.com/ryan112358/mbi, and need that checkout's
own ``mbi`` (its names differ from both releases'), ``pandas``, ``networkx`` and ``matplotlib``.
TABLE has ``rows``, ``sizes``, ``epsilon``, ``delta``, ``rho``, ``count`` (rows to sample), ``limit`` (MB that AIM's
model may take) and ``scripts`` (the folder of the scripts). Nothing of understudy is imported.
"""

from __future__ import annotations

import contextlib
import sys
import time
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np


def published(name: str, given: Any) -> np.ndarray:
    """Rows of ``mechanisms/mst.py`` or ``aim.py``, at their defaults but AIM's limit."""
    import mbi

    sys.path.insert(0, str(given["scripts"]))
    count = int(given["count"])
    names = [str(place) for place in range(len(given["sizes"]))]
    columns = {each: given["rows"][:, place] for place, each in enumerate(names)}
    data = mbi.Dataset(columns, mbi.Domain(names, given["sizes"].tolist()))
    if name == "mst":
        import mst

        # The script samples as many rows as it estimates there are; marginals are compared by more.
        sample = mbi.MarkovRandomField.synthetic_data
        mbi.MarkovRandomField.synthetic_data = lambda self, *_: sample(self, count)
        made = mst.MST(data, float(given["epsilon"]), float(given["delta"]))
    else:
        import aim

        workload = [(pair, 1.0) for pair in combinations(names, 2)]
        mechanism = aim.AIM(float(given["epsilon"]), float(given["delta"]), max_model_size=float(given["limit"]))
        made = mechanism.run(data, workload, num_synth_rows=count)[1]
    made = made.to_dict()
    return np.stack([np.asarray(made[each]) for each in names], axis=1)


def opendp(name: str, given: Any) -> np.ndarray:
    """Rows of ``make_contingency_table``, at its defaults but AIM's limit and workload (pairs)."""
    import opendp.prelude as dp
    import polars as pl

    dp.enable_features("contrib")
    names = [f"c{place}" for place in range(len(given["sizes"]))]
    frame = pl.LazyFrame({each: given["rows"][:, place] for place, each in enumerate(names)})
    kinds = {
        "opendp-mst": dp.mbi.MST,
        "opendp-aim": partial(dp.mbi.AIM, queries=2, max_size=float(given["limit"])),
    }
    keys = {each: list(range(size)) for each, size in zip(names, given["sizes"].tolist(), strict=True)}
    for part in range(20):
        # Its parts of the budget sometimes add up to a last digit more than the whole, and it refuses.
        rho = float(given["rho"]) * (1 - 1e-4 * part)
        context = dp.Context.compositor(
            data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=rho)
        )
        try:
            table = context.query(rho=rho).contingency_table(keys=keys, algorithm=kinds[name]()).release()
            break
        except dp.OpenDPException as error:
            if "insufficient budget" not in str(error):
                raise
    else:
        raise SystemExit("insufficient budget, 20 times")
    made = table.model.synthetic_data(int(given["count"]), "sample").df
    return np.stack([np.asarray(made[each]) for each in names], axis=1)


def main() -> None:
    name, source, target = sys.argv[1:]
    given = np.load(source)
    start = time.perf_counter()
    with contextlib.redirect_stdout(sys.stderr):
        rows = (opendp if name.startswith("opendp") else published)(name, given)
    np.savez(target, rows=rows.astype(np.int16), seconds=time.perf_counter() - start)


if __name__ == "__main__":
    main()
