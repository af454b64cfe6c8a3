"""Load the model that a user names (``builtin``, ``hf:ORG/NAME``, ``openai:NAME``).

A provider is a name before the colon. Third parties add theirs by the entry point group ``understudy.models``:
the entry point's name is the prefix, and its object has ``load_chat(name, **options)``, ``load_embedder(name)``
or both.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from understudy.base.errors import ConfigError, ModelError
from understudy.models.builtin import CHAT, EMBEDDER, BuiltinModel, builtin_path, is_pulled
from understudy.models.machine import missing_packages, require_local
from understudy.models.presets import PRESETS, preset_of
from understudy.models.types import ChatModel, Embedder

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from understudy.models.causal import CausalModel

_GROUP = "understudy.models"
_BUILT_IN = ("builtin", "hf:ORG/NAME", "hf:./FOLDER")
_ENDPOINTS = tuple(f"{prefix}:NAME" for prefix in PRESETS)


def load_chat(
    spec: str,
    *,
    base_url: str | None = None,
    api_key_env: str | None = None,
    seed: int = 0,
    writer: bool = False,
    **others: Any,
) -> ChatModel:
    """Load the chat model that ``spec`` names.

    Args:
        spec: ``builtin``, ``hf:ORG/NAME`` or ``hf:./FOLDER`` (local weights), ``openai:NAME`` (any endpoint that
            speaks OpenAI's chat completions), another product of :data:`understudy.models.presets.PRESETS`, or a third
            party's ``PREFIX:NAME``.
        seed: steers the sampling of local models.
        writer: of the built-in model, with the adapters that write texts from phrases.
        base_url, api_key_env, others: options of :class:`understudy.models.endpoint.EndpointChat`, or ``paced`` of
            :class:`understudy.models.local.LocalChat`.
    """
    provider, _, name = spec.partition(":")
    if provider in ("builtin", "hf", "none") and (base_url is not None or "extra_body" in others):
        raise ConfigError(
            f"The model {spec} runs on this machine, so it has no {'base URL' if base_url else 'extra body'}.",
            "Leave that out, or name an endpoint's model: openai:NAME.",
        )
    if preset_of(spec) is not None:
        from understudy.models.endpoint import EndpointChat

        return EndpointChat(name, provider=provider, base_url=base_url, api_key_env=api_key_env, **others)
    if local := _on_this_machine(spec, CHAT):
        from understudy.models.local import LocalChat

        return LocalChat(local[0], name=local[1], seed=seed, writer=writer and spec == "builtin", **others)
    if spec == "none":
        raise ModelError(
            "'none' means that no language model writes the texts, so there is none to load.",
            "Name a chat model, such as 'builtin', where one is needed.",
        )
    options = {"base_url": base_url, "api_key_env": api_key_env, "seed": seed, **others}
    return cast(ChatModel, _third_party(spec, "load_chat", chat=True)(name, **options))


def load_embedder(spec: str) -> Embedder:
    """Load the embedder that ``spec`` names: ``builtin``, ``hf:ORG/NAME``, ``hf:./FOLDER``, or a third party's. Raises
    ModelError as :func:`load_chat` does."""
    if local := _on_this_machine(spec, EMBEDDER):
        from understudy.models.embedder import SentenceEmbedder

        return SentenceEmbedder(local[0], name=local[1])
    return cast(Embedder, _third_party(spec, "load_embedder", chat=False)(spec.partition(":")[2]))


def load_causal(spec: str, *, device: str | None = None, dtype: str | None = None) -> CausalModel:
    """Load the model that ``spec`` names, for next-token logits: ``builtin``, ``hf:ORG/NAME`` or ``hf:./FOLDER``.

    It reads private text, so it runs on this machine: a ModelError for endpoints and third parties' models too.
    """
    provider, _, name = spec.partition(":")
    if spec != "builtin" and (provider != "hf" or not name):
        raise ModelError(
            f"The model {spec!r} would read private text, so it must run on this machine.",
            f"Known ones are: {', '.join(_BUILT_IN)}.",
        )
    require_local(device)
    from understudy.models.causal import CausalModel

    local = _on_this_machine(spec, CHAT)
    assert local is not None
    return CausalModel(local[0], name=local[1], device=device, dtype=dtype)


def _on_this_machine(spec: str, builtin: BuiltinModel) -> tuple[Path, str] | None:
    """Return the folder and the name of the local model that ``spec`` names; None if it names no local model."""
    if spec == "builtin":
        return builtin_path(builtin), f"builtin:{builtin.name}"
    provider, _, name = spec.partition(":")
    return (model_folder(name), spec) if provider == "hf" and name else None


def embedder_here(spec: str) -> bool:
    """Return whether the embedder that ``spec`` names is on this machine. Loads nothing, and uses no network."""
    if missing_packages():
        return False
    if spec == "builtin":
        return is_pulled(EMBEDDER)
    provider, _, name = spec.partition(":")
    return provider == "hf" and bool(name)


def language_note(spec: str) -> str | None:
    """Return one sentence to print before a run, or None: the built-in models read and write only English."""
    if spec != "builtin":
        return None
    return "The built-in models are English: for other languages name other models (docs/languages.md)."


def providers() -> dict[str, EntryPoint]:
    """Return third-party providers by prefix."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=_GROUP)}


def _third_party(spec: str, method: str, *, chat: bool) -> Any:
    found = providers()
    provider, colon, _ = spec.partition(":")
    if not colon or provider not in found:
        known = [*(("none",) if chat else ()), *_BUILT_IN, *(_ENDPOINTS if chat else ())]
        known += [f"{prefix}:NAME" for prefix in sorted(found)]
        raise ModelError(
            f"There is no {'chat model' if chat else 'embedder'} {spec!r}.", f"Known ones are: {', '.join(known)}."
        )
    try:
        return getattr(found[provider].load(), method)
    except Exception as error:
        raise ModelError(
            f"The model provider {provider!r} cannot be loaded, or has no {method} ({type(error).__name__}).",
            "Update or reinstall the package it comes from.",
        ) from error


_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]  # no pickle, no code


def model_folder(name: str) -> Path:
    """Return the folder of the model ``name``: a path (``./x``, ``/x``, ``~/x`` or one that exists), else a hub id.

    A hub id is looked up on the hub, and in its local cache if the hub cannot be reached; ModelError if in neither.
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
            f"The model {name} cannot be downloaded from the Hugging Face hub ({type(error).__name__}).",
            "Check its name and the network (HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE are honoured), or fetch it "
            "elsewhere and give its folder: hf:./FOLDER",
        ) from error
