"""Describe as data how products with OpenAI's chat completions differ.

Each entry follows the product's documentation or source, as docs/endpoints.md cites them; none was tested against
the real service. Other differences are learned from a server's refusals (:mod:`understudy.models.connection`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

from understudy.base.errors import ConfigError

LimitName = Literal["max_tokens", "max_completion_tokens"]

BATCH_DISCOUNT = 0.5  # the price of a batch, as a share of the ordinary price
BATCH_HOURS = 24  # within which a batch is answered, or expires
_THIS_MACHINE = r"localhost|127\.0\.0\.1|\[?::1\]?"


@dataclass(frozen=True, kw_only=True)
class Preset:
    """A product with an OpenAI-compatible endpoint: its address, its key variable, and the hosts that get the key.

    Attributes:
        address: the address of its chat completions. If each customer has another, the parts to fill in are in
            CAPITALS.
        key: the environment variable for its key in its documentation.
        key_hosts: a regular expression of the hosts to which that key is sent by default. It is only sent to others
            if ``api_key_env`` names it.
    """

    title: str
    address: str
    key: str | None = None
    key_hosts: str = _THIS_MACHINE
    key_needed: bool = False  # those hosts answer nobody without one
    limit_name: LimitName = "max_tokens"
    ignored: frozenset[str] = frozenset()  # parameters that it accepts and silently ignores
    batches: bool = False  # it has OpenAI's files and batches
    start: str | None = None  # the command that starts it on this machine

    @property
    def base_url(self) -> str | None:
        """Return its address, if all its users have the same one."""
        return None if re.search(r"[A-Z]", self.address) else self.address

    def unreachable_at(self, base_url: str) -> str:
        """Return what to do if no connection to ``base_url`` can be made."""
        if self.start is not None and is_on_this_machine(base_url):
            return f"Start {self.title} (`{self.start}`), or check the base URL if it runs elsewhere."
        return "Check the base URL, that the server is running, and the proxy settings of the environment."

    def sends_key_to(self, base_url: str) -> bool:
        """Return whether :attr:`key` is sent to ``base_url`` by default: only to the product's hosts, by https."""
        parts = urlsplit(base_url)
        ours = re.fullmatch(self.key_hosts, parts.hostname or "") is not None
        return self.key is not None and ours and (is_on_this_machine(base_url) or parts.scheme == "https")


def is_on_this_machine(base_url: str) -> bool:
    """Return whether an address is one of this machine."""
    return re.fullmatch(_THIS_MACHINE, urlsplit(base_url).hostname or "") is not None


PRESETS: Mapping[str, Preset] = {
    "openai": Preset(
        title="OpenAI",
        address="https://api.openai.com/v1",
        key="OPENAI_API_KEY",
        key_hosts=r"api\.openai\.com",
        key_needed=True,
        batches=True,
    ),
    "ollama": Preset(
        title="Ollama",
        address="http://localhost:11434/v1",
        ignored=frozenset(("max_completion_tokens", "n", "top_k", "min_p", "logit_bias", "user")),
        start="ollama serve",
    ),
    "vllm": Preset(
        title="vLLM",
        address="http://localhost:8000/v1",
        key="VLLM_API_KEY",
        ignored=frozenset(("user", "parallel_tool_calls")),
        start="vllm serve MODEL",
    ),
    "llamacpp": Preset(
        title="llama.cpp server",
        address="http://localhost:8080/v1",
        key="LLAMA_API_KEY",
        start="llama-server -m FILE",
    ),
    "lmstudio": Preset(
        title="LM Studio", address="http://localhost:1234/v1", key="LM_API_TOKEN", start="lms server start"
    ),
    "azure": Preset(
        title="Azure OpenAI",
        address="https://RESOURCE.openai.azure.com/openai/v1",
        key="AZURE_OPENAI_API_KEY",
        key_hosts=r"[a-z0-9-]+\.(openai|services\.ai)\.azure\.com",
        key_needed=True,
    ),
    "bedrock": Preset(
        title="Amazon Bedrock",
        address="https://bedrock-mantle.REGION.api.aws/v1",
        key="AWS_BEARER_TOKEN_BEDROCK",
        key_hosts=r"bedrock-mantle\.[a-z0-9-]+\.api\.aws|bedrock-runtime\.[a-z0-9-]+\.amazonaws\.com",
        key_needed=True,
        limit_name="max_completion_tokens",
    ),
    "gemini": Preset(
        title="Gemini",
        address="https://generativelanguage.googleapis.com/v1beta/openai",
        key="GEMINI_API_KEY",
        key_hosts=r"generativelanguage\.googleapis\.com",
        key_needed=True,
    ),
}
"""Presets by the prefix of a model's name."""


def preset_of(spec: str) -> Preset | None:
    """Return the preset of a model's name such as ``ollama:NAME``; None for other models."""
    prefix, _, name = spec.partition(":")
    return PRESETS.get(prefix) if name else None


OWN_PARAMETERS = {
    "model": "--llm",
    "messages": "--prompt",
    "max_tokens": "--max-tokens",
    "max_completion_tokens": "--max-tokens",
    "temperature": "--llm-temperature",
    "top_p": "the `settings` of a prompt file (--prompt)",
    "stop": "--prompt",
    "n": "--samples",
    "stream": None,
}
"""Fields of a request that understudy sets, and the option for each."""


def require_extra_body(fields: Mapping[str, object], preset: Preset | None = None) -> None:
    """Check that extra fields of a request are not set by understudy, and not silently dropped by the product."""
    for name in fields:
        if name in OWN_PARAMETERS:
            option = OWN_PARAMETERS[name]
            raise ConfigError(
                f"The extra body sets {name!r}, which understudy sets itself.",
                f"Use {option} instead." if option else "Leave it out: answers are not streamed.",
            )
        if preset is not None and name in preset.ignored:
            raise ConfigError(
                f"{preset.title} silently ignores {name!r} in such requests.",
                "Leave it out of the extra body; docs/endpoints.md says where it can be set.",
            )
