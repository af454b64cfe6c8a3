"""Secret-protected evolution from the private table to the synthetic one."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import LABELS, FakeChat, flags, write_csv
from evolution_fixtures import WordEmbedder, evolving
from run_fixtures import Command, runs_charged
from secret_fixtures import MOST, PUBLIC_COLUMNS, protecting, public_rows, secret_rows

import understudy as us
from understudy.base.errors import ConfigError, CorpusError, ReleaseError
from understudy.corpus.secrets import Incidence, incidence, secret_finder
from understudy.methods.sec_pe.clusters import Clusters, noisy_centres
from understudy.methods.sec_pe.generate import CentreVotes
from understudy.privacy.events import MixtureEvent
from understudy.privacy.noise import InsecureNoNoise
from understudy.privacy.secrets.composition import calibrate
from understudy.run import pipeline as running
from understudy.run.settings import run_config

pytestmark = pytest.mark.usefixtures("embedder", "varied_chat")
BUDGET = us.SecretBudget("1e-3", "1e-2")
SECRETS: dict[str, Any] = {"secret_detectors": "email", "max_records_per_secret": MOST}
# Where the noise is to be the same twice, or no ledger is of interest.
SEEDED = {"insecure_noise_seed": 1}


def run(folder: Path, **changes: Any) -> us.Result:
    return running.run(run_config(protecting(folder, **changes)))


def release(folder: Path, **changes: Any) -> us.Release:
    return running.release(run_config(protecting(folder, **changes))).release


def event_of(made: us.Release) -> MixtureEvent:
    (charge, *_) = made.statement.charges
    assert isinstance(charge.event, MixtureEvent)
    return charge.event


# -- the whole of it --------------------------------------------------------------------------------------------------


def test_from_a_table_to_a_synthetic_one(tmp_path: Path, understudy: Command) -> None:
    said = understudy("run", *flags(protecting(tmp_path)), code=0)
    assert "Protecting each secret" in said.err
    assert "all records that contain it, at most 3 of them; the budget is (p=0.001, r=0.01)" in said.err
    assert "3 public clusters for each of 2 labels." in said.err
    assert "Round 2 of 2: 24 candidates, 8 chosen." in said.err
    assert "Wrote 8 synthetic records" in said.err
    assert runs_charged(tmp_path / "ledger.sqlite") == 1
    assert {path.name for path in (tmp_path / "out" / "release").iterdir()} == {
        *("sec-pe.release", "schema.json", "statement.json", "statement.md"),
        *("synthetic.parquet", "synthetic.csv", "provenance.parquet"),
    }
    assert sorted(path.name for path in (tmp_path / "out" / "private").iterdir()) == [
        "diary.jsonl",
        "embeddings",
        "progress.json",
        "run.lock",
        "run.sqlite",
    ]
    said = understudy("show", str(tmp_path / "out" / "release" / "sec-pe.release"))
    assert "(p=0.001, r=0.01)" in said.out
    assert "clusters" in said.out


def public_of(folder: Path) -> dict[str, Any]:
    return {"public_corpus": str(folder / "public.csv"), "public_corpus_is_public": True, "public_text": "note"}


def test_release_here_and_generate_elsewhere_from_python(tmp_path: Path, varied_chat: FakeChat) -> None:
    protecting(tmp_path)
    corpus = us.read_corpus(secret_rows(), text="note", label="department", labels=LABELS)
    method, ledger = us.SecPE(**public_of(tmp_path), clusters=3), str(tmp_path / "l.sqlite")
    made = us.release(corpus, method, BUDGET, dataset="v", ledger=ledger, output=tmp_path / "o", **SECRETS)
    assert varied_chat.asked == [], "the release asks no language model"
    assert runs_charged(ledger, "v") == 1
    assert made.statement.budget == BUDGET
    (tmp_path / "public.csv").unlink()
    there = us.load_release(tmp_path / "o" / "release" / "sec-pe.release")
    quick: dict[str, Any] = {"llm": "fake", "rounds": 2, "population": 4, "variations": 3}
    few = us.generate(there, records_per_label=3, **quick)
    assert few.columns == us.generate(made, records_per_label=3, **quick).columns
    many = us.generate(there, records_per_label=7, **quick)
    assert [record.provenance["source"] for record in many.records if record.label == 0] == (
        ["population"] * 4 + ["variation"] * 3
    )
    assert us.generate(there, records_per_label=3, **quick, seed=1).columns != few.columns
    assert runs_charged(ledger, "v") == 1
    with pytest.raises(ConfigError, match="was fixed when the Release was made"):
        us.generate(there, records_per_label=3, clusters=4, **quick)
    with pytest.raises(us.UnderstudyError, match="none is named"):
        us.generate(there, llm="none", records_per_label=2)


# -- what the Release holds -------------------------------------------------------------------------------------------


def test_the_release_holds_what_was_drawn_and_what_follows_from_it(tmp_path: Path) -> None:
    made = release(tmp_path, public_label="department")
    loaded = us.load_release(tmp_path / "out" / "release" / "sec-pe.release")
    assert loaded.digest == made.digest
    assert {name: (array.shape, str(array.dtype)) for name, array in loaded.arrays.items()} == {
        "sums-1": ((2, 3, 17), "float64"),
        "sizes": ((2, 3), "float64"),
        "centres": ((2, 3, 16), "float32"),
        "public_centres": ((2, 3, 16), "int16"),
        "public_sizes": ((2, 3), "int64"),
    }
    arrays = loaded.arrays
    assert arrays["public_sizes"].sum(axis=1).tolist() == [12, 12]
    assert not np.array_equal(arrays["public_centres"][0], arrays["public_centres"][1])
    sizes, centres = noisy_centres(
        Clusters(arrays["public_centres"], arrays["public_sizes"]),
        arrays["sums-1"],
        clip=1.0,
        size_share=0.8,
        noise=event_of(made).noise_multiplier,
    )
    assert np.array_equal(arrays["sizes"], sizes)
    assert np.array_equal(arrays["centres"], centres.astype(np.float32))
    assert (loaded.terms, dict(loaded.strings)) == ([], {})


def test_the_statement_says_what_is_promised_and_what_was_public(tmp_path: Path) -> None:
    made = release(tmp_path)
    statement = made.statement.to_json()
    assert [charge["name"] for charge in statement["charges"]] == ["clusters"]
    assert (statement["unit"]["kind"], statement["unit"]["max_records"]) == ("secret", MOST)
    assert statement["public_inputs"].keys() == {"embedder", "public corpus"}
    assert statement["public_inputs"]["public corpus"]["source"] == "public.csv"
    assert event_of(made).inclusion == (((1.0, 3),),)
    assert event_of(made).noise_multiplier == pytest.approx(3 / BUDGET.mu, rel=1e-6)
    words = made.statement.to_markdown()
    assert "treats as public which records contain which secret" not in words
    assert "at most 0.01 (the posterior, r)" in words
    assert "is not differential privacy of a record" in words
    noisy = release(tmp_path, max_records_per_secret=1000, output=None, **SEEDED)
    assert noisy.statement.usefulness.startswith("Noise")


def test_without_noise_the_sizes_are_those_of_the_records_that_are_sampled(tmp_path: Path) -> None:
    made = release(tmp_path, insecure_no_noise=True, output=None)
    assert made.arrays["sizes"].sum(axis=1) == pytest.approx([20, 20], abs=1e-4)
    assert np.rint(made.arrays["sizes"]) == pytest.approx(made.arrays["sizes"], abs=1e-5)
    fewer = release(tmp_path, insecure_no_noise=True, inclusion=0.5)
    assert event_of(fewer).inclusion == (((0.5, 3),),)
    assert 0 < np.rint(fewer.arrays["sizes"].sum()) < 40


def test_several_releases_draw_anew_and_their_mean_is_used(tmp_path: Path) -> None:
    made = release(tmp_path, releases=3, inclusion=0.5, insecure_no_noise=True)
    assert [charge.name for charge in made.statement.charges] == ["clusters-1", "clusters-2", "clusters-3"]
    sums = [made.arrays[f"sums-{number}"] for number in (1, 2, 3)]
    assert not np.array_equal(sums[0], sums[1])
    sizes = np.mean(sums, axis=0)[..., 0] / math.sqrt(0.8)
    assert made.arrays["sizes"] == pytest.approx(sizes)
    noise = event_of(made).noise_multiplier
    assert noise == pytest.approx(calibrate(BUDGET, [((0.5, 3),)], releases=3))
    assert made.noise_check["size_noise"] == pytest.approx(noise / math.sqrt(3 * 0.8), abs=1e-3)
    (tmp_path / "charged").mkdir()
    charged = release(tmp_path / "charged", releases=3)
    assert runs_charged(tmp_path / "charged" / "ledger.sqlite") == 1
    assert event_of(charged).noise_multiplier == pytest.approx(3 * math.sqrt(3) / BUDGET.mu, rel=1e-6)


# -- secrets and their cap --------------------------------------------------------------------------------------------

NAMED: dict[str, dict[str, Any]] = {
    "detectors": {"secret_detectors": "email,phone"},
    "a column": {"secret_detectors": None, "secrets": "clinician", "max_records_per_secret": 8},
    "a file": {"secret_detectors": None, "secrets_file": "FILE"},
    "all three": {"secrets": "clinician", "secrets_file": "FILE", "max_records_per_secret": 8},
}


def named(folder: Path, what: str) -> dict[str, Any]:
    (folder / "secrets.txt").write_text("pat1@clinic.example\nNumber 5\n", "utf-8")
    return {name: str(folder / "secrets.txt") if value == "FILE" else value for name, value in NAMED[what].items()}


@pytest.mark.parametrize("what", NAMED)
def test_a_secret_in_more_records_than_declared_stops_the_run_before_any_charge_and_is_not_quoted(
    tmp_path: Path, understudy: Command, what: str
) -> None:
    """And the same folder goes on with a higher cap."""
    values = protecting(tmp_path, **named(tmp_path, what))
    said = understudy("run", *flags({**values, "max_records_per_secret": 2}), code=3)
    assert "A secret is in more records than the declared maximum." in said.err
    told = said.err.replace(str(tmp_path), "")
    assert not any(private in told for private in ("pat", "clinic.example", "dr-", "Number", " 3 ", " 8 "))
    assert runs_charged(tmp_path / "ledger.sqlite") == 0
    assert not (tmp_path / "out").exists()
    made = running.release(run_config(values)).release
    assert event_of(made).inclusion == (((1.0, NAMED[what].get("max_records_per_secret", MOST)),),)
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


# -- public incidence -------------------------------------------------------------------------------------------------


@pytest.fixture
def incidence_file(tmp_path: Path, understudy: Command) -> str:
    values = protecting(tmp_path)
    given = {name: values[name] for name in ("data", "text", "label", "labels", "secret_detectors")}
    understudy("secrets", "incidence", *flags({**given, "output": str(tmp_path / "incidence.parquet")}), code=0)
    return str(tmp_path / "incidence.parquet")


def public(file: str, **changes: Any) -> dict[str, Any]:
    return {"incidence": "public", "incidence_file": file, **changes}


def test_public_incidence_weighs_the_drawn_records(tmp_path: Path, understudy: Command, incidence_file: str) -> None:
    found = Incidence.read(incidence_file)
    assert (found.n_records, found.n_secrets, len(found.records)) == (40, 10, 30)
    understudy("run", *flags(protecting(tmp_path, **public(incidence_file))), code=0)
    made = us.load_release(tmp_path / "out" / "release" / "sec-pe.release")
    third = 0.3334  # rounded up; each address's three records share a weight of 1
    assert event_of(made).inclusion == (((third, 3),),) * 10
    assert event_of(made).noise_multiplier == pytest.approx(calibrate(BUDGET, [((third, 3),)]), rel=1e-9)
    words = made.statement.to_markdown()
    assert "treats as public which records contain which secret" in words
    assert "incidence of secrets: incidence.parquet" in words
    assert runs_charged(tmp_path / "ledger.sqlite") == 1


def test_records_without_secrets_are_always_drawn_and_the_others_by_their_weight(
    tmp_path: Path, incidence_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    coins = np.random.default_rng(0)
    monkeypatch.setattr(InsecureNoNoise, "include", lambda _, rates: coins.random(len(rates)) < rates)
    values = {"clusters": 1, "insecure_no_noise": True, "output": None, **public(incidence_file)}
    counts = [float(release(tmp_path, **values).arrays["sizes"].sum()) for _ in range(5)]
    assert len({round(count) for count in counts}) > 1
    assert all(10 <= round(count) <= 40 for count in counts)
    assert 14 < np.mean(counts) < 26  # 10 + 30 / 3, std 1.2


OTHER_TABLES: dict[str, Callable[[list[dict[str, str]]], list[dict[str, str]]]] = {
    "other secrets": lambda table: [{**table[0], "note": "nothing"}, *table[1:]],
    "another order": lambda table: table[::-1],
    "one record less": lambda table: table[:-1],
}


@pytest.mark.parametrize("what", OTHER_TABLES)
def test_a_table_of_other_incidence_is_refused_uncharged(tmp_path: Path, incidence_file: str, what: str) -> None:
    write_csv(tmp_path / "notes.csv", OTHER_TABLES[what](secret_rows()))
    with pytest.raises(CorpusError, match="does not have the incidence"):
        run(tmp_path, **public(incidence_file))
    assert runs_charged(tmp_path / "ledger.sqlite") == 0


def test_an_incidence_file_that_changes_while_it_is_read_is_refused_before_any_charge(
    tmp_path: Path, incidence_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is planned with one, and the table, which changed with it, agrees with the other."""
    table = write_csv(tmp_path / "other.csv", secret_rows(20))
    corpus = us.read_corpus(table, text="note", label="department", labels=LABELS)
    other = incidence(corpus, secret_finder(corpus, detectors=["email"]))
    whole = us.SecPE.prepare

    def prepare(self: us.SecPE, *arguments: Any) -> Any:
        other.write(incidence_file)
        return whole(self, *arguments)

    monkeypatch.setattr(us.SecPE, "prepare", prepare)
    with pytest.raises(ConfigError, match="incidence file changed"):
        run(tmp_path, **public(incidence_file), data=str(table))
    assert runs_charged(tmp_path / "ledger.sqlite") == 0


