"""One owner is one owner, however the files spell it."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from understudy.base.errors import ConfigError
from understudy.corpus import read_corpus
from understudy.corpus.bounding import BoundedCorpus
from understudy.privacy.unit import Unit


def owners_of(source, **more) -> list[str]:
    return [owner for batch in read_corpus(source, text="t", owner="o", **more).batches() for owner in batch.owners]


def test_an_owner_with_a_decimal_point_in_one_row_and_without_in_another_is_one_owner(write):
    cells = [7, 7.0, "7", "7.0", " 7 ", "\u00a07\t", np.int64(7), np.float64(7.0)]
    assert set(owners_of([{"t": "x", "o": cell} for cell in cells])) == {"7"}
    lines = "".join(json.dumps({"t": "x", "o": cell}) + "\n" for cell in cells[:6])
    assert set(owners_of(write("t.jsonl", lines))) == {"7"}
    assert owners_of(write("t.csv", "t,o\nx,7\nx,7.0\nx, 7\n")) == ["7", "7", "7"]
    assert owners_of(pa.table({"t": ["x"] * 3, "o": [7.0, None, 7.5]}), on_bad_row="skip") == ["7", "7.5"]


def test_owners_are_compared_in_one_unicode_form():
    assert owners_of([{"t": "x", "o": "Zo\u00eb"}, {"t": "x", "o": "Zoe\u0308"}]) == ["Zo\u00eb"] * 2


SPELLED = ["7", "7.00", "\uff17", "\u0667.0", "7\u200b", "\ufeff7", "\u00ad7"]
NAMES = [
    "Zo\u00eb Smith",
    "Zoe\u0308 Smith",
    "Zo\u00eb\u00a0 Smith",
    "Zo\u00eb Smi\u200bth",
    "\uff3ao\u00eb Sm\u00adith",
]


@pytest.mark.parametrize("spellings", [SPELLED, NAMES])
def test_an_owner_is_one_whatever_characters_spell_it(spellings):
    rows = [{"t": f"text {n}", "o": owner} for n, owner in enumerate(spellings)]
    assert set(owners_of(rows)) == {spellings[0]}
    bounded = BoundedCorpus(read_corpus(rows, text="t", owner="o"), Unit("owner", 2, "o"), b"key")
    assert [batch.shares.tolist() for batch in bounded.batches()] == [[2, 2]]  # by spellings all would be used


def test_leading_zeros_case_and_other_decimals_make_other_owners():
    different = ["7", "07", "7.5", "7.50", "a", "A", "a.0", "v7.0", "-7", "true"]
    assert owners_of([{"t": "x", "o": owner} for owner in different]) == different


def test_parquet_files_whose_owners_are_decimals_of_different_widths_are_refused(tmp_path):
    """20000001 is 20000000 in single precision: one owner would count as two."""
    for name, width in [("a", pa.float32()), ("b", pa.float64())]:
        column = pa.array([20_000_001.0], pa.float64()).cast(width, safe=False)
        pq.write_table(pa.table({"t": ["x"], "o": column}), tmp_path / f"{name}.parquet")
    with pytest.raises(ConfigError, match="owner column has different types"):
        read_corpus(str(tmp_path / "*.parquet"), text="t", owner="o")
    assert owners_of(str(tmp_path / "b.parquet")) == ["20000001"]


@pytest.mark.parametrize("other", [[7.0, None], ["7", "8"], [True, False]])
def test_parquet_files_whose_owner_columns_have_different_types_are_refused(tmp_path, other):
    pq.write_table(pa.table({"t": ["x"], "o": [7]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"t": ["x", "y"], "o": other}), tmp_path / "b.parquet")
    with pytest.raises(ConfigError, match="owner column has different types"):
        read_corpus(str(tmp_path / "*.parquet"), text="t", owner="o")


def test_parquet_files_whose_owner_columns_differ_in_width_only_are_read(tmp_path):
    for name, column in [("a", pa.array([7], pa.int32())), ("b", pa.array([7], pa.int64()))]:
        pq.write_table(pa.table({"t": ["x"], "o": column}), tmp_path / f"{name}.parquet")
    assert owners_of(str(tmp_path / "*.parquet")) == ["7", "7"]
