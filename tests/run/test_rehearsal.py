"""A method of a third party that is wrong in a way that public facts tell is refused before anything is charged."""

from __future__ import annotations

import re
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from clinic import FakeChat, settings, write_csv
from run_fixtures import run, runs_charged, simple_fit
from secret_fixtures import PUBLIC_COLUMNS, public_rows
from word_embedder import WordEmbedder

import understudy as us
import understudy.method as method_module
from understudy.base.errors import ConfigError, UnderstudyError
from understudy.ledger import Ledger
from understudy.method import (
    BoundedCorpus,
    Budget,
    Method,
    Needs,
    Parameters,
    PublicFacts,
    Released,
    ReleaseTools,
    Vocabulary,
)
from understudy.methods import registry
from understudy.methods.additions.columns import release as columns_release
from understudy.methods.release_schema import Contents, Held
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.mechanisms import NoisySum, Sensitivity
from understudy.privacy.plan import Charge, Plan
from understudy.run import pipeline, releasing
from understudy.run.rehearsal import rehearse
from understudy.run.session import Listener
from understudy.run.settings import run_config
from understudy.text.records import Seed, SyntheticRecord

PAGE = Path(__file__).parents[2] / "docs" / "adding-a-method.md"
EXAMPLE = re.search(r"<!-- file wordbags.py -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
assert EXAMPLE is not None
wordbags: Any = types.ModuleType("wordbags")
sys.modules["wordbags"] = wordbags
exec(compile(EXAMPLE[1], "wordbags.py", "exec"), vars(wordbags))
WordBags: Any = wordbags.WordBags

Install = Callable[..., dict[str, Any]]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """Let a variant of word bags be installed; the settings of a run of it."""

    def installed(base: Any = WordBags, **changes: Any) -> dict[str, Any]:
        undocumented = {**base.model_config, "use_attribute_docstrings": False}  # to look for them takes longest
        wordbags.Variant = type("Variant", (base,), {"__module__": "wordbags", "model_config": undocumented, **changes})
        own = EntryPoint("word-bags", "wordbags:Variant", registry.GROUP)
        points = EntryPoints([*entry_points(group=registry.GROUP), own])
        monkeypatch.setattr(registry, "entry_points", lambda group: points.select(group=group))
        values = settings(tmp_path, method="word-bags", output=str(tmp_path / "out"), llm="none")
        kept = ("method", "data", "text", "label", "labels", "epsilon", "delta", "dataset", "ledger", "output", "llm")
        return {**{name: values[name] for name in kept if name in values}, "records_per_label": 2, "words": 2}

    return installed


def planned(
    sensitivity: Sensitivity | None = None, size: int | None = None, labels: int = 0, names: Sequence[str] = ("words",)
) -> Callable[..., Plan]:
    """A plan that states a number otherwise than the query."""

    def plan(self: Any, budget: Any, facts: Any) -> Plan:
        query = self.query(facts.labels)
        shape = (query.labels + labels, size or query.shape[1])
        charges = [
            Charge(name, NoisySum("gaussian", multiplier, sensitivity or query.sensitivity, shape), "counts")
            for name, multiplier in zip(names, gaussian_split(budget, [1 / len(names)] * len(names)), strict=True)
        ]
        return Plan(self.name, facts.unit, budget, tuple(charges))

    return plan


def released(self: Any, corpus: Any, plan: Any, tools: Any) -> Released:
    return WordBags.release(self, corpus, plan, tools)  # type: ignore[no-any-return]


def counting(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """A release whose query is changed."""

    def query(self: Any, labels: Any) -> Any:
        return change(WordBags.query(self, labels))

    return query


class Halves(wordbags.WordCounts):  # type: ignore[misc]
    """Answers in floating point."""

    def of_batch(self, batch: Any) -> Any:
        return super().of_batch(batch) / 2


def raises(self: Any, corpus: Any, plan: Any, tools: Any) -> Released:
    return tools.nothing  # type: ignore[no-any-return]


def twice(self: Any, corpus: Any, plan: Any, tools: Any) -> Released:
    tools.measure("more words", self.query(tools.labels), corpus)
    return released(self, corpus, plan, tools)


def of_objects(self: Any, corpus: Any, plan: Any, tools: Any) -> Released:
    return replace(released(self, corpus, plan, tools), arrays={"counts": np.array([{}], dtype=object)})


def as_halves(query: Any) -> Any:
    return Halves(query.vocabulary, query.labels, query.most)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a smaller sensitivity": ({"plan": planned(Sensitivity.of_counts(1))}, "not the one that was planned"),
    "another grid": ({"plan": planned(Sensitivity.of_counts(10, grid=1 << 21))}, "not the one that was planned"),
    "one label more": ({"plan": planned(labels=1)}, "not the one that was planned"),
    "more words than there are": ({"plan": planned(size=100_000)}, "not the one that was planned"),
    "sums in floating point": ({"query": counting(as_halves)}, "wrong type or shape"),
    "a charge without a query": ({"plan": planned(names=("words", "spare"))}, "do not match the charges"),
    "a query without a charge": ({"release": twice}, "No charge of the plan pays"),
    "a charge of another name": ({"plan": planned(names=("word",))}, "No charge of the plan pays"),
    "a release that raises": ({"release": raises}, "AttributeError.*'nothing'"),
    "a release that gives nothing": ({"release": lambda *_: None}, "fails on a made-up table"),
    "arrays that cannot be written": ({"release": of_objects}, "fails on a made-up table"),
    "other contents": (
        {"contents": lambda *_: Contents({"words": "gaussian"}, {"sums": Held("float64", ("a", "b"))}, terms=None)},
        "different arrays",
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_method_that_is_wrong_is_refused_before_the_charge(install: Install, wrong: str) -> None:
    changes, match = WRONG[wrong]
    values = install(**changes)
    with pytest.raises(UnderstudyError, match=match):
        run(values)
    assert runs_charged(values["ledger"]) == 0
    with Ledger(values["ledger"]) as ledger:
        assert ledger.datasets() == []


def test_a_method_that_holds_texts_and_does_not_say_how_many_needs_a_number(install: Install) -> None:
    def generate(self: Any, release: Any, counts: Sequence[int], *, tools: Any) -> Any:
        return (SyntheticRecord("a text", label, {}) for label, count in enumerate(counts) for _ in range(count))

    values = install(needs=Needs(holds_texts=True), generate=generate)
    with pytest.raises(ConfigError, match="is given by two options"):
        run({**values, "records_per_label": None})
    assert runs_charged(values["ledger"]) == 0
    assert len(run(values).records) == 4


class Minimal(Method, Parameters):
    """Has a name, ``plan`` and ``release`` alone, of the names that the page says are to be known."""

    name: ClassVar[str] = "word-bags"
    given: ClassVar[Released] = Released({})

    def plan(self, budget: Budget, facts: PublicFacts) -> Plan:
        query = wordbags.WordCounts(Vocabulary(("heart", "skin"), "two words", "0" * 64), facts.labels.size, 1)
        return self.plan_of(budget, facts, {"words": (query, 1, "counts"), "more": (query, 3, "more counts")})

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        query = wordbags.WordCounts(Vocabulary(("heart", "skin"), "two words", "0" * 64), tools.labels.size, 1)
        for name in ("words", "more"):
            tools.measure(name, query, corpus)
        return self.given


LABEL = np.array([0, 1, 1])
GIVEN: dict[str, tuple[bool, Released, Sequence[str]]] = {
    "terms": (False, Released({}, ["skin"]), ["skin"] * 4),
    "terms with weights": (False, Released({"counts": np.array([[1.0], [-3.0]])}, ["skin"]), ["skin"] * 4),
    "texts": (True, Released({"label": LABEL}, strings={"texts": ["a", "b", "c"]}), ["a", "b", "c"]),
    "nothing": (False, Released({}), []),
    "weights of other terms": (False, Released({"counts": np.ones((2, 3))}, ["skin"]), []),
    "weights that are no numbers": (False, Released({"counts": np.full((2, 1), np.nan)}, ["skin"]), []),
    "no texts": (True, Released({}, ["skin"]), []),
    "texts without labels": (True, Released({"label": LABEL[:2]}, strings={"texts": ["a", "b", "c"]}), []),
    "texts of other labels": (True, Released({"label": LABEL + 1}, strings={"texts": ["a", "b", "c"]}), []),
}


@pytest.mark.parametrize("given", GIVEN)
def test_plan_and_release_are_enough(install: Install, given: str) -> None:
    """Texts are made of what the Release holds; where that cannot be, the run is refused before its charge."""
    holds, release, texts = GIVEN[given]
    values = install(Minimal, given=release, needs=Needs(holds_texts=holds))
    values = {name: value for name, value in values.items() if name not in ("words", holds and "records_per_label")}
    if texts:
        assert [record.text for record in run(values).records] == texts
    else:
        with pytest.raises(UnderstudyError, match="The Release lacks"):
            run(values)
    assert runs_charged(values["ledger"]) == bool(texts)


def test_a_plan_of_queries_spends_the_budget_in_the_given_shares(install: Install) -> None:
    install(Minimal)
    for delta, noise, ratio in (("1e-6", "gaussian", 3**0.5), (0, "laplace", 3.0)):
        plan = us.plan(Minimal(), us.Budget(2, delta), labels=["a", "b"], label="part").plan
        words, more = (charge.mechanism for charge in plan.charges)
        assert isinstance(words, NoisySum)
        assert isinstance(more, NoisySum)
        assert (words.noise, words.shape, words.sensitivity) == (noise, (2, 2), Sensitivity.of_counts(1))
        assert words.noise_multiplier / more.noise_multiplier == pytest.approx(ratio)
        assert 1.999 < plan.total <= 2


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(("records", "level"), [(None, None), (100, "noise"), (1_000, "thin"), (100_000, "good")])
def test_a_plan_has_a_verdict(install: Install, own: bool, records: int | None, level: str | None) -> None:
    """Also one that the method makes by itself."""
    install(**({"plan": planned()} if own else {}))
    plan = us.plan(
        wordbags.Variant(), us.Budget(2, "1e-6"), labels=["a", "b"], label="part", expected_records=records
    ).plan
    assert plan.forecast.verdict is not None
    assert plan.forecast.verdict.level == level


def test_the_page_s_example_takes_eight_names() -> None:
    assert EXAMPLE is not None
    lines = re.findall(r"^from (\S+) import (.+)$", EXAMPLE[1], re.MULTILINE)
    named = [(module, name) for module, names in lines for name in names.split(", ")]
    assert len([name for module, name in named if module not in ("dataclasses", "typing")]) <= 8
    assert {name for module, name in named if module.startswith("understudy")} <= set(method_module.__all__)


def test_a_rehearsal_leaves_nothing_behind_and_reads_no_record(install: Install, tmp_path: Path) -> None:
    """What it keeps, says and writes is thrown away; what ``prepare`` gave is not used up."""
    calls: list[tuple[list[str], str, bool]] = []
    said: list[str] = []

    def prepare(self: Any, corpus: Any, plan: Any, preparation: Any) -> Any:
        return iter(["made once"])

    def release(self: Any, corpus: Any, plan: Any, tools: Any) -> Released:
        texts = [text for batch in corpus.batches() for text in batch.texts]
        kept = tools.keep("step", lambda: {"step": np.array(len(calls))})["step"]
        tools.scratch.mkdir(exist_ok=True, parents=True)
        calls.append((texts, next(tools.prepared), (tools.scratch / "file").exists()))
        (tools.scratch / "file").write_text("x", "utf-8")
        assert int(kept) == len(calls) - 1
        tools.say("A line.")
        tools.progress("steps", 1, 1)
        tools.note({"seconds": 1})
        return released(self, corpus, plan, tools)

    values = install(prepare=prepare, release=release)
    listener = Listener(said.append, lambda *what: said.append("progress"))
    pipeline.run(run_config(values), listener=listener)
    assert [(each, there) for _, each, there in calls] == [("made once", False)] * 2
    made_up, private = (set(texts) for texts, _, _ in calls)
    assert not made_up & private
    assert len(made_up) == 1
    assert said.count("A line.") == 1
    assert runs_charged(values["ledger"]) == 1


FORMS: dict[str, dict[str, Any]] = {
    "owners": {"owner": "clinician", "max_records_per_owner": 2},
    "records": {"text": None, "record_columns": "note,clinician"},
    "no labels": {"label": None, "labels": None, "records": 2, "records_per_label": None},
    "parts": {"text": "note,clinician", "llm": "fake"},
    "columns": {"columns": {"clinician": [f"dr-{number}" for number in range(5)]}},
    "topics": {"label": None, "labels": None, "topics": 3, "embedder": "fake"},
    "guide": {"guide": True, "embedder": "fake"},
}


@pytest.mark.parametrize("wrong", [None, "a charge without a query"])
@pytest.mark.parametrize("form", FORMS)
def test_a_release_is_rehearsed_with_each_form_of_a_table(
    install: Install, use_chat: Any, monkeypatch: pytest.MonkeyPatch, form: str, wrong: str | None
) -> None:
    """What the run releases beside the method (topics, columns, a guide) is no charge of the method's."""
    use_chat(FakeChat())
    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec: WordEmbedder())
    monkeypatch.setattr(columns_release, "fit", simple_fit)
    changes, match = WRONG[wrong] if wrong else ({}, "")
    values = {name: value for name, value in {**install(**changes), **FORMS[form]}.items() if value is not None}
    if wrong:
        with pytest.raises(UnderstudyError, match=match):
            run(values)
    else:
        assert run(values).records
    assert runs_charged(values["ledger"]) == (wrong is None)


def test_a_method_that_asks_a_model_is_rehearsed_up_to_there(install: Install, use_chat: Any) -> None:
    """The model is asked nothing before the charge; what is wrong before its first question is found."""
    chat = use_chat(FakeChat())
    order: list[str] = []

    def release(self: Any, corpus: Any, plan: Any, tools: Any) -> Released:
        order.append("asks")
        list(tools.writer.write([Seed(("skin",), 0)]))
        order.append("asked")
        return released(self, corpus, plan, tools)

    needs = Needs(candidates=True)
    values = {**install(needs=needs, release=release), "llm": "fake"}
    run(values)
    assert order == ["asks", "asks", "asked"]
    assert chat.asked
    values = {**install(needs=needs, release=twice), "llm": "fake", "dataset": "others", "fresh": True}
    with pytest.raises(UnderstudyError, match="No charge of the plan pays"):
        run(values)
    assert runs_charged(values["ledger"], "others") == 0


def test_methods_that_embed_are_rehearsed_with_fake_vectors(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = WordEmbedder()
    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec: embedder)
    shapes: list[tuple[int, ...]] = []

    def release(self: Any, corpus: Any, plan: Any, tools: Any) -> Released:
        shapes.append(tools.embedder.embed(["a", "text"]).shape)
        return released(self, corpus, plan, tools)

    run(install(needs=Needs(embedder=True), release=release))
    assert shapes == [(2, 16)] * 2


def test_a_run_that_was_charged_resumes_without_a_rehearsal(install: Install) -> None:
    calls: list[str] = []

    def release(self: Any, corpus: Any, plan: Any, tools: Any) -> Released:
        calls.append(type(tools.door).__name__)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return released(self, corpus, plan, tools)

    values = install(release=release)
    with pytest.raises(KeyboardInterrupt):
        run(values)
    assert len(run(values).records) == 4
    assert calls == ["_Door", "Measurements", "Measurements"]
    assert runs_charged(values["ledger"]) == 1


def test_the_methods_of_this_package_would_pass_a_rehearsal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_chat: Any
) -> None:
    """They are not rehearsed; a rehearsal refuses none that is right."""
    use_chat(FakeChat())
    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec: WordEmbedder())
    write_csv(tmp_path / "public.csv", public_rows(), PUBLIC_COLUMNS)
    passed: list[str] = []

    def passes(method: Method, *rest: Any) -> None:
        rehearse(method, *rest)
        passed.append(method.name)

    monkeypatch.setattr(releasing, "rehearse", passes)
    monkeypatch.setattr(releasing, "is_rehearsed", lambda method: True)
    cases = {
        "dp-kps": {},
        "dp-kps with a guide": {"guide": True},
        "dp-kde": {"length": 3},
        "guided-evolution": {"llm": "fake", "rounds": 1, "population": 2, "variations": 2},
        "aug-pe": {"llm": "fake", "rounds": 1, "population": 2, "variations": 2},
        "sec-pe": {**SEC_PE, "public_corpus": str(tmp_path / "public.csv")},
    }
    for number, (name, changes) in enumerate(cases.items()):
        own = (
            {}
            if name.startswith("dp-k")
            else dict.fromkeys(("vocabulary", "vocabulary_is_public", "top_terms", "length"))
        )
        values = settings(
            tmp_path,
            method=name.partition(" ")[0],
            output=str(tmp_path / str(number)),
            dataset="notes",
            **own,
            **changes,
        )
        values["ledger"] = str(tmp_path / f"ledger-{number}.sqlite")
        Ledger.create(values["ledger"]).close()
        run({each: value for each, value in values.items() if value is not None})
    assert passed == [name.partition(" ")[0] for name in cases]


