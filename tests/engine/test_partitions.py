"""Exact sums are the same bit for bit however the private table is divided, and whoever works on the parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq
import pytest
from evolution_fixtures import WordEmbedder
from working import Pickling

from understudy.audit.mechanisms.sums import by_name
from understudy.base.errors import CorpusError
from understudy.corpus import Corpus, read_corpus
from understudy.corpus import bounding as corpus_parts
from understudy.corpus import read as corpus_read
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.verified import VerifiedCorpus, contents
from understudy.methods.additions.guide.plan import EmbeddingSumsSpec
from understudy.methods.additions.guide.sums import GuideSums
from understudy.methods.shared.evolution.embeddings import PrivateEmbeddings, integer_vectors
from understudy.methods.shared.queries.counts import LabelCounts, TermCounts, TermHistogram
from understudy.methods.shared.queries.discovered_terms import UnlistedTerms
from understudy.methods.shared.specs import LabelCountsSpec, TermCountsSpec, TermHistogramSpec, VotesSpec
from understudy.methods.shared.votes import VoteHistogram
from understudy.privacy.measurement import Query, exact_sum
from understudy.privacy.unit import Unit
from understudy.text.vocabulary.words import TermMatcher

KEY = b"dataset key"
WORDS = ("heart", "pain", "cough", "fever", "knee", "blood", "skin", "eye")
LABELS = ("a", "b", "c")
RECORD, OWNER = Unit("record"), Unit("owner", 3, "who")


def table(rows: int, seed: int = 0) -> pa.Table:
    """Owners hold from one to some dozens of records, everywhere in the table; some records are equal."""
    random = np.random.default_rng(seed)
    return pa.table(
        {
            "text": [" ".join(random.choice(WORDS, size=random.integers(1, 6))) for _ in range(rows)],
            "label": random.choice(LABELS, size=rows).tolist(),
            "who": [f"owner {int(number)}" for number in random.zipf(1.5, size=rows) % 50],
        }
    )


def corpus_of(source: Any, **options: Any) -> Corpus:
    return read_corpus(source, text="text", label="label", labels=list(LABELS), owner="who", **options)


def files(found: pa.Table, folder: Path, ends: Sequence[int], kind: str = "parquet") -> list[str]:
    """The table in several files, which end at these rows."""
    names = []
    for number, (start, end) in enumerate(zip((0, *ends), (*ends, found.num_rows), strict=True)):
        path = folder / f"{number}.{kind}"
        if kind == "parquet":
            pq.write_table(found.slice(start, end - start), path, row_group_size=7)
        else:
            rows = found.slice(start, end - start).to_pylist()
            lines = [",".join(row[name] for name in found.column_names) for row in rows]
            path.write_text("\n".join([",".join(found.column_names), *lines]) + "\n")
        names.append(str(path))
    return names


def queries(unit: Unit) -> dict[str, Query[Any]]:
    matcher = TermMatcher(WORDS)
    return {
        "labels": LabelCounts(LabelCountsSpec(len(LABELS))),
        "terms": TermCounts(TermCountsSpec(len(WORDS), 3), matcher),
        "histogram": TermHistogram(TermHistogramSpec("gaussian", 3, len(WORDS), (len(LABELS),)), matcher),
        "guide": GuideSums(EmbeddingSumsSpec(len(LABELS)), WordEmbedder(), 16),
    }


def sums(corpus: BoundedCorpus, folder: Path, unit: Unit) -> dict[str, bytes]:
    """The exact sums of all queries, votes and terms that no list has among them."""
    found = {name: exact_sum(query, corpus).tobytes() for name, query in queries(unit).items()}
    candidates = integer_vectors(WordEmbedder().embed([f"{word} of somebody" for word in WORDS] * len(LABELS)))
    labels = np.repeat(np.arange(len(LABELS), dtype=np.int32), len(WORDS))
    votes = VoteHistogram(VotesSpec(unit, 2), candidates, labels)
    embedded = PrivateEmbeddings(corpus, WordEmbedder(), folder, "key")
    for round_ in ("first", "again"):
        found[f"votes, {round_}"] = exact_sum(votes, embedded).tobytes()
    unlisted = by_name(UnlistedTerms(frozenset({"heart"}), frozenset(), 2, folder / "unlisted"), corpus)
    found["unlisted terms"] = np.array([(crc32(name.encode()), each) for name, each in unlisted.items()]).tobytes()
    return found


def divided(corpus: Corpus, unit: Unit, folder: Path, workers: int = 2) -> BoundedCorpus:
    engine = Pickling(workers)
    steady = VerifiedCorpus(corpus, key=KEY, expected=contents(corpus, KEY, engine))
    return BoundedCorpus(steady, unit, KEY, engine=engine, scratch=folder / "scratch")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_read, "_FEWEST_ROWS", 5)
    monkeypatch.setattr(corpus_parts, "_ROWS", 11)


@pytest.mark.parametrize("unit", [RECORD, OWNER], ids=lambda unit: unit.kind)
@pytest.mark.parametrize(
    "source",
    [
        lambda found, folder: found,
        lambda found, folder: found.to_pylist(),
        lambda found, folder: files(found, folder, (1, 40, 41)),
        lambda found, folder: files(found, folder, (), "csv"),
    ],
    ids=["arrow", "dicts", "Parquet files", "one CSV file"],
)
def test_sums_depend_on_no_partitioning(source: Callable[[pa.Table, Path], Any], unit: Unit, tmp_path: Path) -> None:
    corpus = corpus_of(source(table(60), tmp_path))
    whole = sums(BoundedCorpus(corpus, unit, KEY), tmp_path / "whole", unit)
    assert sums(divided(corpus, unit, tmp_path / "5", 5), tmp_path / "5", unit) == whole
    for workers in (3, 2):  # a run that goes on with other workers takes no other parts for its own
        assert sums(divided(corpus, unit, tmp_path, workers), tmp_path / "same", unit) == whole, workers
    assert sums(BoundedCorpus(corpus, unit, KEY), tmp_path / "same", unit) == whole


def test_rows_that_changed_in_mid_pass_leave_no_vectors_behind(tmp_path: Path) -> None:
    (name,) = files(table(200), tmp_path, (), "csv")
    corpus = corpus_of(name)
    whole = sums(BoundedCorpus(corpus, RECORD, KEY), tmp_path / "whole", RECORD)
    steady, good = divided(corpus, RECORD, tmp_path), Path(name).read_bytes()
    Path(name).write_bytes(good.replace(b"heart", b"fever"))
    with pytest.raises(CorpusError, match="changed"):
        list(PrivateEmbeddings(steady, WordEmbedder(), tmp_path / "same", "key").map(_count))
    Path(name).write_bytes(good)
    assert sums(divided(corpus, RECORD, tmp_path), tmp_path / "same", RECORD) == whole
    lines = good.decode().splitlines(keepends=True)
    Path(name).write_text("".join([lines[0], *lines[:0:-1]]))  # the same rows, the other way round
    assert sums(divided(corpus, RECORD, tmp_path), tmp_path / "same", RECORD) == whole


def _count(part: PrivateEmbeddings) -> int:
    return sum(len(block.labels) for block in part.batches())


@pytest.mark.parametrize("unit", [RECORD, OWNER], ids=lambda unit: unit.kind)
def test_a_table_without_a_good_row_can_be_divided(unit: Unit, tmp_path: Path) -> None:
    corpus = corpus_of(files(table(20), tmp_path, (10,)), on_bad_row="skip")
    nobody = read_corpus(
        files(table(20), tmp_path, (10,)), text="text", label="label", labels=["z"], owner="who", on_bad_row="skip"
    )
    assert any(
        np.frombuffer(each, np.int64).any() for each in sums(divided(corpus, unit, tmp_path), tmp_path, unit).values()
    )
    found = sums(divided(nobody, unit, tmp_path / "n"), tmp_path / "n", unit)
    assert not any(np.frombuffer(each, np.int64).any() for each in found.values())


def test_an_owner_whose_records_are_apart_would_weigh_more(tmp_path: Path) -> None:
    """The broken twin: without bringing owners together each part bounds what it sees of an owner by itself."""
    found = pa.table({"text": ["heart"] * 1 + ["pain"] * 1 + ["cough", "knee"], "label": ["a"] * 4, "who": ["x"] * 4})
    corpus = corpus_of(files(found, tmp_path, (1, 2, 3)))
    right = divided(corpus, OWNER, tmp_path)
    apart = BoundedCorpus(right.corpus, RECORD, KEY, engine=right.engine)
    object.__setattr__(apart, "unit", OWNER)
    apart.__dict__["_owners"] = list(corpus_parts.parts_of(corpus, Pickling()))
    query = LabelCounts(LabelCountsSpec(len(LABELS)))
    within = query.sensitivity.l2
    assert exact_sum(query, right).sum() <= within < exact_sum(query, apart).sum()


def test_owners_are_brought_together_in_private_files(tmp_path: Path) -> None:
    corpus = divided(corpus_of(files(table(100), tmp_path, (30,))), OWNER, tmp_path)
    seen: list[set[str]] = list(corpus.map(_owners_of))
    assert sum(map(len, seen)) == len(set.union(*seen)) > 20, "no owner is in two parts"
    written = list((tmp_path / "scratch").rglob("*.arrow"))
    assert written
    assert {path.stat().st_mode & 0o777 for path in written} == {0o600}
    assert (tmp_path / "scratch").stat().st_mode & 0o777 == 0o700


def _owners_of(part: BoundedCorpus) -> set[str]:
    return {owner for batch in part.corpus.batches() for owner in batch.owners or ()}


def test_contents_do_not_depend_on_parts(tmp_path: Path) -> None:
    corpus = corpus_of(files(table(200), tmp_path, (50, 60)))
    whole, parts = contents(corpus, KEY), contents(corpus, KEY, Pickling())
    assert (whole.digest, whole.texts) == (parts.digest, parts.texts)
    assert whole.texts == (corpus.fingerprint(KEY),)
    assert len(parts.pieces) > len(whole.pieces) == 1


def test_a_part_that_changes_after_the_check_is_seen(tmp_path: Path) -> None:
    names = files(table(60), tmp_path, (20, 40))
    corpus = divided(corpus_of(names), RECORD, tmp_path)
    assert exact_sum(LabelCounts(LabelCountsSpec(3)), corpus).sum() > 0
    files(table(60, seed=1).slice(20, 20), tmp_path / "..", ())  # elsewhere: no matter
    assert exact_sum(LabelCounts(LabelCountsSpec(3)), corpus).sum() > 0
    pq.write_table(table(60, seed=1).slice(20, 20), names[1])
    with pytest.raises(CorpusError, match="changed while the run was reading"):
        exact_sum(LabelCounts(LabelCountsSpec(3)), corpus)
    with pytest.raises(CorpusError, match="changed while the run was reading"):
        list(corpus.corpus.batches())


def test_bad_rows_in_parts_are_kept_as_those_of_the_whole(tmp_path: Path) -> None:
    found = table(60).set_column(1, "label", pa.array([("a", "z")[number % 9 == 4] for number in range(60)]))
    names = files(found, tmp_path, (25,))
    kept = {}
    for engine in (None, Pickling()):
        folder = tmp_path / str(engine is None)
        corpus = corpus_of(names, on_bad_row="skip", private_dir=folder)
        assert contents(corpus, KEY, engine).bad_share == 7 / 60
        kept[engine is None] = [(folder / name).read_bytes() for name in ("bad_rows.jsonl", "skipped_rows.json")]
        strict = corpus_of(names, private_dir=folder)
        with pytest.raises(CorpusError, match="label that is not declared"):
            contents(strict, KEY, engine)
    assert kept[True] == kept[False]


def test_rows_of_a_parquet_file_are_those_of_the_whole(tmp_path: Path) -> None:
    corpus = corpus_of(files(table(100), tmp_path, (3,)))

    def rows(batches: Iterator[Any]) -> list[tuple[str, int, str]]:
        return [row for each in batches for row in zip(each.texts, each.labels.tolist(), each.owners, strict=True)]

    for wanted in (1, 2, 9, 1000):
        pieces = corpus.pieces(wanted)
        assert [row for piece in pieces for row in rows(piece.batches())] == rows(corpus.batches()), wanted


def test_a_partitioned_folder_is_divided_with_its_partitions(tmp_path: Path) -> None:
    found = table(60)
    for label in LABELS:
        (tmp_path / "t" / f"label={label}").mkdir(parents=True)
        mine = found.filter(pa.compute.equal(found["label"], label)).drop_columns(["label"])
        pq.write_table(mine, tmp_path / "t" / f"label={label}" / "0.parquet")
    corpus = corpus_of(str(tmp_path / "t"))
    whole = sums(BoundedCorpus(corpus, OWNER, KEY), tmp_path / "whole", OWNER)
    assert sums(divided(corpus, OWNER, tmp_path), tmp_path, OWNER) == whole
    assert whole["labels"] == sums(BoundedCorpus(corpus_of(found), OWNER, KEY), tmp_path / "memory", OWNER)["labels"]
