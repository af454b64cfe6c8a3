"""What an embedder must show before it gets a private text: whatever the method, before anything is charged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import settings
from evolution_fixtures import Counting, WordEmbedder, evolving, use_embedder
from numpy.typing import NDArray
from run_fixtures import run, runs_charged
from secret_fixtures import protecting

import understudy as us
from understudy.base.errors import ModelError, ResumeError
from understudy.ledger import Ledger
from understudy.methods.registry import method_class
from understudy.models.embedder_checks import ODD_TEXTS
from understudy.privacy.guarantee import Budget
from understudy.run import pipeline as running
from understudy.run.settings import run_config

pytestmark = pytest.mark.usefixtures("varied_chat")
GUIDED = "dp-kps with a guide"
# And one that embeds no private text, with a guide.
METHODS = ("aug-pe", "guided-evolution", "sec-pe", GUIDED)


class ByNeighbour(WordEmbedder):
    """A text's last bit shows how many others there are."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = super().embed(texts)
        if len(texts) > 1:
            vectors[:, 0] = np.nextafter(vectors[:, 0], np.float32(2))
        return vectors


class Overflowing(WordEmbedder):
    """For one private text it has no numbers, as a model of half precision may."""

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = super().embed(texts)
        vectors[["Number 7." in text for text in texts]] = np.nan
        return vectors


class Short(WordEmbedder):
    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return super().embed(texts) / 2


class Silent:
    """It does not say whether texts stay on this machine."""

    model_id, fingerprint = "fake:silent", "1" * 64

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        raise AssertionError("it was given a text")


class Elsewhere(Counting):
    model_id = "acme:elsewhere"
    local = False


def configured(method: str, folder: Path, **changes: Any) -> dict[str, Any]:
    """A run of a method that embeds private texts."""
    if method == GUIDED:
        return settings(folder, guide=True, **changes)
    if method == "dp-kde":
        return settings(folder, method=method, mode="iterative", features=16, **changes)
    return protecting(folder, **changes) if method == "sec-pe" else evolving(folder, method=method, **changes)


@pytest.mark.parametrize("method", METHODS)
def test_an_embedder_that_is_not_fit_for_private_texts_is_refused_before_the_charge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    use_embedder(monkeypatch, ByNeighbour())
    with pytest.raises(ModelError, match="change with the other texts"):
        run(configured(method, tmp_path))
    use_embedder(monkeypatch, Silent())
    with pytest.raises(ModelError, match="does not say whether texts stay"):
        run(configured(method, tmp_path, trust_endpoint=True))
    assert runs_charged(tmp_path / "ledger.sqlite") == 0
    use_embedder(monkeypatch, WordEmbedder())
    assert running.release(run_config(configured(method, tmp_path, trust_endpoint=True))).statement.trusted == ()
    assert "Who is trusted" not in (tmp_path / "out" / "release" / "statement.md").read_text("utf-8")
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


@pytest.mark.parametrize("method", METHODS)
def test_an_embedder_that_sends_texts_away_needs_the_users_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    elsewhere = use_embedder(monkeypatch, Elsewhere())
    with pytest.raises(ModelError, match="would read private ones") as caught:
        run(configured(method, tmp_path))
    assert "--trust-endpoint" in caught.value.cure
    assert not elsewhere.seen
    assert runs_charged(tmp_path / "ledger.sqlite") == 0
    result = run(configured(method, tmp_path, trust_endpoint=True))
    assert elsewhere.seen
    (said,) = result.statement.trusted
    assert "acme:elsewhere read the private texts (--trust-endpoint)" in said
    again = us.load_release(tmp_path / "out" / "release" / f"{method.split()[0]}.release")
    assert again.statement.trusted == result.statement.trusted
    assert f"## Who is trusted\n\n- {said}" in (tmp_path / "out" / "release" / "statement.md").read_text("utf-8")
    assert json.loads((tmp_path / "out" / "release" / "statement.json").read_text("utf-8"))["trusted"] == [said]


