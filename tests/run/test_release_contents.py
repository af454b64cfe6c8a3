"""Releases with right hashes and wrong content: each is refused when it is loaded, or generates."""

from __future__ import annotations

import copy
import json
import random
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from evolution_fixtures import embedder, varied_chat  # noqa: F401
from local_fixtures import make_llama
from numpy.typing import NDArray
from run_fixtures import Command
from sample_releases import SAMPLES, dp_kps, sec_pe

from understudy.base.errors import ReleaseError, UnderstudyError
from understudy.methods.registry import load_release
from understudy.models.causal import CausalModel
from understudy.privacy.facts import Fact, Facts
from understudy.release import Release
from understudy.run import pipeline as running

# Whose parts others have too.
REPEATED = ("dp-kps guided", "dp-finetune guided", "dp-finetune with columns")
DROPPED = object()
BAD = (DROPPED, None, "x", "", -1, 0, 10**30, 1e300, True, [], {}, [None], ["a", "b"], {"a": 1}, "1e999999999")
# So many changes of fields and of arrays are tried of each method, and so many of what loads generates.
CHANGES, GENERATED = 80, 2


def changed_fields(fields: Any) -> Iterator[dict[str, Any]]:
    """``fields`` with each field, at every depth, dropped and replaced."""

    def paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        if path:
            yield path
        if isinstance(value, dict | list):
            for key in value if isinstance(value, dict) else range(len(value)):
                yield from paths(value[key], (*path, key))

    for where in paths(fields, ()):
        for bad in BAD if where[0] != "sha256" else ():
            changed = copy.deepcopy(fields)
            inner = changed
            for key in where[:-1]:
                inner = inner[key]
            if bad is DROPPED:
                del inner[where[-1]]
            else:
                inner[where[-1]] = bad
            yield changed


def changed_arrays(array: NDArray[Any]) -> Iterator[NDArray[Any] | None]:
    """Dropped, of another type, length or shape, and with numbers that it should not hold."""
    yield from (None, array.astype(np.int8), array[:0], array[:-1], np.concatenate([array, array]), array[..., None])
    bad: tuple[Any, ...] = ()
    if array.dtype.kind == "f":
        bad = (np.nan, np.inf, -np.inf, np.finfo(array.dtype).max, 0)
    elif array.dtype.kind in "iu":
        bad = (np.iinfo(array.dtype).min, np.iinfo(array.dtype).max, 0)
    for number in bad:
        one = array.copy()
        one.flat[0] = number
        yield one
        yield np.full_like(array, number)


def changed_releases(good: Release) -> Iterator[Release]:
    for name, array in good.arrays.items():
        for changed in changed_arrays(array):
            rest = {other: value for other, value in good.arrays.items() if other != name}
            yield replace(good, arrays=rest if changed is None else {**good.arrays, name: changed})
    for name, texts in good.strings.items():
        rest = {other: value for other, value in good.strings.items() if other != name}
        yield replace(good, strings=rest)
        for some in ([], texts[:-1], [*texts, "x"], [""] * len(texts)):
            yield replace(good, strings={**good.strings, name: some})
    for terms in ([], good.terms[:-1], [*good.terms, "x"], [""] * len(good.terms)):
        yield replace(good, terms=list(terms))


def outcome(file: Path) -> Release | None:
    """The Release in the file, or None where it is refused."""
    with suppress(ReleaseError):
        return load_release(file)
    return None


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> CausalModel:
    made = CausalModel(make_llama(tmp_path_factory.mktemp("llama")), name="tiny", dtype="float32")
    made.fingerprint = "1" * 64
    return made