def test_records_without_secrets_may_be_the_public_corpus(tmp_path: Path, incidence_file: str) -> None:
    own = {"public_corpus": None, "public_corpus_is_public": None, "records_without_secrets_are_public": True}
    made = release(tmp_path, **public(incidence_file, **own))
    assert made.arrays["public_sizes"].sum(axis=1).tolist() == [10, 10]
    words = made.statement.to_markdown()
    assert "the private table's records without secrets, declared public" in words
    assert "Records that contain no secret are not protected at all" in words
    assert len(us.generate(made, llm="fake", records_per_label=2).records) == 4
    (tmp_path / "few").mkdir()
    with pytest.raises(ConfigError, match="10 records without secrets, fewer than the 11 clusters"):
        release(tmp_path / "few", **public(incidence_file, **own, clusters=11))
    assert runs_charged(tmp_path / "few" / "ledger.sqlite") == 0


def test_stricter_promises_to_some_secrets_raise_noise_and_are_stated(tmp_path: Path, incidence_file: str) -> None:
    file = tmp_path / "stricter.csv"
    file.write_text("number,prior,posterior\n3,1e-3,2e-3\n1,1e-3,2e-3\n7,1e-3,5e-2\n", "utf-8")
    made = release(tmp_path, **public(incidence_file, secret_budgets=str(file)))
    strict = us.SecretBudget("1e-3", "2e-3")
    noise = event_of(made).noise_multiplier
    assert noise == max(calibrate(strict, [secret]) for secret in (((0.3334, 3),), ((1.0, 1),)))
    assert noise > 2 * calibrate(BUDGET, [((0.3334, 3),)])
    words = made.statement.to_markdown()
    also = "also holds for each of these secrets, by their numbers in the incidence file:"
    assert f"(p=0.001, r=0.002) {also} 1, 3." in words
    assert f"(p=0.001, r=0.05) {also} 7." in words
    assert "secret budgets: stricter.csv" in words
    assert us.load_release(tmp_path / "out" / "release" / "sec-pe.release").statement == made.statement


