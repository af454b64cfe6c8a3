"""Canaries: their own units and terms, their coins, and the copy of the corpus in which they are."""

from __future__ import annotations

import hashlib
import json
import math
import stat
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from understudy.audit import canaries as audit
from understudy.audit import running
from understudy.audit.result import area_under_curve, guess_rules, judge, true_positive_rate
from understudy.base.errors import ConfigError, CorpusError, ResumeError
from understudy.corpus.secrets import records_per_secret, secret_finder
from understudy.methods.dp_kps.plan import DPKPSParameters, make_plan
from understudy.methods.facts import PublicFacts
from understudy.privacy.guarantee import Budget
from understudy.privacy.unit import Unit
from understudy.run.job import Job
from understudy.run.parts import Table
from understudy.run.settings import RunConfig, run_config
from understudy.schema.labels import Label, LabelSet
from understudy.text.vocabulary.words import TermMatcher

RARE = [f"zq{a}{b}{c}" for a in "abcdef" for b in "abcdefghij" for c in "abcdefghij"]
TEXTS = ["Chest pain since Monday, pulse fast", "A rash on both ankles", "Pulse normal, no chest pain at all"]


def canaries(count: int = 100, per_canary: int = 3) -> audit.Canaries:
    prefixes: list[tuple[str, Label | None]] = [("A rash", "skin"), ("Pulse fast", "heart")]
    return audit.make_canaries(count, terms=RARE, taken=frozenset(), per_canary=per_canary, prefixes=prefixes)


def config(folder: Path, **changes: Any) -> RunConfig:
    folder.mkdir(exist_ok=True)
    (folder / "terms.txt").write_text("\n".join(["chest pain", "rash", "pulse", *RARE]), "utf-8")
    rows = [
        {"note": text, "label": number % 2, "who": number, "age": 40 + number, "names": [f"Ann {number}"]}
        for number, text in enumerate(TEXTS)
    ]
    (folder / "notes.jsonl").write_text("\n".join(json.dumps(row) for row in rows), "utf-8")
    values = {
        "data": str(folder / "notes.jsonl"),
        "text": "note",
        "epsilon": 2,
        "delta": "1e-6",
        "vocabulary": str(folder / "terms.txt"),
        "vocabulary_is_public": True,
        "output": str(folder / "out"),
        **changes,
    }
    return run_config({name: value for name, value in values.items() if value is not None})


def planted(folder: Path, **changes: Any) -> tuple[audit.Canaries, list[dict[str, Any]], RunConfig]:
    """The canaries, the rows of the copy, and the configuration on it."""
    settings = config(folder, **changes)
    job = Job(settings)
    with job.table.open(folder) as corpus:
        finder = job.table.finder(corpus) if job.promise.unit.kind == "secret" else None
        terms = audit.vocabulary_of(job.method).terms
        made = audit.choose_canaries(corpus, terms, finder=finder, count=60, prefix_words=2, suffix_terms=3)
        audit.plant(job.table, job.promise.unit, corpus, made, folder)
    rows = [json.loads(line) for line in (folder / audit.CORPUS).read_text("utf-8").splitlines()]
    return made, rows, audit.on_the_copy(settings, folder)


def test_no_two_canaries_share_a_term_or_a_name() -> None:
    made = canaries()
    terms = Counter(term for canary in made for term in canary.terms)
    assert set(terms.values()) == {1}
    assert len(terms) == 300
    assert len({canary.name for canary in made}) == 100


def test_coins_are_fair_and_fresh() -> None:
    first, second = canaries(200, 1).planted, canaries(200, 1).planted
    assert 60 < first.sum() < 140  # but for a chance of 1e-8
    assert (first != second).any()


def test_a_canary_begins_with_its_prefix_and_ends_in_its_terms() -> None:
    canary = next(iter(canaries()))
    assert canary.text == f"A rash {' '.join(canary.terms)}"
    assert canary.label == "skin"


