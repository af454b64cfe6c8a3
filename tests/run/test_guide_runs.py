"""Runs with a guide: what is released, what is chosen by it, and what happens where something goes wrong."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import LABELS, TERMS, FakeChat, rows, settings, write_csv
from evolution_fixtures import DIMENSION, OF_KPS, WordEmbedder, evolving, use_embedder, varied
from numpy.typing import NDArray
from run_fixtures import Command, UseChat, release, run, runs_charged
from sample_releases import dp_kps
from script_model import ScriptModel, echo

import understudy as us
from understudy.base.errors import ConfigError, ReleaseError
from understudy.ledger.store import RunStore
from understudy.methods.additions.guide import chooser as choosing
from understudy.methods.additions.guide.guide import Guide, noise_check
from understudy.methods.additions.guide.sums import GuideSums
from understudy.models.types import ChatRequest, Completion
from understudy.privacy.events import GaussianEvent, SubsampledGaussianEvent
from understudy.privacy.plan import Receipt
from understudy.release import Release
from understudy.run import pipeline as running
from understudy.run.session import Listener
from understudy.run.settings import run_config

pytestmark = pytest.mark.usefixtures("embedder")
SEEDED = {"insecure_noise_seed": 1}
SIZE = (2, 1 + DIMENSION)


def guided(folder: Path, **changes: Any) -> dict[str, Any]:
    return settings(folder, guide=True, **{"epsilon": "20", **changes})


def by_label(result: us.Result) -> Counter[int]:
    return Counter(record.label for record in result.records)


class Other(WordEmbedder):
    model_id, fingerprint = "fake:others", "2" * 64


# -- what is released -------------------------------------------------------------------------------------------------


def test_a_guide_is_released_beside_what_the_method_releases(tmp_path: Path) -> None:
    made = run(guided(tmp_path, epsilon="3")).release
    again = us.load_release(tmp_path / "out" / "release" / "dp-kps.release")
    assert again.digest == made.digest
    assert again.arrays["guide"].shape == SIZE
    assert again.arrays["guide"].dtype == np.float64
    assert again.arrays.keys() == {"counts", "real", "density", "guide"}
    assert again.parameters["guide"] is True
    statement = again.statement
    assert [charge.name for charge in statement.charges] == ["vocabulary", "density", "guide"]
    assert all(isinstance(charge.event, GaussianEvent) for charge in statement.charges)
    assert statement.public_inputs["embedder"] == {"source": "fake:words", "sha256": "1" * 64}
    assert statement.budget == us.Budget(3, "1e-6")
    assert 2.99 < statement.epsilon_at[1e-6] <= 3
    text = (tmp_path / "out" / "release" / "statement.md").read_text("utf-8")
    assert "noisy sums of the texts' embeddings for each of 2 labels" in text
    assert "fake:words" in text
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    assert {entry.name for entry in again.noise_check.entries} >= {"guide_records", "guide_reliability"}


def test_a_release_without_a_guide_is_what_it_was_and_nothing_is_asked_of_one(tmp_path: Path) -> None:
    plain = run(settings(tmp_path), **SEEDED).release
    assert plain.arrays.keys() == {"counts", "real", "density"}
    assert not {name for name in plain.parameters if "guide" in name or name == "embedder"}
    assert "embedder" not in plain.statement.public_inputs
    assert [charge.name for charge in plain.statement.charges] == ["vocabulary", "density"]
    assert run(settings(tmp_path, output=None, guide=False), **SEEDED).release.digest == plain.digest
    with pytest.raises(ConfigError) as caught:
        run(settings(tmp_path, guide_candidates=9), **SEEDED)
    assert "--guide" in caught.value.cure


def test_the_exact_guide_is_of_the_records_and_noise_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = run(guided(tmp_path, insecure_no_noise=True)).release
    assert not exact.statement.private
    assert exact.arrays["guide"][:, 0] / 0.3 == pytest.approx([20, 20], abs=1e-4)
    noisy = run(guided(tmp_path, output=str(tmp_path / "noisy"))).release
    apart = noisy.arrays["guide"] - exact.arrays["guide"]
    (charge,) = (charge for charge in noisy.statement.charges if charge.name == "guide")
    assert isinstance(charge.event, GaussianEvent)
    assert 0.5 < apart.std() / charge.event.noise_multiplier < 2
    said = {entry.name: entry.value for entry in exact.noise_check.entries}
    assert said["guide_reliability"] == (1.0, 1.0), "no noise was added"


def test_owners_are_bounded_in_the_guide(tmp_path: Path) -> None:
    values = guided(tmp_path, owner="clinician", max_records_per_owner=2, insecure_no_noise=True)
    made = run(values).release
    assert made.statement.unit.kind == "owner"
    total = made.arrays["guide"][:, 0].sum() / 0.3
    assert total == pytest.approx(5, abs=1e-3), "of five owners, however many records each has"


# -- a large table ----------------------------------------------------------------------------------------------------

HALF = {"expected_records": 100_000}


@pytest.fixture
def summed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that guides have summed."""
    texts: list[str] = []
    of_batch = GuideSums.of_batch

    def noting(query: GuideSums, batch: Any) -> Any:
        texts.extend(batch.texts)
        return of_batch(query, batch)

    monkeypatch.setattr(GuideSums, "of_batch", noting)
    return texts


