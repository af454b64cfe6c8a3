"""Products behind their presets: each against a small server that behaves as the product's documentation says.

Where that is documented stands on docs/endpoints.md. No real service is asked.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from endpoint_fixtures import ask, clean_environment_fixture, endpoint_fixture, questions  # noqa: F401
from local_fixtures import make_bert, make_llama
from server import FakeEndpoint, Reply, answer, error

from understudy.base.errors import ConfigError, ModelError
from understudy.cli import cli
from understudy.models.catalog import language_note, load_chat, load_embedder
from understudy.models.collect import collect
from understudy.models.endpoint import EndpointChat
from understudy.models.presets import OWN_PARAMETERS, PRESETS, preset_of
from understudy.models.types import Completion

SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}'
ENDPOINTS = (Path(__file__).parents[2] / "docs" / "endpoints.md").read_text("utf-8")


def reach(endpoint: FakeEndpoint, provider: str, path: str = "/v1", **options: Any) -> EndpointChat:
    base_url = endpoint.base_url.removesuffix("/v1") + path
    return EndpointChat("small", provider=provider, base_url=base_url, backoff_seconds=0.0, **options)


def one(chat: EndpointChat, **options: Any) -> Completion:
    return collect(chat, [ask("Write a note.", **options)])[0]


def at_home(monkeypatch: pytest.MonkeyPatch, provider: str, **changes: Any) -> None:
    """The preset, with this machine in the place of the product's hosts."""
    here = replace(PRESETS[provider], key_hosts=r"127\.0\.0\.1", **changes)
    monkeypatch.setitem(PRESETS, provider, here)  # type: ignore[arg-type]


def test_ollama_gets_the_limit_by_the_one_name_that_it_knows(endpoint: FakeEndpoint) -> None:
    """Its request type has max_tokens only; it drops unknown fields, and a prompt would run to the context's end."""

    def plan(number: int, seen: Any) -> Reply:
        limit = seen.body.get("max_tokens", 422)
        return answer("word " * limit, finish_reason="length" if limit < 422 else "stop", usage=(9, limit))

    endpoint.plan = plan
    assert one(reach(endpoint, "ollama"), max_tokens=10).completion_tokens == 10
    assert "authorization" not in endpoint.seen[0].headers