@pytest.mark.parametrize(
    "line", ["10,1e-3,2e-3", "-1,1e-3,2e-3", "1,1e-3,2e-3\n1,1e-3,3e-3", "x,1e-3,2e-3", "1,1e-3,1e-4", "1,,", "1"]
)
def test_senseless_stricter_promises_are_refused_uncharged(tmp_path: Path, incidence_file: str, line: str) -> None:
    (tmp_path / "stricter.csv").write_text(f"number,prior,posterior\n{line}\n", "utf-8")
    with pytest.raises(ConfigError):
        release(tmp_path, **public(incidence_file, secret_budgets=str(tmp_path / "stricter.csv")))
    assert runs_charged(tmp_path / "ledger.sqlite") == 0


# -- before any charge ------------------------------------------------------------------------------------------------

OWN = ("clusters", "public_corpus", "public_corpus_is_public", "public_text", "rounds", "population", "variations")
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "epsilon": (
        {"secret_prior": None, "secret_posterior": None, "secret_detectors": None, "max_records_per_secret": None}
        | {"epsilon": "1", "delta": "1e-6"},
        "promises secret protection, not",
    ),
    "both budgets": ({"epsilon": "1", "delta": "1e-6"}, "Two kinds of budget are given"),
    "no cap": ({"max_records_per_secret": None}, "max_records_per_secret is missing"),
    "no secrets": ({"secret_detectors": None}, "no option says how to find them"),
    "owners too": ({"owner": "clinician"}, "protects owners or secrets"),
    "no public corpus": ({"public_corpus": None}, "clusters of a public corpus"),
    "a private public corpus": ({"public_corpus_is_public": None}, "must not be made from the private data"),
    "a public corpus that is not there": ({"public_corpus": "gone.csv"}, "gone.csv"),
    "a public corpus without that column": ({"public_text": "text"}, "text"),
    "too many clusters": ({"clusters": 25}, "has 24 texts, fewer than the 25 clusters"),
    "too many clusters of a label": (
        {"clusters": 13, "public_label": "department"},
        "has 12 texts of a label, fewer than the 13",
    ),
    "a public label of nothing": ({"public_label": "department", "label": None, "labels": None}, "the private table"),
    "public incidence without a file": ({"incidence": "public"}, "needs an incidence_file"),
    "an incidence file that is not there": (public("gone.parquet"), "not an incidence file, or is damaged"),
    "private incidence with a file": ({"incidence_file": "i.parquet"}, "belongs to public incidence"),
    "private incidence with free records": (
        {"records_without_secrets_are_public": True, "public_corpus": None, "public_corpus_is_public": None},
        "belongs to public incidence",
    ),
    "public incidence with a rate": (public("i.parquet", inclusion=0.5), "belongs to private incidence"),
    "two public corpora": (public("i.parquet", records_without_secrets_are_public=True), "two public corpora"),
    "a label of free records": (
        public("i.parquet", records_without_secrets_are_public=True, public_corpus=None, public_label="department"),
        "there is none",
    ),
    "keywords that are not there": ({"keywords": "gone.txt", "keywords_are_public": True}, "cannot be read"),
    "noise that fits no grid": ({"secret_posterior": "1.0000000001e-3"}, "posterior"),
    "a method that protects none": ({"method": "dp-kps", **dict.fromkeys(OWN)}, "dp-kps guarantees"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_run_is_refused_before_any_charge(tmp_path: Path, what: str, varied_chat: FakeChat) -> None:
    changes, message = REFUSED[what]
    with pytest.raises((ConfigError, CorpusError), match=message):
        release(tmp_path, **changes)
    assert runs_charged(tmp_path / "ledger.sqlite") == 0
    assert varied_chat.asked == []


def test_public_rows_that_cannot_be_used_are_left_out_and_counted_as_missing(tmp_path: Path) -> None:
    table = [*public_rows(6), {"note": "", "department": LABELS[0]}, {"note": "of another", "department": "surgery"}]
    write_csv(tmp_path / "public.csv", table, PUBLIC_COLUMNS)
    made = release(tmp_path, public_label="department")
    assert made.arrays["public_sizes"].tolist() == [[1, 1, 1]] * 2
    corpus = {"public_corpus": str(tmp_path / "public.csv"), "public_label": "department"}
    (tmp_path / "more").mkdir()
    with pytest.raises(ConfigError, match="has 3 texts of a label"):
        release(tmp_path / "more", **corpus, clusters=4)


# -- after the release ------------------------------------------------------------------------------------------------


def test_another_embedder_at_generate_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = release(tmp_path)

    class Other(WordEmbedder):
        model_id, fingerprint = "fake:other", "2" * 64

    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec: Other())
    with pytest.raises(ReleaseError, match="embeddings of fake:words, not of fake:other"):
        us.generate(made, llm="fake", records_per_label=2)