def test_an_embedder_of_terms_may_be_anywhere_and_reads_public_texts_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedder = use_embedder(monkeypatch, Elsewhere())
    result = run(settings(tmp_path, method="dp-kde", features=16))
    public = {*(tmp_path / "terms.txt").read_text("utf-8").splitlines(), *ODD_TEXTS, "a public text"}
    assert set(result.release.terms) <= set(embedder.seen) <= public
    assert result.statement.trusted == ()


@pytest.mark.parametrize("method", [*METHODS, "dp-kde"])
def test_a_run_goes_on_with_its_embedder(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(WordEmbedder):
        fingerprint = "2" * 64

    def broken(*_arguments: Any, **_named: Any) -> Any:
        raise KeyboardInterrupt

    values = configured(method, tmp_path)
    use_embedder(monkeypatch, WordEmbedder())
    with monkeypatch.context() as patch:
        patch.setattr("understudy.privacy.noise.SystemNoise.draw", broken)
        with pytest.raises(KeyboardInterrupt):
            run(values)
    use_embedder(monkeypatch, Other())
    with pytest.raises(ResumeError, match="The embedder changed since this run began"):
        run(values)
    use_embedder(monkeypatch, WordEmbedder())
    assert run(values).records
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_methods_whose_embedder_reads_private_texts_say_so() -> None:
    read = {name: method_class(name).needs.embedder for name in (*METHODS[:3], "dp-kps", "dp-kde")}
    assert read == {**dict.fromkeys(METHODS[:3], True), "dp-kps": False, "dp-kde": False}


# -- evaluation -------------------------------------------------------------------------------------------------------


def evaluated(folder: Path, **changes: Any) -> us.Evaluation:
    given = {"embedder": "fake", "metrics": "leakage", "ledger": str(folder / "ledger.sqlite"), **changes}
    return us.evaluate(folder / "notes.csv", folder / "out", **given)


@pytest.fixture
def made(tmp_path: Path) -> Path:
    run(settings(tmp_path))
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        ledger.raise_cap("notes", cap=Budget(5, "1e-6"))
    return tmp_path


def test_charged_metrics_try_the_embedder_before_the_charge(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_embedder(monkeypatch, ByNeighbour())
    with pytest.raises(ModelError, match="change with the other texts"):
        evaluated(made, charge_metrics="0.5", charged_classifiers="embedding")
    assert runs_charged(made / "ledger.sqlite") == 1
    evaluated(made)  # what is private needs no more than an embedder that may read the texts
    evaluated(made, charge_metrics="0.5", charged_classifiers="tf-idf")  # nor does what reads no vectors
    assert runs_charged(made / "ledger.sqlite") == 2


@pytest.mark.parametrize("classifiers", ["tf-idf", "embedding"])
def test_a_private_text_without_a_vector_fails_no_evaluation_after_its_charge(
    made: Path, monkeypatch: pytest.MonkeyPatch, classifiers: str
) -> None:
    use_embedder(monkeypatch, Overflowing())
    evaluated(made, metrics="fidelity,utility,leakage", charge_metrics="0.5", charged_classifiers=classifiers)
    assert runs_charged(made / "ledger.sqlite") == 2


def test_an_evaluation_needs_vectors_of_length_1(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All others count as no vector."""
    use_embedder(monkeypatch, Short())
    with pytest.raises(ModelError, match="length 1"):
        evaluated(made)


def test_evaluations_send_no_real_text_away_without_consent(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = use_embedder(monkeypatch, Elsewhere())
    with pytest.raises(ModelError, match="would read private ones"):
        evaluated(made)
    assert not elsewhere.seen
    evaluated(made, trust_endpoint=True, charge_metrics="0.5", charged_classifiers="embedding")
    (said,) = json.loads((made / "out" / "release" / "metrics.json").read_text("utf-8"))["trusted"]
    assert "acme:elsewhere" in said
