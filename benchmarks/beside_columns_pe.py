"""Tab-PE of github.com/microsoft/DPSDA on a table. Run by ``benchmarks.beside_columns`` with a Python that has it.

    python benchmarks/beside_columns_pe.py FOLDER EPSILON ROUNDS

FOLDER has ``train.csv`` and ``metadata.json``; its rows go to ``made.csv``. The settings are those of its own examples
(``example/tabular``). It takes ranges, and the number of records of each label, from the private table without noise.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from pe.api import TabularAPI
from pe.callback import SaveTabToCSV
from pe.data import TabularCSV
from pe.embedding import TabularEmbedding
from pe.histogram import NearestNeighbors
from pe.population import CompositePopulation, PEPopulation
from pe.runner import PE

COUNT, SAMPLED_ROUNDS = 1000, 5


def main() -> None:
    folder, epsilon, rounds = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    data = TabularCSV(csv_path=str(folder / "train.csv"), metadata_path=str(folder / "metadata.json"))
    info, records = data.get_tab_info(), len(data.data_frame)
    rates = {"mutation_rate_init": 0.5, "mutation_rate_final": 0.01, "decay_type": "polynomial", "gamma": 0.2}
    api = TabularAPI(info=info, num_iterations=rounds, **rates)
    histogram = NearestNeighbors(embedding=TabularEmbedding(info=info), mode="L2", lookahead_degree=0, backend="torch")
    first = {"keep_selected": False, "selection_mode": "sample", "histogram_threshold": 0}
    sampling = PEPopulation(api=api, initial_variation_api_fold=0, next_variation_api_fold=1, **first)
    then = {"keep_selected": True, "selection_mode": "rank"}
    ranking = PEPopulation(api=api, initial_variation_api_fold=3, next_variation_api_fold=3, **then)
    population = CompositePopulation(populations=[sampling] * SAMPLED_ROUNDS + [ranking] * (rounds - SAMPLED_ROUNDS))
    made = folder / "made"
    runner = PE(
        priv_data=data,
        population=population,
        histogram=histogram,
        callbacks=[SaveTabToCSV(output_folder=str(made))],
        loggers=[],
    )
    delta = 1 / records / np.log(records)
    kept = str(folder / "checkpoint")
    runner.run(num_samples_schedule=[COUNT] * rounds, delta=delta, epsilon=epsilon, checkpoint_path=kept)
    sorted(made.glob("*.csv"))[-1].rename(folder / "made.csv")


if __name__ == "__main__":
    main()
