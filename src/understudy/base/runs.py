"""Sums by name that do not fit into memory: sorted runs in files, and their merge."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from understudy.base.files import PRIVATE_MODE, atomic_file

_ROWS = 1 << 14
"""Of one run in memory while runs are merged."""
_TOGETHER = 64
"""Runs that are merged at once, at most."""


@dataclass(frozen=True)
class Runs:
    """Files of rows (key, value) in the order of keys; of all runs together each key has one value.

    Args:
        folder: private, there.
        combine: how values of a key become one: their ``sum``, or the ``min``, where all are alike.
    """

    folder: Path
    combine: Literal["sum", "min"] = "sum"

    def write(self, rows: Iterable[tuple[Any, Any]]) -> Path:
        """A run of keys and values, Arrow arrays, some at a time, each key once and in order, one or more: its file,
        which is there whole or not at all."""
        import pyarrow as pa

        return self._written(pa.table({"key": keys, "value": values}) for keys, values in rows)

    def merged(self, files: Iterable[Path]) -> Iterator[Any]:
        """Arrow tables of ``key`` and ``value``: each key once, in order. Memory: 16,384 rows of at most 64 files."""
        files = list(files)
        while len(files) > _TOGETHER:
            some, files = files[:_TOGETHER], files[_TOGETHER:]
            files.append(self._written(self._merged(some)))
            for file in some:
                file.unlink()
        yield from self._merged(files)

    def _combined(self, table: Any) -> Any:
        table = table.group_by("key", use_threads=False).aggregate([("value", self.combine)])
        return table.select(["key", f"value_{self.combine}"]).rename_columns(["key", "value"]).sort_by("key")

    def _written(self, tables: Iterable[Any]) -> Path:
        import pyarrow as pa

        tables = iter(tables)
        first, path = next(tables), self.folder / f"{secrets.token_hex(16)}.arrow"
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with (
            atomic_file(path, mode=PRIVATE_MODE) as stream,
            pa.ipc.new_stream(stream, first.schema, options=options) as writer,
        ):
            for table in chain([first], tables):
                writer.write_table(table, max_chunksize=_ROWS)
        return path

    def _merged(self, files: Iterable[Path]) -> Iterator[Any]:
        """All rows up to the least of the last keys that are in memory; then the next rows of the run that had it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        with ExitStack() as stack:
            runs = [stack.enter_context(pa.ipc.open_stream(stack.enter_context(file.open("rb")))) for file in files]
            heads = [(run, batch) for run in runs if (batch := next(run, None)) is not None]
            while heads:
                limit = min(batch["key"][-1].as_py() for _, batch in heads)
                below, rest = [], []
                for run, batch in heads:
                    count = pc.sum(pc.less_equal(batch["key"], pa.scalar(limit, batch["key"].type))).as_py()
                    below.append(batch.slice(0, count))
                    left = batch.slice(count) if count < len(batch) else next(run, None)
                    if left is not None:
                        rest.append((run, left))
                heads = rest
                yield self._combined(pa.Table.from_batches(below))
