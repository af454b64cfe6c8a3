"""Owner-level private evolution on the real path: an owner moves all histograms together by one vote at most."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import TERMS, FakeChat, flags, write_csv
from evolution_fixtures import WordEmbedder, evolving
from numpy.typing import NDArray
from run_fixtures import Command, release

import understudy as us
from understudy.corpus.bounding import BoundedCorpus
from understudy.methods.shared.evolution.embeddings import PrivateEmbeddings, integer_vectors
from understudy.methods.shared.specs import VotesSpec
from understudy.methods.shared.votes import VoteHistogram
from understudy.privacy.measurement import exact_sum
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.unit import Unit

LABELS = ("cardiology", "dermatology", "surgery")
OWNER = Unit("owner", 4, "clinician")
CANDIDATES = [f"Seen: {first}, {second}." for first, second in zip(TERMS, TERMS[3:], strict=False)]


def table() -> list[dict[str, str]]:
    """Owners with records in one label, in all labels, alike, one only, and many more than are used."""
    held = {
        "one": [("heart", 0)],
        "spread": [("heart pulse", label) for label in range(3)],
        "alike": [("rash", 1)] * 5,
        "similar": [(f"rash {number}", 1) for number in range(4)],
        "many": [(TERMS[number % 16], number % 3) for number in range(40)],
        "mixed": [("stent", 0), ("stent now", 0), ("mole", 1), ("scalp", 2)],
    }
    return [
        {"note": text, "department": LABELS[label], "clinician": name}
        for name, records in held.items()
        for text, label in records
    ]


def histogram(rows: list[dict[str, str]], folder: Path, **options: Any) -> NDArray[np.int64]:
    """The exact one, by way of corpus, bounding, embeddings on disk and votes."""
    corpus = us.read_corpus(rows, text="note", label="department", labels=LABELS, owner="clinician")
    bounded = BoundedCorpus(corpus, OWNER, b"key")
    embeddings = PrivateEmbeddings(bounded, WordEmbedder(), folder, "k")
    labels = np.repeat(np.arange(3, dtype=np.int32), len(CANDIDATES))
    vectors = integer_vectors(WordEmbedder().embed(CANDIDATES * 3))
    spec = VotesSpec(options.pop("unit", OWNER), options.pop("neighbours", 1))
    return exact_sum(VoteHistogram(spec, vectors, labels, **options), embeddings)


def movements(folder: Path, **options: Any) -> dict[str, int]:
    """How far each owner moves the histogram, jointly over labels: L2 squared, in steps of the grid, exactly."""
    whole = histogram(table(), folder / "whole", **options)
    found = {}
    for name in dict.fromkeys(row["clinician"] for row in table()):
        rest = histogram([row for row in table() if row["clinician"] != name], folder / name, **options)
        found[name] = sum(step * step for step in (whole - rest).tolist())
    return found


@pytest.mark.parametrize("nearest", [1, 3])
@pytest.mark.parametrize("distance", ["cosine", "l2"])
def test_removing_an_owner_moves_the_histogram_by_one_vote_at_most_over_all_labels(
    tmp_path: Path, nearest: int, distance: str
) -> None:
    found = movements(tmp_path, neighbours=nearest, distance=distance)
    assert max(found.values()) <= COUNT_GRID**2
    assert min(found.values()) > 0.999 * COUNT_GRID**2  # everybody has a whole vote


def test_the_test_notices_votes_that_are_not_joint(tmp_path: Path) -> None:
    found = movements(tmp_path, unit=Unit())
    assert found["one"] == COUNT_GRID**2
    assert found["spread"] == 3 * COUNT_GRID**2
    assert found["many"] > COUNT_GRID**2


def test_without_an_owner_the_votes_of_a_whole_run_are_one_vote_away(
    tmp_path: Path, embedder: WordEmbedder, varied_chat: FakeChat
) -> None:
    """End to end, in the first round: the candidates are the same, since they depend on nothing private."""

    def votes(name: str, rows: list[dict[str, str]]) -> us.Release:
        (tmp_path / name).mkdir()
        write_csv(tmp_path / name / "notes.csv", rows)
        own = {"owner": "clinician", "max_records_per_owner": 4, "labels": ",".join(LABELS), "nearest": 2}
        values = evolving(tmp_path / name, **own, rounds=1, insecure_no_noise=True)
        return release(values)

    whole = votes("whole", table())
    for name in ("spread", "many", "alike"):
        rest = votes(name, [row for row in table() if row["clinician"] != name])
        assert rest.strings == whole.strings
        steps = np.rint((whole.arrays["votes"] - rest.arrays["votes"]) * COUNT_GRID).astype(np.int64).tolist()
        assert 0.99 * COUNT_GRID**2 < sum(step * step for step in steps) <= COUNT_GRID**2


def test_owners_over_several_labels_end_to_end(
    tmp_path: Path, understudy: Command, embedder: WordEmbedder, varied_chat: FakeChat
) -> None:
    write_csv(tmp_path / "notes.csv", table())
    own = {"owner": "clinician", "max_records_per_owner": 4, "labels": ",".join(LABELS), "label_sizes": "noisy"}
    said = understudy("run", *flags(evolving(tmp_path, **own)), code=0)
    assert "at most 4 are used" in said.err
    release = us.load_release(tmp_path / "out" / "release" / "aug-pe.release")
    assert release.statement.unit.to_json() == {"kind": "owner", "max_records": 4, "column": "clinician"}
    assert set(release.arrays["label"].tolist()) == {0, 1, 2}
    assert release.arrays["chosen"].sum() == 2 * 12
