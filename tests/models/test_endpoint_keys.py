"""Which key goes where, and through which proxy and certificate."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from endpoint_fixtures import chat, clean_environment_fixture, echo, endpoint_fixture, questions  # noqa: F401
from server import FakeEndpoint, Reply

from understudy.base.errors import ModelError
from understudy.models.collect import collect
from understudy.models.endpoint import EndpointChat
from understudy.models.presets import PRESETS

SECRETS = {
    "OPENAI_API_KEY": "sk-hosted",
    "OPENAI_ADMIN_KEY": "sk-admin",
    "OPENAI_ORG_ID": "org-private",
    "OPENAI_PROJECT_ID": "proj-private",
    "OPENAI_CUSTOM_HEADERS": "X-Secret: custom-private\nAuthorization: Bearer sk-custom",
}


@pytest.fixture
def hosted_environment(monkeypatch: pytest.MonkeyPatch, clean_environment: None) -> None:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("hosted_environment")
@pytest.mark.parametrize("key", [{}, {"authorization": "Bearer local-key"}], ids=["no key", "a named key"])
def test_nothing_but_a_named_key_reaches_another_address(
    endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch, key: dict[str, str]
) -> None:
    monkeypatch.setenv("MY_KEY", " local-key\n")
    model = chat(endpoint, api_key_env="MY_KEY" if key else None)
    collect(model, questions(3))
    asyncio.run(model.list_models())
    allowed = {"host", "accept", "accept-encoding", "connection", "content-type", "content-length", "user-agent"}
    for seen in endpoint.seen:
        assert {name: value for name, value in seen.headers.items() if name not in allowed} == key
        assert not any(word in str(seen.headers) for word in ("sk-", "private", "openai-"))
    assert len(endpoint.seen) == 4


@pytest.mark.usefixtures("hosted_environment")
def test_the_hosted_address_gets_the_hosted_key(endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    here = replace(PRESETS["openai"], address=endpoint.base_url, key_hosts=r"127\.0\.0\.1")
    monkeypatch.setitem(PRESETS, "openai", here)  # type: ignore[arg-type]
    collect(EndpointChat("gpt"), questions(1))
    collect(EndpointChat("gpt", base_url=endpoint.base_url + "/"), questions(1))
    assert [seen.headers["authorization"] for seen in endpoint.seen] == ["Bearer sk-hosted"] * 2


def test_no_base_url_is_the_hosted_address_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    with pytest.raises(ModelError, match="OPENAI_API_KEY"):
        EndpointChat("gpt")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-hosted")
    assert EndpointChat("gpt").model_id == "openai:gpt@https://api.openai.com/v1"


def test_a_redirect_carries_neither_key_nor_prompt_to_another_host(
    endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "local-key")
    with FakeEndpoint() as elsewhere:
        location = {"Location": f"{elsewhere.base_url}/chat/completions"}
        endpoint.plan = lambda number, seen: Reply(status=307, headers=location)
        with pytest.raises(ModelError, match="redirects"):
            collect(chat(endpoint, api_key_env="MY_KEY"), questions(3))
        assert elsewhere.seen == []


@pytest.mark.parametrize("value", [None, "", "  ", "ключ", "a\nb"])
def test_a_variable_without_a_key_is_one_clear_error(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    if value is not None:
        monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(ModelError, match="MY_KEY") as caught:
        EndpointChat("m", base_url="http://localhost/v1", api_key_env="MY_KEY")
    assert caught.value.cure
    assert not value or not value.strip() or value not in str(caught.value)


def test_requests_go_through_the_proxy_of_the_environment_unless_no_proxy_names_the_host(
    endpoint: FakeEndpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeEndpoint() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url.removesuffix("/v1"))
        collect(EndpointChat("m", base_url="http://models.invalid/v1"), questions(1))
        assert [seen.path for seen in proxy.seen] == ["http://models.invalid/v1/chat/completions"]
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        collect(chat(endpoint), questions(1))
        assert len(proxy.seen) == 1
    assert endpoint.seen[0].path == "/v1/chat/completions"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ssl.SSLContext]:
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    folder = tmp_path_factory.mktemp("certificate")
    new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "key.pem"]
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(
        ["openssl", "req", "-x509", *new_key, *subject, "-days", "2", "-out", "certificate.pem"],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return folder / "certificate.pem", context


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_certificates_are_checked_against_the_bundle_of_the_environment(
    variable: str, certificate: tuple[Path, ssl.SSLContext], monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, context = certificate
    with FakeEndpoint(echo, certificate=context) as endpoint:
        with pytest.raises(ModelError, match="certificate is not trusted"):
            collect(chat(endpoint), questions(1))
        monkeypatch.setenv(variable, str(bundle))
        assert collect(chat(endpoint), questions(1))[0].text == "echo of question 0"


def test_a_missing_bundle_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/bundle.pem")
    with pytest.raises(ModelError, match="bundle"):
        collect(EndpointChat("m", base_url="https://localhost/v1"), questions(1))
