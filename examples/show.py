"""Show what the demo made: where the files are, a few synthetic texts of each label, the promise.

python examples/show.py out/demo
"""

import json
import sys
from pathlib import Path

import pyarrow.parquet as pq

NOTES_A_LABEL = 2


def main(folder: Path) -> None:
    release = folder / "release"
    statement = json.loads((release / "statement.json").read_text("utf-8"))
    rows = pq.read_table(release / "synthetic.parquet").to_pylist()
    for label in sorted({row["label"] for row in rows}):
        print(f"\n{label}")
        for row in [row for row in rows if row["label"] == label][:NOTES_A_LABEL]:
            print(f"  - {row['text']}")
            print(f"    written from: {', '.join(json.loads(row['provenance'])['phrases'])}")
    print("\n" + "\n".join((release / "statement.md").read_text("utf-8").splitlines()[:7]))
    print(f"\nWhat it made, and may be shared. Protected is {statement['protects']}.")
    for file in sorted(release.iterdir()):
        print(f"  {file}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
