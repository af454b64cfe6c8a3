"""The Release file: what goes in comes out, and whatever happens to the file is noticed."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from understudy.base.columns import Column
from understudy.base.errors import ReleaseError
from understudy.base.transcript import TextForm
from understudy.privacy.events import GaussianEvent
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import Declared
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.unit import Unit
from understudy.release import FORMAT_VERSION, PublicSchema, Release
from understudy.release.reading import read_release
from understudy.release.statement import Sealed, Statement


def make(**changes: Any) -> Release:
    plan = Plan(
        "dp-kps", Unit("owner", 3), Budget(6, "1e-6"), (Charge("density", Declared(GaussianEvent(2.0)), "sums"),)
    )
    fields: dict[str, Any] = {
        "method": "dp-kps",
        "parameters": {"length": 10, "seed": 0, "vocabulary": "words.txt", "top_k": None},
        "schema": PublicSchema("note", "department", ("cardiology", "Übrige"), ("a", "b")),
        "statement": replace(
            Statement.of(
                plan,
                public_inputs={"vocabulary": {"source": "words.txt", "sha256": "00" * 32}},
                labels_declared=True,
                dataset="clinic",
            ),
            sealed=Sealed("system", "0" * 32, "1" * 32, 1),
        ),
        "arrays": {
            "density": np.random.default_rng(0).normal(size=(2, 3)),
            "embeddings": np.ones((3, 4), dtype=np.float32),
            "frequencies-1": np.arange(32, dtype=np.uint8),
            "empty": np.zeros((0, 3)),
        },
        "terms": ["heart attack", "größe", "मरीज़"],
        "noise_check": Facts((Fact("terms", 3, "vocabulary terms released"),), ("little",)),
    }
    return Release(**{**fields, **changes})


def load_release(path: Path | str) -> Release:
    """As a file; what a method makes of its content is tested in tests/methods/test_release_contents.py."""
    return read_release(Path(path))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "dp-kps.release"
    make().save(path)
    return path


def same(one: Release, other: Release) -> bool:
    return (
        (one.method, dict(one.parameters), one.schema, one.statement, list(one.terms), one.noise_check)
        == (
            other.method,
            dict(other.parameters),
            other.schema,
            other.statement,
            list(other.terms),
            other.noise_check,
        )
        and one.arrays.keys() == other.arrays.keys()
        and all(
            one.arrays[name].dtype == other.arrays[name].dtype and np.array_equal(one.arrays[name], other.arrays[name])
            for name in one.arrays
        )
    )


def rewrite(path: Path, change: Callable[[dict[str, bytes]], None]) -> None:
    """Change members of the zip and write it anew, as a forger with a zip tool would."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def rewrite_manifest(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    def changed(members: dict[str, bytes]) -> None:
        manifest = json.loads(members["release.json"])
        change(manifest)
        members["release.json"] = json.dumps(manifest).encode()

    rewrite(path, changed)


def test_what_is_saved_is_loaded(file: Path) -> None:
    assert same(load_release(file), make())
    assert same(load_release(str(file)), make())


def test_a_release_without_arrays_terms_or_labels_survives_too(tmp_path: Path) -> None:
    bare = make(arrays={}, terms=[], noise_check=Facts(), schema=PublicSchema())
    bare.save(tmp_path / "bare")
    assert same(load_release(tmp_path / "bare"), bare)


def test_views_with_strides_come_back_as_they_were(tmp_path: Path) -> None:
    array = np.arange(12.0).reshape(3, 4).T[::2]
    make(arrays={"density": array}).save(tmp_path / "view")
    assert np.array_equal(load_release(tmp_path / "view").arrays["density"], array)


def test_the_digest_names_the_content_and_survives_the_file(file: Path) -> None:
    digest = make().digest
    assert load_release(file).digest == digest == make().digest
    others = [
        make(method="other"),
        make(parameters={"length": 9}),
        make(schema=PublicSchema("text")),
        make(terms=["heart", "attack größe", "मरीज़"]),
        make(arrays={"density": np.zeros((2, 3))}),
    ]
    assert len({digest, *(other.digest for other in others)}) == 6