def test_the_text_nearest_to_a_labels_only_centre_comes_out_first(tmp_path: Path, varied_chat: FakeChat) -> None:
    values = {"insecure_no_noise": True, "rounds": 3, "population": 2, "records_per_label": 2, "clusters": 1}
    result = run(tmp_path, public_label="department", **values)
    texts = list({varied_chat._reply(request).text for request in varied_chat.asked})
    centres = result.release.arrays["centres"][:, 0]
    for label, centre in enumerate(centres):
        best = next(record.text for record in result.records if record.label == label)
        nearness = WordEmbedder().embed([best, *texts]) @ centre
        of_label = {record.text for record in result.records if record.label == label}
        assert best in of_label
        assert nearness[0] > np.quantile(nearness[1:], 0.8)


def test_centres_vote_with_their_sizes_for_the_nearest_candidate_of_their_label() -> None:
    east, north = np.eye(2, dtype=np.float32)
    centres = np.stack([[east * 0.3, north], [north * 2, 0 * north], [east, east]])
    votes = CentreVotes(centres, np.array([[5.0, 2.0], [3.0, 9.0], [-4.0, 1.5]]))
    candidates = np.array([east, north, north, north, east])
    assert votes(0, candidates, np.array([0, 0, 1, 2, 2], dtype=np.int32)).tolist() == [5.0, 2.0, 3.0, 0.0, 1.5]
    assert votes(0, candidates[:1], np.array([1], dtype=np.int32)).tolist() == [3.0]
    assert votes(0, candidates[:0], np.zeros(0, dtype=np.int32)).tolist() == []


# -- the baseline -----------------------------------------------------------------------------------------------------


def test_aug_pe_protects_the_same_secrets_with_all_of_their_records_in_every_round(tmp_path: Path) -> None:
    """mu-GDP: the noise on a candidate's votes is m sqrt(T) / mu."""
    secret = {name: value for name, value in protecting(tmp_path).items() if name.startswith(("secret", "max_rec"))}
    made = running.release(
        run_config(evolving(tmp_path, rounds=3, epsilon=None, delta=None, records_per_label=None, **secret))
    ).release
    noise = made.noise_check["vote_noise"]
    assert noise == pytest.approx(MOST * math.sqrt(3) / BUDGET.mu, abs=1e-3)
    assert made.statement.budget == BUDGET
    assert [charge.name for charge in made.statement.charges] == ["votes-1", "votes-2", "votes-3"]
    forecast = us.plan(
        us.SecPE(public_corpus="p.csv", public_corpus_is_public=True, rounds=3),
        BUDGET,
        max_records_per_secret=MOST,
        secret_detectors="email",
    )
    assert forecast.plan.forecast["aug_pe_vote_noise"] == (pytest.approx(noise, abs=1e-3))