def test_terms_that_read_as_others_side_by_side_are_not_used() -> None:
    terms = ["pain", "chest", *(f"chest {word}" for word in RARE[:100]), *RARE[:100]]
    made = audit.make_canaries(25, terms=terms, taken=frozenset(), per_canary=3, prefixes=[("", None)])
    matcher = TermMatcher(terms)
    for canary in made:
        assert [terms[index] for index in matcher.find(canary.text)] == list(canary.terms)


def test_too_small_a_vocabulary_is_an_error_that_says_so() -> None:
    with pytest.raises(ConfigError, match=r"too few terms .* 100 canaries of 7 terms"):
        canaries(100, 7)


def test_neither_a_canary_nor_all_of_them_show_themselves() -> None:
    made = canaries(3)
    shown = repr(made) + repr(next(iter(made)))
    assert not any(term in shown for canary in made for term in canary.terms)
    assert "rash" not in shown


def test_canaries_are_kept_for_their_owner_alone_and_read_again(tmp_path: Path) -> None:
    made = canaries()
    made.save(tmp_path / "c.json", settings="abc")
    assert stat.S_IMODE((tmp_path / "c.json").stat().st_mode) == 0o600
    assert audit.load_canaries(tmp_path / "c.json", settings="abc") == made


def test_canaries_of_other_settings_or_damaged_ones_are_refused(tmp_path: Path) -> None:
    canaries().save(tmp_path / "c.json", settings="abc")
    with pytest.raises(ResumeError, match="other settings"):
        audit.load_canaries(tmp_path / "c.json", settings="abd")
    (tmp_path / "c.json").write_text('{"settings": "abc", "canaries": [{"name": "x"}]}')
    with pytest.raises(ResumeError, match="cannot be read"):
        audit.load_canaries(tmp_path / "c.json", settings="abc")


def test_the_copy_holds_all_records_and_those_canaries_whose_coin_says_so(tmp_path: Path) -> None:
    made, rows, _ = planted(tmp_path)
    assert [row["note"] for row in rows] == [*TEXTS, *(canary.text for canary in made if canary.planted)]
    assert stat.S_IMODE((tmp_path / audit.CORPUS).stat().st_mode) == 0o600


def test_prefixes_are_of_records_and_no_suffix_is_in_the_corpus(tmp_path: Path) -> None:
    made, _, _ = planted(tmp_path)
    assert {canary.prefix for canary in made} == {"Chest pain", "A rash", "Pulse normal,"}
    assert not {"chest pain", "rash", "pulse"} & {term for canary in made for term in canary.terms}


def test_labels_keep_their_type_and_come_with_the_prefix(tmp_path: Path) -> None:
    made, rows, _ = planted(tmp_path, label="label", labels="0,1")
    assert {(canary.prefix, canary.label) for canary in made} == {
        ("Chest pain", 0),
        ("A rash", 1),
        ("Pulse normal,", 0),
    }
    assert {type(row["label"]) for row in rows} == {int}


def test_every_canary_is_an_owner_of_its_own(tmp_path: Path) -> None:
    made, rows, settings = planted(tmp_path, owner="who")
    owners = Counter(row["who"] for row in rows)
    assert set(owners.values()) == {1}
    assert set(owners) == {"0", "1", "2", *(canary.name for canary in made if canary.planted)}
    assert settings.unit.kind == "owner"


OF_SECRETS = {
    **dict.fromkeys(("epsilon", "delta", "vocabulary", "vocabulary_is_public")),
    **{"method": "aug-pe", "secret_prior": "1e-3", "secret_posterior": "1e-2", "max_records_per_secret": 3},
}


def test_every_canary_is_a_secret_of_its_own_in_as_many_records_as_may_hold_one(tmp_path: Path) -> None:
    (tmp_path / "secrets.txt").write_text("Ann 7\n", "utf-8")
    own = {"secrets": "names", "secrets_file": str(tmp_path / "secrets.txt")}
    made, rows, settings = planted(tmp_path / "in", **OF_SECRETS, **own)
    with Table.of(settings).open(tmp_path) as corpus:
        finder = secret_finder(corpus, file=settings.secrets_file)
        counts = records_per_secret(corpus, finder)
    assert {counts[finder.key(canary.suffix)] for canary in made if canary.planted} == {3}
    assert not any(finder.key(canary.suffix) in counts for canary in made if not canary.planted)
    assert finder.find("Ann 7 was here") == {finder.key("ann 7")}
    assert len(rows) == 3 + 3 * made.planted.sum()


