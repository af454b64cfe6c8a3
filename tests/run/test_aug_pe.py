"""Private evolution from the private table to the synthetic one."""

from __future__ import annotations

import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import LABELS, TERMS, FakeChat, flags, prompt_file, rows
from evolution_fixtures import evolving
from numpy.typing import NDArray
from run_fixtures import Command, UseChat, runs_charged

import understudy as us
from understudy.base.errors import ConfigError
from understudy.methods.shared.evolution.parameters import candidates_per_round, evolution_calls, population_sizes
from understudy.methods.shared.votes import VoteHistogram
from understudy.models.types import Completion
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.plan import Receipt
from understudy.run import pipeline as running
from understudy.run.settings import run_config

pytestmark = pytest.mark.usefixtures("embedder", "varied_chat")
# Where the noise is to be the same twice, or no ledger is of interest.
SEEDED = {"insecure_noise_seed": 1}
OWN: dict[str, Any] = {"examples": [{"text": "A slow gait.", "phrases": ["gait"]}]}
PROMPT = "document_type: note\nuser: 'Use: {phrases}'\nevolution: {fill: 'On {keyword}: {text}'}"


def run(folder: Path, **changes: Any) -> us.Result:
    return running.run(run_config(evolving(folder, **changes)))


def numbers_of(release: us.Release, round_number: int) -> list[int]:
    return np.flatnonzero(release.arrays["round"] == round_number).tolist()


# -- the whole of it --------------------------------------------------------------------------------------------------


def test_from_a_table_to_a_synthetic_one(tmp_path: Path, understudy: Command) -> None:
    said = understudy("run", *flags(evolving(tmp_path)), code=0)
    assert "Round 2 of 2: 24 candidates, 8 chosen." in said.err
    assert "Wrote 8 synthetic records" in said.err
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    assert {path.name for path in (tmp_path / "out" / "release").iterdir()} == {
        *("aug-pe.release", "schema.json", "statement.json", "statement.md"),
        *("synthetic.parquet", "synthetic.csv", "provenance.parquet"),
    }
    assert sorted(path.name for path in (tmp_path / "out" / "private").iterdir()) == [
        *("diary.jsonl", "embeddings", "progress.json", "run.lock", "run.sqlite")
    ]
    said = understudy("show", str(tmp_path / "out" / "release" / "aug-pe.release"))
    assert "votes-2" in said.out


@pytest.mark.parametrize(("own", "source"), [({}, "for a document"), (OWN, "for a document, with your examples")])
def test_the_statement_names_examples_of_the_users_own(tmp_path: Path, own: dict[str, Any], source: str) -> None:
    made = run(tmp_path, rounds=1, prompt=prompt_file(tmp_path, examples_per_prompt=1, **own)).release
    assert made.statement.public_inputs["prompts"]["source"] == source


# -- what the Release holds -------------------------------------------------------------------------------------------


def test_the_release_holds_every_population_and_noisy_histogram_with_its_lineage(tmp_path: Path) -> None:
    made = run(tmp_path, rounds=3, population=5, threshold=0.5).release
    release = us.load_release(tmp_path / "out" / "release" / "aug-pe.release")
    assert release.digest == made.digest
    arrays, texts, prompts = release.arrays, release.strings["texts"], release.strings["prompts"]
    populations = [numbers_of(release, number) for number in range(3)]
    assert [len(each) for each in populations] == [30, 30, 30]
    assert len(texts) == len(prompts) == 90
    assert {name: array.shape for name, array in arrays.items()} == {
        **dict.fromkeys(("round", "label", "parent", "votes", "chosen"), (90,)),
        "survivors": (10,),
        "failed": (3, 2),
    }
    chosen = [[number for number in each if arrays["chosen"][number]] for each in populations]
    assert [len(each) for each in chosen] == [10, 10, 10]
    assert sorted(arrays["survivors"].tolist()) == chosen[2]
    for number in populations[0]:
        assert arrays["parent"][number] == -1
        assert prompts[number].startswith("random")
    for at in (1, 2):
        for number in populations[at]:
            parent = int(arrays["parent"][number])
            assert parent in chosen[at - 1]
            assert arrays["label"][parent] == arrays["label"][number]
            if prompts[number] == "kept":
                assert texts[number] == texts[parent]
            else:
                assert prompts[number].startswith("variation")
    assert arrays["votes"].dtype == np.float64
    for at in range(3):  # rank: within a label nothing has more votes than what was chosen, and ties at the threshold
        for label in (0, 1):
            mine = [number for number in populations[at] if arrays["label"][number] == label]
            votes = {number: max(arrays["votes"][number] - 0.5, 0) for number in mine}
            least = min(votes[number] for number in chosen[at] if number in votes)
            assert all(votes[number] <= least for number in mine if not arrays["chosen"][number])


