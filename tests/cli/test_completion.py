"""What the tab key completes, as the shells' own scripts ask for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def completed(*words: str) -> list[str]:
    line = ["understudy", *words]
    asked = {"_UNDERSTUDY_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(line), "COMP_CWORD": str(len(words))}
    done = subprocess.run(
        [sys.executable, "-m", "understudy"], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert done.stderr == "", "it would stand on the line that is typed"
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("run --config k", ["file,k"]),
        ("evaluate t", ["file,t"]),
        ("config schema --method dp-", ["plain,dp-finetune", "plain,dp-kps"]),
        ("run --engine pro", ["plain,processes"]),
        ("run --method seq-pate --teach", ["plain,--teachers"]),
        ("generate --llm oll", ["plain,ollama:"]),
        ("audit mechanism vocabulary-l", ["plain,vocabulary-laplace"]),
        ("run k.yaml --delim", ["plain,--delimiter"]),
        ("run --epsilon 6", []),
        ("run --method nosuch --te", []),
    ],
)
def test_files_choices_and_known_names_are_completed(line: str, found: list[str]) -> None:
    assert completed(*line.split()) == found