@pytest.mark.usefixtures("embedder", "varied_chat")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [name for name in SAMPLES if name not in REPEATED])
def test_whatever_is_changed_in_a_release_it_loads_and_generates_or_is_a_release_error(
    name: str, tmp_path: Path, base: CausalModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("understudy.models.catalog.load_causal", lambda *_, **__: base)
    file, good, choice = tmp_path / "f.release", SAMPLES[name](), random.Random(7)
    good.save(file)
    assert outcome(file) is not None, "the unchanged one loads"
    with zipfile.ZipFile(file) as archive:
        members = {member: archive.read(member) for member in archive.namelist()}
    loaded: list[Release] = []
    refused = 0
    for fields in choice.sample(list(changed_fields(json.loads(members["release.json"]))), CHANGES):
        with zipfile.ZipFile(file, "w") as archive:
            for member, data in {**members, "release.json": json.dumps(fields).encode()}.items():
                archive.writestr(zipfile.ZipInfo(member), data)
        found = outcome(file)
        refused += found is None
        if found is not None:
            assert found.statement.to_markdown()
            assert isinstance(found.noise_lines, list)
            if (found.parameters, found.schema) != (good.parameters, good.schema):
                loaded.append(found)
    arrays: list[Release] = []
    others = list(changed_releases(good))
    for release in choice.sample(others, min(CHANGES, len(others))):
        release.save(file)
        found = outcome(file)
        refused += found is None
        if found is not None:
            arrays.append(found)
    assert refused > 50
    some = [choice.sample(each, min(GENERATED, len(each))) for each in (loaded, arrays)]
    for release in (good, *some[0], *some[1]):
        with suppress(UnderstudyError):
            running.generate(release, llm="fake", records=3, output=str(tmp_path / "out"), fresh=True)


def test_settings_that_are_not_the_methods_own_do_not_come_in_with_a_release(tmp_path: Path) -> None:
    """Else a stranger's file could send its reader's prompts, and a key of his, to a server of the stranger's."""
    good, file = dp_kps(), tmp_path / "f.release"
    for name, value in {
        "base_url": "http://stranger.example/v1",
        "api_key_env": "OPENAI_API_KEY",
        "llm": "openai:theirs",
        "output": "/home/somebody",
        "method": "aug-pe",
        "examples": "notes.txt",
    }.items():
        replace(good, parameters={**good.parameters, name: value}).save(file)
        with pytest.raises(ReleaseError, match="its parameters are not those of its method"):
            load_release(file)
    for path in ("/etc/passwd", "../notes.txt", "folder/notes.txt"):
        parameters = {**sec_pe().parameters, "keywords": path, "keywords_are_public": True}
        replace(sec_pe(), parameters=parameters).save(file)
        with pytest.raises(ReleaseError, match="names a file outside its folder"):
            load_release(file)


def test_a_release_of_a_method_that_is_not_installed_says_so(tmp_path: Path, understudy: Command) -> None:
    good = dp_kps()
    statement = replace(good.statement, method="theirs")
    replace(good, method="theirs", statement=statement).save(tmp_path / "f.release")
    for words in (("show",), ("generate", "--records", "3", "--output", str(tmp_path / "out"))):
        said = understudy(words[0], str(tmp_path / "f.release"), *words[1:])
        assert (said.code, "not installed here" in said.err) == (7, True)


def test_what_a_release_says_cannot_steer_the_terminal(tmp_path: Path, understudy: Command) -> None:
    good = dp_kps()
    steering = "\x1b[2J\x1b]0;title\x07\u202etxet\r\x9b"
    statement = replace(good.statement, dataset=f"clinic{steering}", notes=(steering,))
    check = Facts((Fact("name", steering, f"name{steering}"),), (steering,))
    made = replace(good, statement=statement, noise_check=check)
    made.save(tmp_path / "f.release")
    said = understudy("show", str(tmp_path / "f.release"), code=0)
    assert "clinic\\x1b[2J\\x1b]0;title\\x07\\u202etxet\\r\\x9b" in said.out
    assert not set(said.out) & set("\x1b\x07\r\x9b\u202e")


def test_a_raised_bound_is_an_option_of_inspect_and_generate(tmp_path: Path, understudy: Command) -> None:
    dp_kps().save(tmp_path / "f.release")
    for words in (("show",), ("generate", "--llm", "none", "--records", "2", "--output", str(tmp_path / "out"))):
        said = understudy(words[0], str(tmp_path / "f.release"), *words[1:], "--max-release-bytes", "1000")
        assert (said.code, "more than the 1,000 that are read" in said.err) == (7, True)
        assert understudy(words[0], str(tmp_path / "f.release"), *words[1:]).code == 0


def test_labels_of_several_types_are_written_as_strings(tmp_path: Path) -> None:
    good = dp_kps()
    made = replace(good, schema=replace(good.schema, labels=("a", 10**30)))
    made.save(tmp_path / "f.release")
    found = running.generate(load_release(tmp_path / "f.release"), llm="none", records=2, output=str(tmp_path / "out"))
    assert found.columns["department"] == ["a", str(10**30)]


def test_a_release_of_before_noise_aware_phrases_loads_and_generates(tmp_path: Path) -> None:
    """A fixed number of terms, sequences of one length, and counts of 1 for each term of a record."""
    good = dp_kps(length=8)
    parameters = {name: value for name, value in good.parameters.items() if name not in ("shortest", "shrinkage")}
    replace(good, parameters=parameters).save(tmp_path / "old.release")
    for options in ({}, {"shortest": 8}):
        made = running.generate(
            load_release(tmp_path / "old.release"),
            llm="none",
            records=20,
            output=str(tmp_path / "out"),
            fresh=True,
            **options,
        )
        lengths = {len(record.provenance["phrases"]) for record in made.records}
        assert lengths <= set(range(1, 9))
        assert max(lengths) >= 6