def test_no_prefix_holds_a_secret_of_another(tmp_path: Path) -> None:
    (tmp_path / "secrets.txt").write_text("chest\n", "utf-8")
    made, *_ = planted(tmp_path / "in", **OF_SECRETS, secrets_file=str(tmp_path / "secrets.txt"))
    assert {canary.prefix for canary in made} == {"", "A rash", "Pulse normal,"}


def test_a_record_of_several_columns_gets_the_canary_in_its_last_one(tmp_path: Path) -> None:
    made, rows, _ = planted(tmp_path, text=None, record_columns="age,note")
    assert rows[0] == {"age": 40, "note": TEXTS[0]}
    assert [row["note"] for row in rows[3:]] == [canary.text for canary in made if canary.planted]


def test_the_run_on_the_copy_has_a_ledger_and_a_folder_of_its_own(tmp_path: Path) -> None:
    *_, settings = planted(tmp_path, ledger="theirs.sqlite", dataset="theirs", fresh=True)
    assert Path(settings.ledger or "").parent == Path(settings.output or "").parent == tmp_path
    assert (settings.dataset, settings.fresh, settings.data) == ("audit", False, (str(tmp_path / audit.CORPUS),))


def test_a_table_without_a_record_is_an_error(tmp_path: Path) -> None:
    settings = config(tmp_path, max_bad_rows=0.05, label="kind", labels="a")
    (tmp_path / "notes.jsonl").write_text('{"note": "x", "kind": "b"}\n', "utf-8")
    with Table.of(settings).open(tmp_path) as corpus, pytest.raises(CorpusError, match="no record"):
        audit.choose_canaries(corpus, RARE, count=5, prefix_words=2, suffix_terms=3)


def test_canaries_among_texts_that_have_parts_are_rows_of_these(tmp_path: Path) -> None:
    talks = [
        {"messages": [{"role": "a", "content": f"Hello {number}"}], "subject": "S", "body": None} for number in range(9)
    ]
    (tmp_path / "talks.jsonl").write_text("\n".join(map(json.dumps, talks)), "utf-8")
    for settings in ({"text": "messages", "roles": "a,b"}, {"text": "subject,body"}):
        made, rows, _ = planted(tmp_path, data=str(tmp_path / "talks.jsonl"), **settings)
        texts = {canary.text for canary in made.all if canary.planted}
        assert len(rows) == len(talks) + len(texts)
        own = rows[len(talks) :]
        said = {row["messages"][0]["content"] if "roles" in settings else row["body"] for row in own}
        assert said == texts
        assert not any("a:" in text or "subject" in text for text in texts)


class Letters:
    """An embedder without a model: a word is a random direction, a text the sum of its words."""

    model_id, fingerprint, local = "letters", "0" * 64, True

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        def word(text: str) -> NDArray[np.float64]:
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8])
            return np.random.default_rng(seed).standard_normal(64)

        vectors = np.array([np.sum([word(each) for each in text.split()], axis=0) for text in texts])
        return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@pytest.fixture(scope="module")
def hundred() -> audit.Canaries:
    return audit.make_canaries(100, terms=RARE, taken=frozenset(), per_canary=4, prefixes=[("The patient said", None)])


def copies(canaries: audit.Canaries) -> list[str]:
    """A run that repeats its data."""
    return [canary.text for canary in canaries if canary.planted] + ["The patient slept well"] * 40


@pytest.mark.parametrize("attack", [running.TERMS, running.NGRAM, running.EMBEDDING])
def test_planted_canaries_of_a_copy_score_above_all_others(hundred: audit.Canaries, attack: str) -> None:
    release: Any = None
    found = running.score(attack, hundred, texts=copies(hundred), release=release, embedder=Letters())
    assert found[hundred.planted].min() > found[~hundred.planted].max()