SEC_PE = {
    **{"epsilon": None, "delta": None, "secret_prior": "1e-3", "secret_posterior": "1e-2", "secret_detectors": "email"},
    **{"max_records_per_secret": 3, "public_corpus_is_public": True, "public_text": "note", "clusters": 3},
    **{"llm": "fake", "rounds": 1, "population": 2, "variations": 2},
}


def test_a_rehearsal_knows_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use_chat: Any) -> None:
    """The finder of the private secrets stays out of it, whatever a method says of what it was given."""
    use_chat(FakeChat())
    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec: WordEmbedder())
    monkeypatch.setattr(releasing, "is_rehearsed", lambda method: True)

    def tells(_method: Method, _corpus: Any, _plan: Plan, tools: Any) -> Released:
        raise ValueError(f"found {sorted(tools.secrets.find('Seen: ann@clinic.example; a made-up secret.'))}")

    monkeypatch.setattr("understudy.methods.sec_pe.method.SecPE.release", tells)
    write_csv(tmp_path / "public.csv", public_rows(), PUBLIC_COLUMNS)
    (tmp_path / "secrets.txt").write_text("ann@clinic.example\n", "utf-8")
    own = dict.fromkeys(("vocabulary", "vocabulary_is_public", "top_terms", "length"))
    changes = {**SEC_PE, "secret_detectors": None, "secrets_file": str(tmp_path / "secrets.txt")}
    values = settings(
        tmp_path, method="sec-pe", public_corpus=str(tmp_path / "public.csv"), dataset="notes", **own, **changes
    )
    with pytest.raises(UnderstudyError, match="made-up secret") as caught:
        run({each: value for each, value in values.items() if value is not None})
    assert "ann" not in str(caught.value)
    assert runs_charged(values["ledger"]) == 0