def test_the_order_of_arrays_does_not_change_the_digest() -> None:
    arrays = make().arrays
    assert make(arrays=dict(reversed(arrays.items()))).digest == make().digest


def test_two_saves_of_one_release_are_the_same_bytes(tmp_path: Path) -> None:
    make().save(tmp_path / "one")
    make().save(tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_failed_save_leaves_the_old_file_alone(file: Path) -> None:
    before = file.read_bytes()
    with pytest.raises(TypeError):
        make(parameters={"length": object()}).save(file)
    assert file.read_bytes() == before


def test_the_file_holds_three_members_and_no_pickle(file: Path) -> None:
    with zipfile.ZipFile(file) as archive:
        assert sorted(archive.namelist()) == ["arrays.safetensors", "release.json", "terms.parquet"]
        assert archive.read("terms.parquet")[:4] == b"PAR1"
        json.loads(archive.read("release.json"))


def test_arrays_of_objects_are_not_saved(tmp_path: Path) -> None:
    """They would need a pickle."""
    with pytest.raises(Exception, match="object"):
        make(arrays={"density": np.array([{"a": 1}], dtype=object)}).save(tmp_path / "objects")
    assert list(tmp_path.iterdir()) == []


def test_a_pickle_is_not_run(file: Path, tmp_path: Path) -> None:
    marker = tmp_path / "was run"

    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return Path.touch, (marker,)

    evil = pickle.dumps(Evil())
    (tmp_path / "pickle.release").write_bytes(evil)
    np.savez(tmp_path / "npz.release", density=np.array([Evil()], dtype=object))
    rewrite(file, lambda members: members.update({"arrays.safetensors": evil}))
    for path in (tmp_path / "pickle.release", tmp_path / "npz.release.npz", file):
        with pytest.raises(ReleaseError):
            load_release(path)
    assert not marker.exists()


def flips(size: int) -> Iterator[tuple[int, int]]:
    """One bit of every third byte, and of every byte of the zip's directory at the end."""
    for position in range(size):
        if position % 3 == 0 or position > size - 300:
            yield position, 1 << (position % 8)


def test_a_flipped_byte_anywhere_is_an_error_or_changes_nothing(file: Path) -> None:
    original, data = make(), file.read_bytes()
    tried = noticed = 0
    for position, mask in flips(len(data)):
        tried += 1
        damaged = bytearray(data)
        damaged[position] ^= mask
        file.write_bytes(damaged)
        try:
            assert same(load_release(file), original), f"byte {position} changed the Release unnoticed"
        except ReleaseError:
            noticed += 1
    assert noticed > 0.8 * tried


FORMS = [TextForm(), TextForm(("subject", "body")), TextForm((), ("user", "agent"), ("ask",), ("find",))]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("labels", [(), ("a", "b"), (1, 2), (True, False), (0.5, 2.0)], ids=str)
def test_a_schema_survives_json(form: TextForm, labels: tuple[Any, ...]) -> None:
    columns = (Column("age", "integer", least=0, most=120), Column("unit", "category", values=("ICU", "ward")))
    for typed in ((), columns):
        schema = PublicSchema("text", "label" if labels else None, labels, (), typed, form)
        back = PublicSchema.from_json(json.loads(json.dumps(schema.to_json())))
        assert back == schema
        assert [type(label) for label in back.labels] == [type(label) for label in labels]


def test_a_file_cut_off_anywhere_is_an_error(file: Path) -> None:
    data = file.read_bytes()
    for length in [*range(0, len(data), 7), *range(len(data) - 30, len(data))]:
        file.write_bytes(data[:length])
        with pytest.raises(ReleaseError):
            load_release(file)


@pytest.mark.parametrize("member", ["arrays.safetensors", "terms.parquet"])
def test_a_changed_member_does_not_match_its_hash(file: Path, member: str) -> None:
    def swap(members: dict[str, bytes]) -> None:
        members[member] = members[member] + b" "

    rewrite(file, swap)
    with pytest.raises(ReleaseError, match=f"{member} does not match its hash"):
        load_release(file)


@pytest.mark.parametrize(
    "change",
    [
        lambda manifest: manifest.pop("sha256"),
        lambda manifest: manifest.update(sha256={}),
        lambda manifest: manifest.update(sha256=[]),
        lambda manifest: manifest["sha256"].pop("terms.parquet"),
        lambda manifest: manifest.pop("statement"),
        lambda manifest: manifest["statement"].pop("private"),
        lambda manifest: manifest["statement"].update(budget={"epsilon": "-1", "delta": "0"}),
        lambda manifest: manifest["statement"]["charges"][0].update(event={"kind": "gaussian", "noise_multiplier": 0}),
        lambda manifest: manifest["statement"]["charges"][0].update(event={"kind": "magic"}),
        lambda manifest: manifest["statement"]["unit"].update(max_records=0),
        lambda manifest: manifest["schema"].pop("labels"),
        lambda manifest: manifest.update(format="something else"),
        lambda manifest: manifest.update(format_version="1"),
        lambda manifest: manifest.pop("format"),
    ],
)
def test_a_manifest_that_lacks_or_contradicts_something_is_refused(
    file: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    rewrite_manifest(file, change)
    with pytest.raises(ReleaseError):
        load_release(file)


def test_a_newer_version_says_so_and_asks_for_a_newer_understudy(file: Path) -> None:
    rewrite_manifest(file, lambda manifest: manifest.update(format_version=FORMAT_VERSION + 1))
    with pytest.raises(ReleaseError, match="Install a newer understudy"):
        load_release(file)


@pytest.mark.parametrize("content", [b"", b"PK", b"not a zip", b"[]", b"\x00" * 1_000])
def test_a_foreign_file_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign.release"
    path.write_bytes(content)
    with pytest.raises(ReleaseError, match=r"foreign.release is damaged or is no Release"):
        load_release(path)


@pytest.mark.parametrize("manifest", [b"", b"[]", b"null", b"{}", b"[" * 100_000, b"\xff", b'{"format": NaN}'])
def test_a_foreign_zip_is_one_clear_error(file: Path, manifest: bytes) -> None:
    rewrite(file, lambda members: members.update({"release.json": manifest}))
    with pytest.raises(ReleaseError, match="damaged or is no Release"):
        load_release(file)


@pytest.mark.parametrize("member", ["release.json", "arrays.safetensors", "terms.parquet"])
def test_a_zip_without_one_of_its_members_is_one_clear_error(file: Path, member: str) -> None:
    rewrite(file, lambda members: members.pop(member))
    with pytest.raises(ReleaseError, match="damaged"):
        load_release(file)


def test_a_missing_file_and_a_folder_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="There is no Release file"):
        load_release(tmp_path / "missing.release")
    with pytest.raises(ReleaseError, match=r"is a folder.*FOLDER/release/METHOD\.release"):
        load_release(tmp_path)


def test_the_noise_check_names_the_labels_of_its_lists() -> None:
    facts = Facts((Fact("terms", 3, "terms"), Fact("strong", (5, 7), "strong")))
    assert make(noise_check=facts, schema=PublicSchema("text", "ward", ("a", "b"))).noise_lines == [
        "terms: 3",
        "strong: 5 for a, 7 for b",
    ]
    alone = Facts((Fact("strong", (5,), "strong"),))
    assert make(noise_check=alone, schema=PublicSchema()).noise_lines == ["strong: 5"]


def test_a_release_of_an_earlier_version_is_refused_in_one_sentence(file: Path) -> None:
    rewrite_manifest(file, lambda manifest: manifest.update(format_version=FORMAT_VERSION - 1))
    with pytest.raises(ReleaseError, match=r"earlier version .*\(format 1\)\. Generate with that version"):
        load_release(file)


@pytest.mark.slow
def test_a_process_that_only_loads_a_release_ends_well(file: Path) -> None:
    """Arrow's threads once aborted one in three."""
    reading = "from pathlib import Path; from understudy.release.reading import read_release"
    code = f"{reading}; read_release(Path({str(file)!r}))"
    for _ in range(8):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