@pytest.mark.parametrize("attack", [running.TERMS, running.NGRAM, running.EMBEDDING])
def test_texts_without_a_canary_tell_no_coin(hundred: audit.Canaries, attack: str) -> None:
    release: Any = None
    found = running.score(attack, hundred, texts=["The patient slept well"] * 40, release=release, embedder=Letters())
    assert area_under_curve(found, hundred.planted) == pytest.approx(0.5, abs=0.33)  # but for a chance of 1e-8
    again = running.score(attack, hundred, texts=["The patient slept well"] * 40, release=release, embedder=Letters())
    assert np.array_equal(found, again)


def test_no_texts_at_all_tell_nothing(hundred: audit.Canaries) -> None:
    assert not running.term_scores(hundred, []).any()
    assert not running.embedding_scores(hundred, [], Letters()).any()
    assert np.allclose(running.ngram_scores(hundred, []), 0)


def test_terms_are_counted_wherever_they_stand(hundred: audit.Canaries) -> None:
    first, second = hundred.all[:2]
    texts = [f"{first.terms[0]}, {second.terms[1]}, {first.terms[2].upper()}", f"see {first.terms[0]}."]
    assert running.term_scores(hundred, texts).tolist() == [3, 1, *[0] * 98]


def release_of(canaries: audit.Canaries, counts: dict[str, float], scores: dict[str, list[float]]) -> Any:
    """A dp-kps Release of two labels that holds these terms."""
    parameters = DPKPSParameters(top_terms=len(counts), length=1)
    labels = LabelSet(("a", "b"))
    plan = make_plan(parameters, Budget(2, "1e-6"), PublicFacts(Unit(), labels), vocabulary_size=1000)
    return SimpleNamespace(
        method="dp-kps",
        parameters={**parameters.model_dump(), "seed": 0},
        statement=SimpleNamespace(charges=plan.charges),
        schema=SimpleNamespace(labels=labels.names, label_set=labels, topics=False, columns=()),
        terms=list(counts),
        arrays={"counts": np.array(list(counts.values())), "density": np.array(list(scores.values())).T},
    )


def test_the_release_is_read_under_the_canarys_own_label() -> None:
    made = audit.make_canaries(4, terms=RARE, taken=frozenset(), per_canary=1, prefixes=[("", "a"), ("", "b")])
    terms = [canary.terms[0] for canary in made]
    release = release_of(
        made, dict.fromkeys(terms, 1.0), {terms[0]: [9, 0], terms[1]: [9, 0], terms[2]: [0, 9], terms[3]: [0, 9]}
    )
    found = running.score(running.RELEASE, made, texts=[], release=release, embedder=None)
    assert found[0] == found[3] > found[1] == found[2]


def test_terms_that_the_release_lacks_count_as_the_least_that_it_has() -> None:
    made = audit.make_canaries(3, terms=RARE, taken=frozenset(), per_canary=1, prefixes=[("", "a")])
    terms = [canary.terms[0] for canary in made]
    release = release_of(made, {terms[0]: 5.0, terms[1]: 2.0}, {terms[0]: [0, 0], terms[1]: [0, 0]})
    found = running.score(running.RELEASE, made, texts=[], release=release, embedder=None)
    assert found[0] > found[1] == found[2]


def test_attacks_are_those_that_fit_the_method() -> None:
    assert running.attacks_of("dp-kps", ()) == (running.TERMS, running.NGRAM, running.EMBEDDING, running.RELEASE)
    assert running.attacks_of("few-shot", ()) == (running.TERMS, running.NGRAM, running.EMBEDDING)
    assert running.attacks_of("few-shot", [running.NGRAM, running.NGRAM]) == (running.NGRAM,)
    for method, attack in (("few-shot", running.RELEASE), ("dp-kps", "guess")):
        with pytest.raises(ConfigError, match="no attack"):
            running.attacks_of(method, [attack])


WORDS = ("a", "b", "c", "d")


