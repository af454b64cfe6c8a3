"""Show what the demo made: a few synthetic texts of each label, the promise, where the files are, and what is free now.

python examples/show.py out/demo
"""

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq

TEXTS_PER_LABEL = 2


def main(folder: Path) -> None:
    release = folder / "release"
    statement = json.loads((release / "statement.json").read_text("utf-8"))
    rows = pq.read_table(release / "synthetic.parquet").to_pylist()
    known = pq.read_table(
        release / "provenance.parquet"
    ).to_pylist()  # of each row: its label, and what it is made from
    for label in sorted({each["label"] for each in known}):
        print(f"\n{label}")
        for row, each in [pair for pair in zip(rows, known, strict=True) if pair[1]["label"] == label][
            :TEXTS_PER_LABEL
        ]:
            columns = ", ".join(f"{name} {value}" for name, value in row.items() if name != "review")
            print(f"  - {row['review']}")
            print(f"    {columns}; written from: {', '.join(json.loads(each['provenance'])['phrases'])}")
    print("\n" + "\n".join((release / "statement.md").read_text("utf-8").splitlines()[:7]))
    print(f"\nWhat it made, and may be shared. Protected is {statement['protects']}.")
    for file in sorted(release.iterdir()):
        print(f"  {file}")
    print("\nMore rows are free, any number of times, by any condition:")
    print(f"  .venv/bin/understudy generate {release / 'dp-kps.release'} --where verdict=disappointed,nights=1..3 \\")
    print("      --llm none --records 200 --output out/complaints")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