def test_of_a_large_table_a_sample_is_embedded_and_stated(tmp_path: Path, summed: list[str]) -> None:
    made = run(guided(tmp_path, **HALF)).release
    assert 0 < len(set(summed)) == len(summed) < 40
    again = us.load_release(tmp_path / "out" / "release" / "dp-kps.release")
    (charge,) = (charge for charge in again.statement.charges if charge.name == "guide")
    assert isinstance(charge.event, SubsampledGaussianEvent)
    assert (charge.event.rate, charge.mechanism.rate) == (0.5, 0.5)  # type: ignore[attr-defined]
    text = (tmp_path / "out" / "release" / "statement.md").read_text("utf-8")
    assert "over a Poisson sample of the records (Gaussian noise" in text
    assert "once on a Poisson sample of rate 0.5" in text
    assert again.digest == made.digest
    assert len(us.generate(again, llm="none", records=6).records) == 6
    forged = replace(again, statement=replace(again.statement, epsilon_at={1e-6: 2.0}))
    forged.save(tmp_path / "f.release")
    with pytest.raises(ReleaseError):
        us.load_release(tmp_path / "f.release")


def test_the_records_shown_are_those_of_the_table_and_not_its_sample(tmp_path: Path, summed: list[str]) -> None:
    made = run(guided(tmp_path, **HALF, insecure_no_noise=True)).release
    sampled = made.arrays["guide"][:, 0] / 0.3
    assert sampled.sum() == pytest.approx(len(summed), abs=1e-3)
    shown = {entry.name: entry.value for entry in made.noise_check.entries}["guide_records"]
    assert shown == tuple(round(2 * each) for each in sampled)
    twin = {entry.name: entry.value for entry in noise_check(Guide(made.arrays["guide"], 0.0)).entries}
    assert twin["guide_records"] != shown, "the broken twin forgets the rate"


def test_sampled_owners_come_with_all_their_records(tmp_path: Path, summed: list[str]) -> None:
    values = guided(
        tmp_path, owner="clinician", max_records_per_owner=2, expected_records=50_000, insecure_no_noise=True
    )
    made = run(values).release
    assert made.statement.charges[-1].event.rate == 0.5  # type: ignore[union-attr]
    owners = made.arrays["guide"][:, 0].sum() / 0.3
    assert owners == pytest.approx(len(summed) / 2, abs=1e-3)
    assert owners == pytest.approx(round(owners), abs=1e-3)