def test_the_chances_of_all_words_add_up_to_one_in_every_context() -> None:
    model = running.NGramModel(["a b c", "a b d", "b b a x y"], words=WORDS)
    asked = [*WORDS, "x", "y"]
    for context in ((), ("a",), ("b",), ("a", "b"), ("b", "b"), ("d", "c")):
        seen = sum(math.exp(model.log_probability([word], after=context)) for word in asked)
        unseen = math.exp(model.log_probability(["never"], after=context))
        assert seen + 5 * unseen == pytest.approx(1)  # 11 words: 4 known, 6 in the texts, and one for all others


def test_witten_bell_by_hand() -> None:
    model = running.NGramModel(["a b", "a c", "a b"], words=WORDS)
    uniform = 1 / (4 + 3 + 1)
    single = (2 + 3 * uniform) / (6 + 3)
    assert model.log_probability(["b"]) == pytest.approx(math.log(single))
    assert model.log_probability(["b"], after=["a"]) == pytest.approx(math.log((2 + 2 * single) / (3 + 2)))
    assert model.log_probability(["b"], after=["d"]) == pytest.approx(math.log(single))


def test_the_area_under_the_curve_is_the_share_of_pairs_in_the_right_order() -> None:
    generator = np.random.default_rng(3)
    scores, planted = np.round(generator.random(60), 1), generator.random(60) < 0.4
    pairs = [(0.5 if x == y else float(x > y)) for x in scores[planted] for y in scores[~planted]]
    assert area_under_curve(scores, planted) == pytest.approx(np.mean(pairs))
    assert area_under_curve(scores, np.ones(60, dtype=bool)) == 0.5


def test_true_positives_are_counted_above_a_threshold_that_one_in_a_hundred_others_is_above() -> None:
    planted = np.arange(400) < 200
    scores = np.where(planted, np.arange(400) % 4, 0.0)
    assert true_positive_rate(scores, planted)[0] == 0.75
    scores[-2:] = 9.0  # 2 of 200 others: within 1 %
    assert true_positive_rate(scores, planted)[0] == 0.75
    scores[-3:] = 9.0
    rate, interval = true_positive_rate(scores, planted)
    assert rate == 0
    assert interval.low == 0
    assert interval.high < 0.03


def test_coins_that_are_all_alike_are_judged_all_the_same() -> None:
    for planted in (np.ones(60, dtype=bool), np.zeros(60, dtype=bool)):
        found = judge(running.TERMS, np.zeros(60), planted, guess_rules(60), delta=0, confidence=0.95)
        assert found.auc == 0.5
        assert 0 <= found.true_positives_interval.low <= found.true_positives_interval.high <= 1


def test_an_attack_that_knows_the_coins_reaches_the_power_of_the_test() -> None:
    planted = np.arange(1000) % 2 == 0
    found = judge(running.TERMS, planted.astype(float), planted, guess_rules(1000), delta=1e-6, confidence=0.95)
    assert (found.auc, found.true_positives) == (1, 1)
    assert [each.correct for each in found.guesses] == [each.rule.guesses for each in found.guesses]
    assert found.epsilon == max(each.epsilon for each in found.guesses) > 5


def test_groups_are_labels_with_enough_canaries_and_those_far_from_the_rest() -> None:
    prefixes = [("The patient said", "a"), ("The nurse wrote", "a"), ("Zebras run", "b")]
    made = audit.make_canaries(120, terms=RARE, taken=frozenset(), per_canary=4, prefixes=prefixes)
    assert running.groups_of(made, None).keys() == {"label a"}, "40 of b are too few"
    more = audit.make_canaries(150, terms=RARE, taken=frozenset(), per_canary=4, prefixes=prefixes)
    found = running.groups_of(more, None)
    assert {name: int(chosen.sum()) for name, chosen in found.items()} == {"label a": 100, "label b": 50}
    many = audit.Canaries(more.all * 4)
    far = running.groups_of(many, Letters())["farthest from the rest"]
    assert far.sum() == 60
    turned = audit.Canaries(tuple(replace(each, planted=not each.planted) for each in many))
    assert (running.groups_of(turned, Letters())["farthest from the rest"] == far).all(), "coins have no say"
    assert "label None" not in running.groups_of(
        audit.Canaries(tuple(replace(each, label=None) for each in more)), None
    )
