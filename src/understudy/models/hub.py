"""``hf:`` models: a folder on this machine, or one fetched from the Hugging Face hub."""

from __future__ import annotations

from pathlib import Path

from understudy.errors import ModelError
from understudy.models.extra import require_local

_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]  # no pickle, no code


def model_folder(name: str) -> Path:
    """The folder of the model ``name``: a path (``./x``, ``/x``, ``~/x`` or one that exists), else a hub id.

    A hub id is looked up on the hub, and in the hub's local cache where the hub cannot be reached.

    Raises:
        ModelError: there is no such folder, or neither hub nor its cache has the model.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if name.startswith((".", "/", "~")):
        raise ModelError(f"There is no model folder {name}.", "Check the path after 'hf:'.")
    require_local()
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, allow_patterns=_FILES))
    except Exception as error:  # the hub's client raises dozens of kinds, of httpx among others
        raise ModelError(
            f"The model {name} cannot be had from the Hugging Face hub ({type(error).__name__}).",
            "Check its name and the network (HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE are honoured), or fetch it "
            "elsewhere and give its folder: hf:./FOLDER",
        ) from error
