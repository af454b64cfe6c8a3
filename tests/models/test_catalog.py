"""From a spec to a model, and the ``models`` command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from local_fixtures import make_bert, make_llama

from understudy.base.errors import ConfigError, ModelError
from understudy.cli import cli
from understudy.models.catalog import language_note, load_chat, load_embedder


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
    assert " no" in shown.output
    assert "English" in shown.output
    assert str(empty_cache) in shown.output


def test_check_says_what_a_local_model_can_do(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["models", "check", f"hf:{make_llama(tmp_path)}"])
    assert done.exception is None
    assert "answers: yes" in done.output
    assert "honours max tokens: yes" in done.output


def test_the_embedded_models_say_that_they_are_english() -> None:
    assert "English" in (language_note("builtin") or "")
    assert language_note("openai:small") is None


def test_naming_models_imports_no_heavy_package() -> None:
    code = (
        "import sys, understudy.models, understudy.cli.manage\n"
        "print([name for name in ('torch', 'transformers', 'openai', 'rich', 'platformdirs') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_pull_takes_a_folder(tmp_path: Path, empty_cache: Path) -> None:
    done = CliRunner().invoke(cli, ["models", "pull", "builtin", "--from", str(tmp_path)])
    assert isinstance(done.exception, ModelError)
    assert "holds no" in str(done.exception)
