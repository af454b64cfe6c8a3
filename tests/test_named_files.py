"""Every file of public words or settings that a user names is an ordinary file of bounded length."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from understudy.base import files
from understudy.base.errors import UnderstudyError
from understudy.base.files import UnreadableText, read_whole
from understudy.base.labels import declared_labels
from understudy.corpus import read_corpus
from understudy.corpus.secrets import Incidence, secret_finder
from understudy.methods.sec_pe.plan import read_per_secret_budgets
from understudy.methods.shared.decoding.structured import JSONSchema
from understudy.methods.shared.evolution.variation import _read as read_keywords
from understudy.run.settings import read_config
from understudy.text.prompts.template import load_template
from understudy.text.vocabulary.terms import load_stop_words, load_vocabulary

READERS: dict[str, Callable[[Path], object]] = {
    "vocabulary.txt": load_vocabulary,
    "vocabulary.gz": load_vocabulary,
    "vocabulary.csv": load_vocabulary,
    "vocabulary.parquet": load_vocabulary,
    "stop.txt": load_stop_words,
    "labels.txt": lambda path: declared_labels(f"@{path}"),
    "labels.json": lambda path: declared_labels(f"@{path}"),
    "keywords.txt": read_keywords,
    "keywords.yaml": read_keywords,
    "template.yaml": lambda path: load_template("note", file=path),
    "config.yaml": read_config,
    "schema.json": JSONSchema,
    "secrets.txt": lambda path: secret_finder(read_corpus([{"note": "x"}], text="note"), file=path),
    "budgets.csv": lambda path: read_per_secret_budgets(str(path), 1),
    "incidence.parquet": Incidence.read,
}


@pytest.mark.skipif(os.name != "posix", reason="devices have paths")
@pytest.mark.parametrize("name", READERS)
def test_a_device_in_the_place_of_a_file_is_one_clear_error(tmp_path: Path, name: str) -> None:
    """Devices and pipes are told alike; this one, unlike others, ends a reader that does not tell it."""
    (tmp_path / name).symlink_to("/dev/null")
    with pytest.raises(UnderstudyError) as caught:
        READERS[name](tmp_path / name)
    if name not in ("labels.txt", "labels.json", "incidence.parquet"):  # these give no reason
        assert "pipe or device" in str(caught.value)


@pytest.mark.skipif(os.name != "posix", reason="pipes have paths")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UnreadableText, match="pipe or device"):
        read_whole(tmp_path / "pipe")
    with pytest.raises(UnderstudyError, match="no incidence file"):
        Incidence.read(tmp_path / "pipe")


def test_a_file_that_is_too_long_is_an_error_and_one_that_is_just_not_is_read(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_bytes(b"x" * (1 << 20))
    assert len(read_whole(tmp_path / "t.txt", most=1 << 20)) == 1 << 20
    with (tmp_path / "t.txt").open("ab") as file:
        file.write(b"x")
    with pytest.raises(UnreadableText, match="longer than 1 MiB"):
        read_whole(tmp_path / "t.txt", most=1 << 20)
    with (tmp_path / "c.yaml").open("wb") as file:
        file.truncate(files.MOST_SETTINGS_BYTES + 1)
    with pytest.raises(UnderstudyError, match="longer than 16 MiB"):
        read_config(tmp_path / "c.yaml")