def test_a_crash_before_storing_samples_anew_at_the_charged_rate_and_a_stored_guide_is_kept(
    tmp_path: Path, summed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever number is declared by then, or none: the charge says how records are sampled."""
    keep = RunStore.keep

    def crashing(store: RunStore, name: str, *arguments: Any, **named: Any) -> Any:
        if name == "guide":
            raise KeyboardInterrupt
        return keep(store, name, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(RunStore, "keep", crashing)
        with pytest.raises(KeyboardInterrupt):
            run(guided(tmp_path, **HALF))
    first = set(summed)
    summed.clear()
    made = run(guided(tmp_path)).release
    assert made.statement.charges[-1].event.rate == 0.5  # type: ignore[union-attr]
    assert len(summed) < 40
    assert set(summed) != first
    (tmp_path / "out" / "release" / "dp-kps.release").unlink()
    summed.clear()
    assert run(guided(tmp_path, expected_records=500_000)).release.digest == made.digest
    assert not summed
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


# -- what a file must hold --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """With a guide."""
    with pytest.MonkeyPatch.context() as patch:
        use_embedder(patch, WordEmbedder())
        values = guided(tmp_path_factory.mktemp("made"), records_per_label=None, **SEEDED)
        return release(values)


def changed_guide(sums: NDArray[np.float64], number: float) -> NDArray[np.float64]:
    changed = sums.copy()
    changed[1, 3] = number
    return changed


WRONG: dict[str, Callable[[Release], Release]] = {
    "more labels": lambda made: with_sums(made, np.concatenate([made.arrays["guide"]] * 2)),
    "flat": lambda made: with_sums(made, made.arrays["guide"].ravel()),
    "another type": lambda made: with_sums(made, made.arrays["guide"].astype(np.float32)),
    "NaN": lambda made: with_sums(made, changed_guide(made.arrays["guide"], np.nan)),
    "infinity": lambda made: with_sums(made, changed_guide(made.arrays["guide"], np.inf)),
    "too large": lambda made: with_sums(made, changed_guide(made.arrays["guide"], 1e31)),
    "none": lambda made: replace(made, arrays={name: each for name, each in made.arrays.items() if name != "guide"}),
    "not said": lambda made: replace(made, parameters={**made.parameters, "guide": False}),
    "nothing said": lambda made: replace(
        made, parameters={name: each for name, each in made.parameters.items() if "guide" not in name}
    ),
    "no embedder": lambda made: replace(made, statement=replace(made.statement, public_inputs={})),
    "what is no answer": lambda made: replace(made, parameters={**made.parameters, "guide": "perhaps"}),
}


def with_sums(made: Release, sums: NDArray[Any]) -> Release:
    return replace(made, arrays={**made.arrays, "guide": sums})


@pytest.mark.parametrize("what", WRONG)
def test_a_file_whose_guide_is_not_as_it_says_is_refused(tmp_path: Path, made: Release, what: str) -> None:
    file = tmp_path / "f.release"
    made.save(file)
    assert us.load_release(file).digest == made.digest
    WRONG[what](made).save(file)
    with pytest.raises(ReleaseError):
        us.load_release(file)


def test_sums_of_vectors_of_another_length_are_refused_when_they_are_used(tmp_path: Path, made: Release) -> None:
    for columns in (0, 1, 3, DIMENSION, DIMENSION + 2):
        with_sums(made, np.ones((2, columns))).save(tmp_path / "f.release")
        with pytest.raises(ReleaseError, match="no guide made of this embedder's vectors"):
            us.generate(us.load_release(tmp_path / "f.release"), llm="none", records=3)


@pytest.mark.parametrize("checked", [True, False])
def test_a_file_that_claims_a_guide_that_is_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checked: bool
) -> None:
    """Third parties need not say what their Releases hold: that of an unchecked method is refused when it is used."""
    if not checked:
        monkeypatch.setattr("understudy.methods.dp_kps.method.DPKPS.contents", lambda method, release: None)
    good = dp_kps()
    replace(good, parameters={**good.parameters, "guide": True}).save(tmp_path / "f.release")
    with pytest.raises(ReleaseError):
        us.generate(us.load_release(tmp_path / "f.release"), llm="none", records=3)


# -- generating -------------------------------------------------------------------------------------------------------


def test_another_embedder_is_refused_with_cure(tmp_path: Path, made: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    use_embedder(monkeypatch, Other())
    with pytest.raises(ReleaseError, match="made of embeddings of fake:words, not of fake:others") as caught:
        us.generate(made, llm="none", records=4)
    assert "--embedder" in caught.value.cure
    assert "guide_candidates: 0" in caught.value.cure
    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec: pytest.fail("it was loaded"))
    assert len(us.generate(made, llm="none", records=4, guide_candidates=0).records) == 4


def test_ignoring_the_guide_gives_what_a_release_without_it_gives_and_a_seed_chooses(made: Release) -> None:
    parameters = {name: value for name, value in made.parameters.items() if "guide" not in name}
    options: dict[str, Any] = {"llm": "none", "records": 12}
    plain = us.generate(replace(made, parameters=parameters), **options)
    ignored, chosen = us.generate(made, **options, guide_candidates=0), us.generate(made, **options)
    assert [record.text for record in ignored.records] == [record.text for record in plain.records]
    assert [record.text for record in chosen.records] != [record.text for record in plain.records]
    assert us.generate(made, **options).columns == chosen.columns
    assert us.generate(made, **options, seed=5).columns != chosen.columns


def test_what_is_asked_of_a_guide_needs_one_and_what_asks_for_nothing_does_not(made: Release) -> None:
    for name, value in {"guide_candidates": 3, "guide": True}.items():
        with pytest.raises(ConfigError, match="this one has none") as caught:
            us.generate(dp_kps(), llm="none", records=3, **{name: value})  # type: ignore[arg-type]
        assert "--guide" in caught.value.cure
    for nothing in (None, 0):
        assert us.generate(dp_kps(), llm="none", records=3, guide_candidates=nothing).records
    with pytest.raises(ConfigError, match="'guide' cannot be changed now"):
        us.generate(made, llm="none", records=3, guide=False)  # type: ignore[call-arg]


@pytest.mark.parametrize("times", [None, 1, 5])
def test_that_many_texts_are_asked_for_and_those_that_are_wanted_are_kept(
    tmp_path: Path, varied_chat: FakeChat, times: int | None
) -> None:
    values = guided(tmp_path, llm="fake", guide_candidates=times)
    foretold = us.plan(
        us.DPKPS(vocabulary=values["vocabulary"], vocabulary_is_public=True, top_terms=10, length=3),
        us.Budget(20, "1e-6"),
        **{"label": "department", "labels": LABELS, "llm": "fake", "records_per_label": 4, "guide": True},
        guide_candidates=times,
    )
    result = run(values)
    assert by_label(result) == {0: 4, 1: 4}
    assert result.missing == 0
    assert len(varied_chat.asked) == 8 * (times or 1)
    (calls,) = (entry.value for entry in foretold.calls.entries if entry.name == "calls")
    assert calls == len(varied_chat.asked)
    assert len({record.text for record in result.records}) == 8


def test_what_is_kept_is_of_its_label_more_often_than_without_a_guide(made: Release, varied_chat: FakeChat) -> None:
    """The model writes of anything, whatever it is asked for."""

    def right(**options: Any) -> int:
        """Terms of the own label less those of the other."""
        records = us.generate(made, llm="fake", records=40, **options).records
        told = [sum(term in record.text for term in TERMS[:8]) for record in records]
        return sum(2 * (2 * each - 5) * (1 - 2 * record.label) for each, record in zip(told, records, strict=True))

    assert right(guide_candidates=3) > right(guide_candidates=0) + 40


def test_texts_not_to_be_had_are_made_up_for_by_others_or_reported(tmp_path: Path, use_chat: UseChat) -> None:
    def sometimes(request: ChatRequest) -> Completion:
        return varied(request) if int(request.key("x")[:8], 16) % 2 else Completion("", "stop", 9, 9)

    use_chat(FakeChat(sometimes))
    result = run(guided(tmp_path, llm="fake", guide_candidates=8))
    assert by_label(result) == {0: 4, 1: 4}
    assert result.missing == 0

    use_chat(FakeChat(lambda request: varied(request) if not use_up.pop() else Completion("", "stop", 9, 9)))
    use_up = [True] * 100 + [False] * 3
    (tmp_path / "few").mkdir()
    result = run(guided(tmp_path / "few", llm="fake", guide_candidates=2))
    assert (len(result.records), result.missing) == (3, 5)


# -- other methods ----------------------------------------------------------------------------------------------------


def test_a_private_evolution_is_chosen_among(tmp_path: Path, varied_chat: FakeChat) -> None:
    result = run(evolving(tmp_path, guide=True, records_per_label=3))
    assert [charge.name for charge in result.statement.charges] == ["votes-1", "votes-2", "guide"]
    assert by_label(result) == {0: 3, 1: 3}
    again = us.load_release(tmp_path / "out" / "release" / "aug-pe.release")
    assert again.arrays["guide"].shape == SIZE


def holding(folder: Path, **changes: Any) -> dict[str, Any]:
    """A release that holds its texts itself, and a guide."""
    own = {
        **{"method": "private-prediction", "epsilon": "30", "batches": 2, "batch_size": 5, "tokens_per_batch": 12},
        **{"max_tokens": 5, "private_text_tokens": 12, "unfinished": "keep", "records_per_label": None, "guide": True},
        **dict.fromkeys((*OF_KPS, "llm")),
    }
    return settings(folder, **{**own, **changes})


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("understudy.models.catalog.load_causal", lambda *_, **__: ScriptModel(echo(3)))


@pytest.fixture
def held(tmp_path: Path, scripted: None) -> Release:
    return release(holding(tmp_path))


@pytest.mark.usefixtures("scripted")
def test_a_release_that_is_continued_keeps_its_guide(tmp_path: Path) -> None:
    first = release(holding(tmp_path, texts_per_batch=1))
    more = running.release(run_config(holding(tmp_path, texts_per_batch=3)), resume=True).release
    assert len(more.strings["texts"]) > len(first.strings["texts"])
    assert np.array_equal(more.arrays["guide"], first.arrays["guide"])
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_of_texts_that_a_release_holds_those_are_chosen_that_are_wanted(held: Release) -> None:
    there = np.bincount(held.arrays["label"], minlength=2).tolist()
    assert min(there) >= 2
    assert by_label(us.generate(held)) == {0: there[0], 1: there[1]}
    assert by_label(us.generate(held, records_per_label=1)) == {0: 1, 1: 1}
    assert by_label(us.generate(held, records_per_label=min(there), guide_candidates=1000)) == dict.fromkeys(
        (0, 1), min(there)
    )
    with pytest.raises(ReleaseError, match="You asked for more texts than the Release contains"):
        us.generate(held, records_per_label=max(there) + 1)


# -- what is done with a run afterwards -------------------------------------------------------------------------------


def test_a_run_with_a_guide_is_shown_evaluated_and_reported(tmp_path: Path, understudy: Command) -> None:
    run(guided(tmp_path, epsilon="3"))
    shown = understudy("show", str(tmp_path / "out" / "release" / "dp-kps.release"), "--json")
    assert json.loads(shown.out)["parameters"]["guide"] is True
    folder, ledger = tmp_path / "out", str(tmp_path / "ledger.sqlite")
    made = us.evaluate(tmp_path / "notes.csv", folder, metrics="utility", classifiers="tf-idf", ledger=ledger)
    assert isinstance(made, us.Evaluation)
    (paths,) = us.report(folder)
    assert "guide" in paths.shareable.read_text("utf-8")


# -- before the charge ------------------------------------------------------------------------------------------------


def test_what_cannot_be_planned_is_refused_before_the_charge(tmp_path: Path, varied_chat: FakeChat) -> None:
    with pytest.raises(ConfigError, match="needs a delta"):
        run(guided(tmp_path, delta="0", noise="laplace"))
    with pytest.raises(ConfigError, match="releases a guide by itself"):
        run(evolving(tmp_path, guide=True, method="guided-evolution"))
    assert runs_charged(tmp_path / "ledger.sqlite") == 0


# -- a run that goes down ---------------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork")  # beside the threads of JAX: the child dies before it needs them
@pytest.mark.parametrize(("method", "moment"), [("dp-kps", "before"), ("aug-pe", "after")])
def test_a_run_killed_at_its_guide_is_resumed_and_charged_once(
    tmp_path: Path, varied_chat: FakeChat, monkeypatch: pytest.MonkeyPatch, moment: str, method: str
) -> None:
    values = guided(tmp_path) if method == "dp-kps" else evolving(tmp_path, guide=True)
    pay, sums = Receipt.pay, GuideSums.of_batch

    def killing(receipt: Receipt, name: str) -> Any:
        if name == "guide":
            os.kill(os.getpid(), signal.SIGKILL)
        return pay(receipt, name)

    def dying(query: GuideSums, batch: Any) -> Any:
        sums(query, batch)
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        if moment == "before":
            monkeypatch.setattr(Receipt, "pay", killing)
        else:
            monkeypatch.setattr(GuideSums, "of_batch", dying)
        try:
            run(values)
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert not list((tmp_path / "out" / "release").glob("*.release"))
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    result = run(values)
    assert len(result.records) == 8
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    assert us.load_release(tmp_path / "out" / "release" / f"{method}.release").arrays["guide"].shape == SIZE
    (tmp_path / "out" / "release" / f"{method}.release").unlink()
    monkeypatch.setattr(GuideSums, "of_batch", lambda *_: pytest.fail("the guide was measured again"))
    assert run(values).release.digest == result.release.digest


def test_the_share_that_matches_is_that_of_the_labels_with_texts(tmp_path: Path) -> None:
    write_csv(tmp_path / "notes.csv", rows(800))
    (tmp_path / "terms.txt").write_text("\n".join((*TERMS, "seen", "today", "number")), "utf-8")
    shares = []
    for labels in (LABELS, (*LABELS, "a", "b", "c", "d", "e")):
        said: list[str] = []
        changes = {"top_terms": None, "output": str(tmp_path / str(len(labels))), **SEEDED}
        config = run_config(guided(tmp_path, epsilon="3", labels=",".join(labels), **changes))
        running.run(config, listener=Listener(said.append))
        (line,) = (line for line in said if "match their label" in line)
        shares.append(int(line.partition("(")[2].partition("%")[0]))
    assert abs(shares[0] - shares[1]) < 10


def test_many_candidates_say_how_far_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choosing, "_AT_ONCE", 2)
    said: list[tuple[int, int]] = []
    chooser = choosing.GuidedChooser(
        Guide(np.ones(SIZE), 0.0), WordEmbedder(), progress=lambda _what, done, total: said.append((done, total))
    )
    texts = ["heart", "skin", "pulse", "rash", "heart"]
    vectors = chooser._vectors(texts)
    assert said == [(0, 4), (2, 4), (4, 4)]
    assert np.array_equal(vectors, WordEmbedder().embed(texts))
    assert np.array_equal(chooser._vectors(texts[:2]), vectors[:2])
    assert len(said) == 3, "few are embedded in no time"