@pytest.mark.parametrize("provider", ["ollama", "vllm", "llamacpp", "lmstudio", "gemini"])
def test_a_schema_goes_to_the_products_that_document_it(
    endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    def plan(number: int, seen: Any) -> Reply:
        wanted = seen.body.get("response_format", {})
        fits = wanted.get("type") == "json_schema" and wanted["json_schema"]["schema"] == json.loads(SCHEMA)
        return answer('{"a": 1}' if fits else "A note.")

    endpoint.plan = plan
    assert one(reach(endpoint, provider), schema=SCHEMA).text == '{"a": 1}'


@pytest.mark.parametrize(
    ("provider", "variable"), [("vllm", "VLLM_API_KEY"), ("llamacpp", "LLAMA_API_KEY"), ("lmstudio", "LM_API_TOKEN")]
)
def test_a_server_of_this_machine_gets_its_own_key_where_there_is_one(
    endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch, provider: str, variable: str
) -> None:
    monkeypatch.delenv(variable, raising=False)
    assert one(reach(endpoint, provider)).text
    assert "authorization" not in endpoint.seen[-1].headers
    endpoint.plan = lambda number, seen: (
        answer() if seen.headers.get("authorization") == "Bearer secret" else error(401, "Invalid API Key")
    )
    with pytest.raises(ModelError, match="does not accept the key"):
        one(reach(endpoint, provider))
    monkeypatch.setenv(variable, "secret")
    assert one(reach(endpoint, provider)).text


def test_llama_cpp_is_waited_for_while_it_loads_its_model(endpoint: FakeEndpoint) -> None:
    loading = Reply(b'{"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}', status=503)
    endpoint.plan = lambda number, seen: loading if number < 3 else answer("There.")
    assert one(reach(endpoint, "llamacpp")).text == "There."


def test_azure_takes_its_key_as_a_bearer_and_reasoning_models_their_own_limit(
    endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_home(monkeypatch, "azure")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-key")

    def plan(number: int, seen: Any) -> Reply:
        assert seen.path == "/openai/v1/chat/completions"
        assert "api-version" not in seen.path
        assert seen.headers["authorization"] == "Bearer azure-key"
        if "max_tokens" in seen.body:
            message = (
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'"
            )
            return error(400, message, code="unsupported_parameter", param="max_tokens")
        for name in ("temperature", "top_p"):
            if name in seen.body:
                message = f"Unsupported value: '{name}' does not support 0.7 with this model."
                return error(400, message, code="unsupported_value", param=name)
        return answer("A note.")

    endpoint.plan = plan
    chat = reach(endpoint, "azure", "/openai/v1")
    assert one(chat, temperature=0.7).text == "A note."
    assert len(endpoint.seen) == 4
    assert one(chat, temperature=0.7).text == "A note."
    assert len(endpoint.seen) == 5  # what was learnt is remembered


def test_bedrock_gets_the_limit_by_its_own_name(endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    at_home(monkeypatch, "bedrock")
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "bedrock-key")
    one(reach(endpoint, "bedrock", "/openai/v1"), max_tokens=10)
    assert endpoint.seen[0].headers["authorization"] == "Bearer bedrock-key"
    assert endpoint.seen[0].body["max_completion_tokens"] == 10
    assert "max_tokens" not in endpoint.seen[0].body


def test_gemini_gets_more_room_as_it_thinks_too(endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thoughts count towards the limit; an answer may be missing where they used it up."""
    at_home(monkeypatch, "gemini")
    monkeypatch.setenv("GEMINI_API_KEY", "gemini-key")
    endpoint.plan = lambda number, seen: (
        answer("A note.") if seen.body["max_tokens"] > 100 else answer(None, finish_reason="length")
    )
    chat = reach(endpoint, "gemini", "/v1beta/openai", extra_body={"reasoning_effort": "low"})
    assert one(chat, max_tokens=60).text == "A note."
    assert endpoint.seen[0].path == "/v1beta/openai/chat/completions"
    assert [seen.body["reasoning_effort"] for seen in endpoint.seen] == ["low", "low"]


def test_an_error_in_a_list_as_gemini_sends_it_is_read(endpoint: FakeEndpoint) -> None:
    refusal = [{"error": {"code": 400, "message": 'Unknown name "top_p": Cannot find field.', "status": "INVALID"}}]
    endpoint.plan = lambda number, seen: (
        Reply(json.dumps(refusal).encode(), status=400) if "top_p" in seen.body else answer("A note.")
    )
    assert one(reach(endpoint, "gemini")).text == "A note."


@pytest.mark.parametrize("provider", [name for name, each in PRESETS.items() if each.key_needed])
def test_a_hosted_product_without_its_key_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, provider: str) -> None:
    preset = PRESETS[provider]
    monkeypatch.delenv(str(preset.key), raising=False)
    with pytest.raises(ModelError, match=str(preset.key)):
        load_chat(f"{provider}:small", base_url=preset.address.replace("RESOURCE", "r").replace("REGION", "eu-west-1"))


@pytest.mark.parametrize("provider", ["azure", "bedrock"])
def test_a_product_with_an_address_for_each_customer_asks_for_yours(provider: str) -> None:
    with pytest.raises(ConfigError, match="no base URL is given") as caught:
        load_chat(f"{provider}:small")
    assert PRESETS[provider].address in caught.value.cure


@pytest.mark.parametrize(
    ("provider", "address", "sent"),
    [
        ("openai", "https://api.openai.com/v1", True),
        ("openai", "http://api.openai.com/v1", False),
        ("openai", "https://api.openai.com.example.org/v1", False),
        ("azure", "https://clinic-7.openai.azure.com/openai/v1", True),
        ("azure", "https://clinic.services.ai.azure.com/openai/v1", True),
        ("azure", "https://evil.example/openai.azure.com", False),
        ("azure", "http://clinic.openai.azure.com/openai/v1", False),
        ("azure", "https://openai.azure.com.example.org/openai/v1", False),
        ("bedrock", "https://bedrock-runtime.us-west-2.amazonaws.com/openai/v1", True),
        ("bedrock", "https://bedrock-mantle.eu-central-1.api.aws/v1", True),
        ("bedrock", "https://bedrock-runtime.bucket.s3.amazonaws.com/openai/v1", False),
        ("gemini", "https://generativelanguage.googleapis.com/v1beta/openai", True),
        ("gemini", "https://generativelanguage.googleapis.com.example.org/v1beta/openai", False),
        ("vllm", "http://localhost:8000/v1", True),
        ("vllm", "http://gpu-3:8000/v1", False),
        ("llamacpp", "http://[::1]:8080/v1", True),
        ("llamacpp", "http://localhost.example.org:8080/v1", False),
        ("ollama", "http://localhost:11434/v1", False),
    ],
)
def test_a_product_s_key_goes_to_its_own_hosts_only(provider: str, address: str, sent: bool) -> None:
    assert PRESETS[provider].sends_key_to(address) is sent


def test_an_extra_body_sets_nothing_that_is_ours_or_that_the_product_drops_in_silence() -> None:
    for name in OWN_PARAMETERS:
        with pytest.raises(ConfigError, match="which understudy sets itself"):
            EndpointChat("small", provider="vllm", extra_body={name: 1})
    with pytest.raises(ConfigError, match="Ollama silently ignores 'top_k'"):
        load_chat("ollama:small", extra_body={"top_k": 4})


def test_answers_are_stored_under_the_product_s_own_name() -> None:
    assert load_chat("ollama:llama3.2").model_id == "ollama:llama3.2@http://localhost:11434/v1"
    assert preset_of("ollama:") is None
    assert preset_of("builtin") is None


def test_check_names_what_a_product_s_server_can_do(endpoint: FakeEndpoint) -> None:
    words = ["check", "vllm:small", "--base-url", endpoint.base_url, "--llm-extra-body", '{"top_k": 3}']
    done = CliRunner().invoke(cli, ["models", *words])
    assert done.exception is None, done.output
    assert all(seen.body["top_k"] == 3 for seen in endpoint.seen if seen.method == "POST")


def test_the_list_names_every_product_with_its_address() -> None:
    listed = json.loads(CliRunner().invoke(cli, ["models", "list", "--json"]).output)["endpoints"]
    assert [each["name"] for each in listed] == [f"{prefix}:NAME" for prefix in PRESETS]
    assert listed[1]["address"] == "http://localhost:11434/v1"


@pytest.mark.parametrize("prefix", ["ollama", "vllm", "llamacpp", "lmstudio"])
def test_nobody_at_the_address_of_a_local_server_says_how_to_start_it(prefix: str) -> None:
    done = CliRunner().invoke(cli, ["models", "check", f"{prefix}:x", "--base-url", "http://127.0.0.1:9/v1"])
    assert isinstance(done.exception, ModelError)
    assert done.exception.cure.startswith(f"Start {PRESETS[prefix].title} (`{PRESETS[prefix].start}`)")
    assert "Start" not in PRESETS[prefix].unreachable_at("http://gpu.example:8000/v1")


@pytest.mark.parametrize("prefix", PRESETS)
def test_the_page_of_endpoints_has_a_product_as_it_stands_in_the_table(prefix: str) -> None:
    preset = PRESETS[prefix]
    key = f", `{preset.key}`" if preset.key else ""
    assert f"- `{prefix}:NAME`: {preset.title}, `{preset.address}`{key}" in ENDPOINTS.splitlines()
    section = ENDPOINTS.partition(f"\n## {preset.title}\n")[2].partition("\n## ")[0]
    assert f"{prefix}:" in section
    assert all(f"`{name}`" in section for name in preset.ignored)


# -- from a spec to a model, and the ``models`` command ---------------------------------------------------------------


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("UNDERSTUDY_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def provider(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A third party's package on the path."""
    info = tmp_path / "site" / "acme_models-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-models\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[understudy.models]\nacme = acme_models:provider\nbroken = acme_models:missing\n"
    )
    (tmp_path / "site" / "acme_models.py").write_text(
        "class provider:\n"
        "    def load_chat(name, **options):\n        return name, options\n"
        "    def load_embedder(name):\n        return name\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.mark.parametrize("spec", ["gpt", "openai:", "hf:", "acme:small", "", "builtin:small"])
def test_an_unknown_chat_model_lists_the_known_ones(spec: str) -> None:
    with pytest.raises(ModelError, match="no chat model") as caught:
        load_chat(spec)
    assert "none, builtin, hf:ORG/NAME, hf:./FOLDER, openai:NAME" in caught.value.cure


def test_an_unknown_embedder_lists_the_known_ones_and_none_is_no_model() -> None:
    with pytest.raises(ModelError, match="no language model writes"):
        load_chat("none")
    with pytest.raises(ModelError, match="no embedder") as caught:
        load_embedder("openai:small")
    assert "builtin, hf:ORG/NAME" in caught.value.cure
    assert "openai" not in caught.value.cure


def test_a_folder_is_loaded_as_chat_model_or_embedder(tmp_path: Path, empty_cache: Path) -> None:
    assert load_chat(f"hf:{make_llama(tmp_path / 'chat')}", seed=3).model_id.startswith("hf:")
    assert load_embedder(f"hf:{make_bert(tmp_path / 'embedder')}").embed(["a"]).shape == (1, 16)
    for load in (load_chat, load_embedder):
        with pytest.raises(ModelError, match="no model folder"):
            load("hf:./not-there")
        with pytest.raises(ModelError) as caught:
            load("builtin")
        assert caught.value.cure == "Install it: understudy models pull builtin"


def test_a_hub_that_cannot_be_reached_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str, **options: object) -> str:
        raise ConnectionError("a page of hub noise")

    monkeypatch.setattr("huggingface_hub.snapshot_download", fail)
    for load in (load_chat, load_embedder):
        with pytest.raises(ModelError, match="hub") as caught:
            load("hf:org/name")
        assert "noise" not in str(caught.value)
        assert "hf:./FOLDER" in caught.value.cure


def test_a_local_model_with_a_base_url_is_refused() -> None:
    for spec in ("builtin", "hf:org/name", "none"):
        with pytest.raises(ConfigError, match="no base URL"):
            load_chat(spec, base_url="http://127.0.0.1:9/v1")
        with pytest.raises(ConfigError, match="no extra body"):
            load_chat(spec, extra_body={"top_k": 4})


def test_third_parties_add_models_by_entry_point(provider: None) -> None:
    name, options = load_chat("acme:small", seed=7, max_concurrency=2)  # type: ignore[misc]
    assert name == "small"
    assert options == {"base_url": None, "api_key_env": None, "seed": 7, "max_concurrency": 2}
    assert load_embedder("acme:tiny") == "tiny"
    with pytest.raises(ModelError) as caught:
        load_chat("nobody:small")
    assert "acme:NAME" in caught.value.cure
    with pytest.raises(ModelError, match="cannot be loaded"):
        load_chat("broken:small")
    assert "acme:NAME comes from acme_models:provider" in CliRunner().invoke(cli, ["models", "list"]).output


@pytest.mark.parametrize("load", [load_chat, load_embedder])
def test_without_the_extra_local_models_name_it(load: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.models.machine.find_spec", lambda name: None if name == "torch" else name)
    with pytest.raises(ModelError, match="torch") as caught:
        load(f"hf:{tmp_path}")  # type: ignore[operator]
    assert "pip install 'understudy[local]'" in caught.value.cure


def test_the_list_shows_licence_language_and_what_is_here(empty_cache: Path) -> None:
    shown = CliRunner().invoke(cli, ["models", "list", "--verify"])
    assert shown.exit_code == 0
    assert shown.output.count("Apache-2.0") == 2
    assert "smollm2-135m-instruct" in shown.output
    assert "\tno\n" in shown.output
    assert "English" in shown.output
    assert str(empty_cache) in shown.output


def test_check_says_what_a_local_model_can_do(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["models", "check", f"hf:{make_llama(tmp_path, window=4096)}"])
    assert done.exception is None
    assert "answers: yes" in done.output
    assert "honours max tokens: yes" in done.output


def test_the_embedded_models_say_that_they_are_english() -> None:
    assert "English" in (language_note("builtin") or "")
    assert language_note("openai:small") is None


def test_naming_models_imports_no_heavy_package() -> None:
    code = (
        "import sys, understudy.models, understudy.cli.verbs.models\n"
        "print([name for name in ('torch', 'transformers', 'openai', 'rich', 'platformdirs') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_pull_takes_a_folder(tmp_path: Path, empty_cache: Path) -> None:
    done = CliRunner().invoke(cli, ["models", "pull", "builtin", "--from", str(tmp_path)])
    assert isinstance(done.exception, ModelError)
    assert "contains no" in str(done.exception)