class Exact:
    """Every exact histogram that was made."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.histograms: list[NDArray[np.int64]] = []
        whole = VoteHistogram.of_batch

        def evaluate(query: VoteHistogram, data: Any) -> NDArray[np.int64]:
            self.histograms.append(whole(query, data))
            return self.histograms[-1].copy()

        monkeypatch.setattr(VoteHistogram, "of_batch", evaluate)

    def found_in(self, folder: Path) -> list[str]:
        """The files of ``folder`` that hold one of them, in votes or in steps of the grid, in any usual type."""
        contents = {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for path in folder.rglob("*.release"):
            with zipfile.ZipFile(path) as archive:
                contents |= {name: archive.read(name) for name in archive.namelist()}
        forms = [
            form.tobytes()
            for exact in self.histograms
            for votes in (exact, exact / COUNT_GRID)
            for form in (votes.astype(kind) for kind in (np.int32, np.int64, np.float32, np.float64))
        ]
        return sorted(name for name, data in contents.items() if any(form in data for form in forms))


@pytest.mark.parametrize("noisy", [True, False])
def test_exact_votes_are_stored_nowhere_but_where_there_is_no_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noisy: bool
) -> None:
    exact = Exact(monkeypatch)
    run(tmp_path, insecure_no_noise=not noisy)
    assert [len(histogram) for histogram in exact.histograms] == [24, 24]
    assert all(np.count_nonzero(histogram) > 4 for histogram in exact.histograms)
    found = exact.found_in(tmp_path)
    assert found == [] if noisy else {"insecure.sqlite", "arrays.safetensors"} <= set(found)


def test_private_embeddings_are_private_and_gone_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, modes = VoteHistogram.of_batch, []

    def evaluate(query: VoteHistogram, data: Any) -> NDArray[np.int64]:
        (file,) = (tmp_path / "out" / "private").rglob("embeddings.bin")
        modes.append((stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)))
        return whole(query, data)

    monkeypatch.setattr(VoteHistogram, "of_batch", evaluate)
    run(tmp_path)
    assert modes == [(0o600, 0o700)] * 2
    assert not list((tmp_path / "out").rglob("embeddings.bin"))


# -- texts out of it --------------------------------------------------------------------------------------------------


@pytest.fixture
def release(tmp_path: Path, varied_chat: FakeChat) -> us.Release:
    """With 4 texts per label."""
    made = running.release(run_config(evolving(tmp_path, records_per_label=None, **SEEDED))).release
    varied_chat.asked = []
    return made


def sources(result: us.Result, label: int) -> list[str]:
    return [record.provenance["source"] for record in result.records if record.label == label]


def test_the_population_comes_first_and_then_its_variations(release: us.Release, varied_chat: FakeChat) -> None:
    few = us.generate(release, llm="fake", records_per_label=3)
    assert varied_chat.asked == []
    assert sources(few, 0) == sources(few, 1) == ["population"] * 3
    many = us.generate(release, llm="fake", records_per_label=10)
    assert len(varied_chat.asked) == 12
    assert sources(many, 0) == sources(many, 1) == ["population"] * 4 + ["variation"] * 6
    survivors = set(release.arrays["survivors"].tolist())
    for record in many.records:
        origin = record.provenance["number" if record.provenance["source"] == "population" else "parent"]
        assert origin in survivors
        assert release.arrays["label"][origin] == record.label
    assert [record.text for record in many.records if record.label == 0][:3] == [
        record.text for record in few.records if record.label == 0
    ]
    only = us.generate(release, llm="fake", records_per_label=4, harvest="variations")
    assert sources(only, 0) + sources(only, 1) == ["variation"] * 8
    assert us.generate(release, llm="fake", records_per_label=10).columns == many.columns
    assert us.generate(release, llm="fake", records_per_label=10, seed=1).columns != many.columns


def test_without_a_language_model_there_is_what_exists_and_the_rest_is_named(
    tmp_path: Path, release: us.Release, understudy: Command
) -> None:
    result = us.generate(release, llm="none", records_per_label=6)
    assert (len(result.records), result.missing) == (8, 4)
    assert sources(result, 0) == sources(result, 1) == ["population"] * 4
    file = str(tmp_path / "out" / "release" / "aug-pe.release")
    out = ("--output", str(tmp_path / "more"))
    said = understudy("generate", file, "--llm", "none", "--records-per-label", "6", *out, code=0)
    assert "4 texts could not be generated" in said.err
    said = understudy("generate", file, "--rounds", "3", "--llm", "none", "--records", "6", *out, code=2)
    assert "No such option" in said.err


def test_a_release_with_keywords_is_generated_from_without_their_file(tmp_path: Path, varied_chat: FakeChat) -> None:
    (tmp_path / "keywords.txt").write_text("gait\nposture\n", "utf-8")
    values = evolving(tmp_path, keywords=str(tmp_path / "keywords.txt"), keywords_are_public=True, **SEEDED)
    made = running.release(run_config(values)).release
    assert {prompt.split("|")[1] for prompt in made.strings["prompts"][:24]} == {"keyword:gait", "keyword:posture"}
    (tmp_path / "keywords.txt").unlink()
    (tmp_path / "prompt.yaml").write_text(PROMPT, "utf-8")
    varied_chat.asked = []
    file = tmp_path / "out" / "release" / "aug-pe.release"
    again = us.generate(file, llm="fake", records_per_label=12, prompt=str(tmp_path / "prompt.yaml"))
    assert len(again.records) == 24
    about = {request.messages[-1].content.split(":")[0] for request in varied_chat.asked}
    assert about == {"On gait", "On posture"}


# -- before any charge ------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "no language model": ({"llm": "none"}, "none is named"),
    "label sizes that leave one out": ({"label_sizes": "cardiology=3"}, "do not fit the declared labels"),
    "label sizes below 0": ({"label_sizes": "cardiology=3,dermatology=-1"}, "do not fit the declared labels"),
    "label sizes of nothing": ({"label_sizes": "cardiology=0,dermatology=0"}, "do not fit the declared labels"),
    "label sizes twice": ({"label_sizes": "cardiology=3,cardiology=3,dermatology=1"}, "do not fit the declared"),
    "a vocabulary of one's own": ({"private_keywords": True, "vocabulary": "terms.txt"}, "must not be made from"),
    "a vocabulary that is too small": (
        {"private_keywords": True, "vocabulary": "TERMS", "vocabulary_is_public": True},
        r"larger than the public one \(16 terms\)",
    ),
    "keywords of one's own": ({"keywords": "TERMS"}, "must not come from the private data"),
    "keywords that are not there": ({"keywords": "gone.txt", "keywords_are_public": True}, "cannot be read"),
    "nothing new": ({"variations": 1}, "at least 2"),
    "no population": ({"population": 0}, "greater than or equal to 1"),
    "noise that fits no grid": ({"epsilon": "1e5"}, "out of range"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_run_is_refused_before_any_charge(tmp_path: Path, what: str, varied_chat: FakeChat) -> None:
    changes, message = REFUSED[what]
    terms = {name: str(tmp_path / "terms.txt") for name, value in changes.items() if value == "TERMS"}
    for verb in (running.run, running.release):
        with pytest.raises(ConfigError, match=message):
            verb(run_config(evolving(tmp_path, **{**changes, **terms})))
    assert runs_charged(tmp_path / "ledger.sqlite") == 0
    assert varied_chat.asked == []


# -- options ----------------------------------------------------------------------------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    "more nearest than candidates": {"nearest": 50},
    "proportional": {"selection": "proportional", "threshold": 2, "distance": "l2"},
    "a threshold above all": {"threshold": 1000},
    "rephrasing": {"blank_probability": 0},
    "words": {"min_words": 5, "max_words": 6, "rounds": 1},
    "owners of two records": {"owner": "clinician", "nearest": 2, "max_records_per_owner": 2},
}


@pytest.mark.parametrize("what", OPTIONS)
def test_every_option_runs_to_the_end_and_asks_for_as_many_texts_as_planned(
    tmp_path: Path, what: str, varied_chat: FakeChat
) -> None:
    values = evolving(tmp_path, **{**SEEDED, **OPTIONS[what]})
    result = running.run(run_config(values))
    assert result.columns["department"] == [LABELS[0]] * 4 + [LABELS[1]] * 4
    method = us.AugPE(**run_config(values).method_parameters)
    arrays = result.release.arrays
    more = sum(record.provenance["source"] == "variation" for record in result.records)
    assert np.bincount(arrays["round"]).tolist() == [candidates_per_round(method, 2)] * method.rounds
    assert len(varied_chat.asked) == evolution_calls(method, population_sizes(method, [1.0, 1.0])) + more
    assert arrays["votes"].shape == arrays["label"].shape
    assert not arrays["failed"].any()


def test_options_do_what_they_say(tmp_path: Path, varied_chat: FakeChat) -> None:
    def made(**changes: Any) -> us.Release:
        varied_chat.asked = []
        return running.release(run_config(evolving(tmp_path, output=None, **{**SEEDED, **changes}))).release

    plain = made()
    assert all("|blanks:0.9" in prompt for prompt in made(blank_probability=0.9).strings["prompts"][32:])
    assert all("|words:6" in prompt for prompt in made(min_words=6, max_words=6).strings["prompts"][:24])
    proportional = made(selection="proportional", threshold=2).arrays
    assert proportional["chosen"].sum() == plain.arrays["chosen"].sum()
    assert all(proportional["votes"][:24][proportional["chosen"][:24] > 0] > 2)
    silent = {"insecure_noise_seed": None, "insecure_no_noise": True, "rounds": 1}
    votes = {k: made(nearest=k, **silent).arrays["votes"] for k in (1, 4)}
    assert votes[1].sum() == 40
    assert votes[4].sum() == pytest.approx(40 * 2)
    owners = made(owner="clinician", **silent).arrays["votes"]
    assert np.linalg.norm(owners) <= 5 * (1 + 1e-9)


# -- labels and keywords ----------------------------------------------------------------------------------------------


def chosen_by_label(release: us.Release) -> list[list[int]]:
    arrays = release.arrays
    return [
        [int(arrays["chosen"][(arrays["round"] == number) & (arrays["label"] == label)].sum()) for label in (0, 1)]
        for number in range(2)
    ]


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [("uniform", [4, 4]), ("dermatology = 3, cardiology = 1", [2, 6]), ("cardiology=1,dermatology=0", [7, 1])],
)
def test_declared_label_sizes_share_the_population_out_and_leave_no_label_empty(
    tmp_path: Path, sizes: str, expected: list[int]
) -> None:
    result = run(tmp_path, label_sizes=sizes, **SEEDED)
    assert chosen_by_label(result.release) == [expected] * 2
    assert result.columns["department"] == [LABELS[0]] * 4 + [LABELS[1]] * 4
    assert [charge["name"] for charge in result.statement.to_json()["charges"]] == ["votes-1", "votes-2"]


def test_noisy_label_sizes_are_charged_drawn_once_and_never_leave_a_label_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = {"insecure_no_noise": True, "output": None, "label_sizes": "noisy"}
    assert chosen_by_label(run(tmp_path, **silent).release) == [[4, 4]] * 2
    lonely = [row for row in rows() if row["department"] == LABELS[1]]
    (tmp_path / "other").mkdir()
    monkeypatch.setattr("clinic.rows", lambda: lonely)
    assert chosen_by_label(run(tmp_path / "other", **silent).release) == [[1, 7]] * 2
    draws: list[str] = []
    pay = Receipt.pay

    def counting(receipt: Receipt, name: str) -> Any:
        draws.append(name)
        return pay(receipt, name)

    monkeypatch.setattr(Receipt, "pay", counting)
    made = run(tmp_path, label_sizes="noisy").release
    assert draws == ["labels", "votes-1", "votes-2"]
    assert all(sum(sizes) == 8 and min(sizes) >= 1 for sizes in chosen_by_label(made))
    noise = {charge["name"]: charge for charge in made.statement.to_json()["charges"]}
    assert noise.keys() == {"labels", "votes-1", "votes-2"}


def test_private_keywords_are_charged_and_new_texts_asked_about_them(tmp_path: Path, varied_chat: FakeChat) -> None:
    own = {"vocabulary": str(tmp_path / "terms.txt"), "vocabulary_is_public": True, "top_terms": 5}
    made = run(tmp_path, private_keywords=True, label_sizes="noisy", rounds=3, **own).release
    assert len(made.terms) == 5
    assert set(made.terms) <= set(TERMS)
    assert made.arrays["counts"].shape == (5,)
    asked = {prompt.split("|")[1].removeprefix("keyword:") for prompt in made.strings["prompts"][:24]}
    assert asked <= set(made.terms)
    assert all(any(term in request.messages[-1].content for term in made.terms) for request in varied_chat.asked[:24])
    names = [charge.name for charge in made.statement.charges]
    assert names == ["labels", "vocabulary", "votes-1", "votes-2", "votes-3"]
    assert made.statement.public_inputs.keys() >= {"embedder", "vocabulary"}
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    (tmp_path / "prompt.yaml").write_text(PROMPT, "utf-8")
    varied_chat.asked = []
    again = us.generate(made, llm="fake", records_per_label=6, prompt=str(tmp_path / "prompt.yaml"))
    assert len(again.records) == 12
    assert {request.messages[-1].content[3:].split(":")[0] for request in varied_chat.asked} <= set(made.terms)


def test_a_secrets_histogram_has_the_noise_of_all_its_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scales: dict[str, tuple[float, float]] = {}
    pay = Receipt.pay

    def paying(receipt: Receipt, name: str) -> Any:
        mechanism = pay(receipt, name)
        scales[name] = (mechanism.noise_multiplier, mechanism.noise_std)
        return mechanism

    monkeypatch.setattr(Receipt, "pay", paying)
    (tmp_path / "secrets.txt").write_text("Number 3\nNumber 7", "utf-8")
    secret = {"epsilon": None, "delta": None, "secret_prior": "1e-4", "secret_posterior": "1e-3"}
    named = {"secrets_file": str(tmp_path / "secrets.txt"), "max_records_per_secret": 5}
    result = run(tmp_path, label_sizes="noisy", **secret, **named)
    assert scales.keys() == {"labels", "votes-1", "votes-2"}
    assert all(std == pytest.approx(5 * multiplier) for multiplier, std in scales.values())
    assert "secret" in result.statement.to_markdown()


def test_a_chat_model_that_fails_now_and_then_is_left_out_and_counted(
    tmp_path: Path, use_chat: UseChat, varied_chat: FakeChat
) -> None:
    number = iter(range(1000))
    reply = varied_chat._reply

    def sometimes(request: Any) -> Completion:
        return Completion("", "failed", error="busy") if next(number) % 4 == 1 else reply(request)

    use_chat(FakeChat(sometimes))
    told: list[str] = []
    made = running.release(run_config(evolving(tmp_path)), listener=running.Listener(told.append)).release
    assert made.arrays["failed"].sum(axis=1).tolist() == [6, 4]
    assert np.bincount(made.arrays["round"]).tolist() == [18, 20]
    assert "Round 1 of 2: 18 candidates, 6 left out (the language model gave no text), 8 chosen." in told
