"""From what a user types (``builtin``, ``hf:ORG/NAME``, ``openai:NAME``) to a model.

A provider is a name before the colon. Third parties add theirs by the entry point group ``understudy.models``:
the entry point's name is the prefix, and its object has ``load_chat(name, **options)``, ``load_embedder(name)``
or both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from understudy.errors import ConfigError, ModelError
from understudy.models.builtin import CHAT, EMBEDDER, builtin_path
from understudy.models.extra import require_device
from understudy.models.types import ChatModel, Embedder

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from understudy.models.causal import CausalModel

_GROUP = "understudy.models"
_BUILT_IN = ("builtin", "hf:ORG/NAME", "hf:./FOLDER")


def load_chat(
    spec: str, *, base_url: str | None = None, api_key_env: str | None = None, seed: int = 0, **endpoint: Any
) -> ChatModel:
    """The chat model that ``spec`` names.

    Args:
        spec: ``builtin``, ``hf:ORG/NAME`` or ``hf:./FOLDER`` (local weights), ``openai:NAME`` (any endpoint that
            speaks OpenAI's chat completions), or a third party's ``PREFIX:NAME``.
        base_url: the endpoint's address; not for local models.
        api_key_env: the environment variable that holds the endpoint's key.
        seed: steers the sampling of local models.
        endpoint: further options of :class:`understudy.models.endpoint.EndpointChat`.

    Raises:
        ConfigError: an address is given for a local model.
        ModelError: the spec is unknown, the model is not on this machine, or it cannot be loaded.
    """
    provider, _, name = spec.partition(":")
    if base_url is not None and provider in ("builtin", "hf", "none"):
        raise ConfigError(
            f"The model {spec} runs on this machine, so it has no base URL.",
            "Leave the base URL out, or name an endpoint's model: openai:NAME.",
        )
    if provider == "openai" and name:
        from understudy.models.endpoint import EndpointChat

        return EndpointChat(name, base_url=base_url, api_key_env=api_key_env, **endpoint)
    if spec == "builtin":
        from understudy.models.local import LocalChat

        return LocalChat(builtin_path(CHAT), name=f"builtin:{CHAT.name}", seed=seed)
    if provider == "hf" and name:
        from understudy.models.hub import model_folder
        from understudy.models.local import LocalChat

        return LocalChat(model_folder(name), name=spec, seed=seed)
    if spec == "none":
        raise ModelError(
            "'none' means that no language model writes the texts, so there is none to load.",
            "Name a chat model, such as 'builtin', where one is needed.",
        )
    options = {"base_url": base_url, "api_key_env": api_key_env, "seed": seed, **endpoint}
    return cast(ChatModel, _third_party(spec, "load_chat", chat=True)(name, **options))


def load_embedder(spec: str) -> Embedder:
    """The embedder that ``spec`` names: ``builtin``, ``hf:ORG/NAME``, ``hf:./FOLDER``, or a third party's.

    Raises:
        ModelError: the spec is unknown, the model is not on this machine, or it cannot be loaded.
    """
    provider, _, name = spec.partition(":")
    if spec == "builtin":
        from understudy.models.embedder import SentenceEmbedder

        return SentenceEmbedder(builtin_path(EMBEDDER), name=f"builtin:{EMBEDDER.name}")
    if provider == "hf" and name:
        from understudy.models.embedder import SentenceEmbedder
        from understudy.models.hub import model_folder

        return SentenceEmbedder(model_folder(name), name=spec)
    return cast(Embedder, _third_party(spec, "load_embedder", chat=False)(name))


def load_causal(spec: str, *, device: str | None = None, dtype: str | None = None) -> CausalModel:
    """The model that ``spec`` names, for next-token logits: ``builtin``, ``hf:ORG/NAME`` or ``hf:./FOLDER``.

    It reads private text, so it runs on this machine; endpoints and third parties' models are refused.

    Raises:
        ModelError: the spec names no local model, it is not on this machine, or it cannot be loaded.
    """
    provider, _, name = spec.partition(":")
    if spec != "builtin" and (provider != "hf" or not name):
        raise ModelError(
            f"The model {spec!r} would read private text, so it must run on this machine.",
            f"Known ones are: {', '.join(_BUILT_IN)}.",
        )
    require_device(device)
    from understudy.models.causal import CausalModel

    if spec == "builtin":
        return CausalModel(builtin_path(CHAT), name=f"builtin:{CHAT.name}", device=device, dtype=dtype)
    from understudy.models.hub import model_folder

    return CausalModel(model_folder(name), name=spec, device=device, dtype=dtype)


def model_languages(spec: str) -> tuple[str, ...] | None:
    """The languages a model is made for, as ISO 639 codes; None where that is not known here."""
    return CHAT.languages if spec == "builtin" else None


def language_note(spec: str) -> str | None:
    """One sentence to print before a run, or None: the built-in models read and write English only."""
    if spec != "builtin":
        return None
    return "The built-in models are English: for texts in other languages name others (hf:ORG/NAME, openai:NAME)."


def providers() -> dict[str, EntryPoint]:
    """Third-party providers by prefix."""
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=_GROUP)}


def _third_party(spec: str, method: str, *, chat: bool) -> Any:
    """The provider's function that loads ``spec``."""
    found = providers()
    provider, colon, _ = spec.partition(":")
    if not colon or provider not in found:
        known = [*(("none",) if chat else ()), *_BUILT_IN, *(("openai:NAME",) if chat else ())]
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
