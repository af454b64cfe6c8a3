"""Replaying a run on neighbours of its table: every method of ours is the same, and planted violations are found."""

from __future__ import annotations

import logging
import sys
import types
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from secrets import token_hex
from typing import Any, ClassVar

import numpy as np
import pytest
from clinic import LABELS, TERMS, FakeChat, flags, write_csv
from evolution_fixtures import WordEmbedder, varied
from numpy.typing import NDArray
from parts_method import install, parts
from run_fixtures import Command, little_work_of_seq_pate, shared_workers, simple_fit  # noqa: F401
from sample_releases import TUNED
from script_model import ScriptModel, echo
from secret_fixtures import PUBLIC_COLUMNS, public_rows
from test_methods import Counting, WordCount
from test_nothing_fails_after_the_charge import COMMON, EPSILON, ITERATIVE, METHODS, OWNER, SECRETS
from test_two_worlds import COLUMNS, FIELDS, TALKS, answer, corpus

from understudy.audit import replay
from understudy.audit.canaries import on_the_copy
from understudy.audit.replay import ReplayAudit, audit_replay
from understudy.base.errors import ConfigError, PrivacyError, UnderstudyWarning
from understudy.corpus.bounding import BoundedBatch, BoundedCorpus
from understudy.methods.additions.columns import release as columns_release
from understudy.methods.base import Needs, Released, ReleaseTools
from understudy.methods.registry import GROUP
from understudy.methods.shared.queries import discovered_terms
from understudy.models.causal import CausalModel
from understudy.privacy.mechanisms import COUNT_GRID, NoisySum
from understudy.privacy.plan import Plan
from understudy.privacy.tokens import BatchTokens
from understudy.run.job import Job
from understudy.run.pipeline import run
from understudy.run.session import Listener, Witness
from understudy.run.settings import run_config
from understudy.text.records import Seed

GUIDE = {"guide": True}
SKIPS = {"max_bad_rows": 1}
NO_LABEL = {"label": None, "labels": None, "records_per_label": None, "records": 4}
TOPICS = {**NO_LABEL, "topics": 3, "guide": False}
CASES: dict[str, dict[str, Any]] = {
    **{method: {"method": method} for method in METHODS},
    "dp-kps, laplace, of owners": {"method": "dp-kps", "noise": "laplace", "delta": "0", **OWNER},
    "dp-kps, bad rows": {"method": "dp-kps", **SKIPS},
    "dp-kps, discovered terms": {"method": "dp-kps", "discover_terms": 0.3},
    "dp-kps, guide": {"method": "dp-kps", **GUIDE, **OWNER},
    "dp-kps, columns": {"method": "dp-kps", "columns": COLUMNS, **SKIPS},
    "dp-kps, columns, of owners": {"method": "dp-kps", "columns": COLUMNS, **OWNER},
    "dp-kps, a label made of columns": {"method": "dp-kps", "columns": COLUMNS, "label": "ward*night", "labels": None},
    "dp-kps, topics": {"method": "dp-kps", **TOPICS},
    "dp-kps, topics, columns, of owners": {"method": "dp-kps", **TOPICS, "columns": COLUMNS, **OWNER},
    "dp-kps, topics of a sample": {"method": "dp-kps", **TOPICS, "expected_records": 1_000_000},
    "dp-kps, dialogues": {"method": "dp-kps", **TALKS, "llm": "talk"},
    "dp-kps, several texts": {"method": "dp-kps", **FIELDS, "llm": "talk"},
    "dp-kps, records": {"method": "dp-kps", "text": None, "record_columns": "title,note,beds", "llm": "talk"},
    "dp-kde, iterative, of owners": {"method": "dp-kde", **ITERATIVE, "length": 3, "terms_per_record": 3, **OWNER},
    "aug-pe, of owners": {"method": "aug-pe", **OWNER, "selection": "proportional"},
    "aug-pe, keywords and sizes": {
        **{"method": "aug-pe", "label_sizes": "noisy", "private_keywords": True, "top_terms": 6},
        **{"vocabulary_is_public": True},
    },
    "aug-pe, secrets": {"method": "aug-pe", **SECRETS, "epsilon": None, "delta": None},
    "guided-evolution, columns": {"method": "guided-evolution", "columns": COLUMNS},
    "private-prediction, of owners": {"method": "private-prediction", **OWNER},
    "private-prediction, sparse vector": {
        **{"method": "private-prediction", "sparse_vector": True, "threshold": 1, "batch_size": 50, "epsilon": "100"}
    },
    "private-prediction, guide": {"method": "private-prediction", **GUIDE, "epsilon": "300"},
    "few-shot, votes, of owners": {"method": "few-shot", "noise": "votes", **OWNER},
    "few-shot, guide": {"method": "few-shot", **GUIDE},
    "dp-finetune, sizes, of owners": {"method": "dp-finetune", "label_sizes": "noisy", **OWNER},
    "dp-finetune, guide": {"method": "dp-finetune", **GUIDE},
    "seq-pate, sizes, of owners": {"method": "seq-pate", "label_sizes": "noisy", **OWNER},
    "seq-pate, votes": {"method": "seq-pate", "answers": "votes", "noise": "laplace"},
    "dp-kps, engine": {"method": "dp-kps", "engine": "processes", "workers": 1},
}

LONG = ("dp-finetune", "seq-pate", "dp-kps, topics", "dp-kps, columns")


def share(case: str) -> slice:
    """Which neighbours a case tries: all, or every second or third where the cases of a kind together try all."""
    for kind in (each for each in LONG if case.startswith(each)):
        cases = [other for other in CASES if other.startswith(kind)]
        return slice(cases.index(case), None, len(cases))
    return slice(0, None, 1)


def table(folder: Path, count: int = 24) -> None:
    """Notes with typed columns, dialogues, owners and e-mail addresses; none has a bad row."""
    rows = corpus(0, count)
    for place, row in enumerate(rows):
        row["note"] += f" Write to pat{place % 15}@clinic.example."
        row |= {"beds": place % 4 + 1, "fee": place * 3.5, "clinician": f"dr-{place % 9}"}
    write_csv(folder / "notes.csv", rows, [*rows[0]])


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, llama: Path) -> Callable[..., dict[str, Any]]:
    """The settings of a case, with models that answer at once."""
    little_work_of_seq_pate(monkeypatch)
    monkeypatch.setattr(columns_release, "fit", simple_fit)
    monkeypatch.setattr("understudy.methods.additions.columns.rows._AHEAD", 8)
    monkeypatch.setattr("understudy.models.catalog.load_embedder", lambda spec: WordEmbedder())
    monkeypatch.setattr(
        "understudy.models.catalog.load_chat", lambda spec, **options: FakeChat(answer if spec == "talk" else varied)
    )
    monkeypatch.setattr(replay, "job_of", partial(Job, generates=True))

    def load_causal(*_: Any, **__: Any) -> Any:
        tuned = any(
            "job" in (there := sys._getframe(depth).f_locals) and there["job"].method.name in TUNED
            for depth in range(1, 4)
        )
        return CausalModel(llama, name="tiny", dtype="float32") if tuned else ScriptModel(echo(3))

    monkeypatch.setattr("understudy.models.catalog.load_causal", load_causal)
    (tmp_path / "terms.txt").write_text("\n".join(TERMS), "utf-8")
    write_csv(tmp_path / "public.csv", public_rows(), PUBLIC_COLUMNS)
    table(tmp_path)

    def made(**changes: Any) -> dict[str, Any]:
        method = changes.get("method", "dp-kps")
        files = {"sec-pe": {"public_corpus": str(tmp_path / "public.csv")}}
        if method in ("dp-kps", "dp-kde", "aug-pe") and "vocabulary" not in changes:
            files[method] = {"vocabulary": str(tmp_path / "terms.txt")}
        own = {
            "data": str(tmp_path / "notes.csv"),
            "output": str(tmp_path / "out"),
            "labels": ",".join(LABELS),
            **COMMON,
        }
        values = {**own, **METHODS.get(method, EPSILON), **files.get(method, {}), **changes}
        return {name: value for name, value in values.items() if value is not None}

    return made


def replayed(values: dict[str, Any], most: int | None = None) -> ReplayAudit:
    return audit_replay(run_config(values), most=most, listener=Listener(print))


# Neighbours that show what a broken twin does.
FEW = 3


@pytest.mark.usefixtures("shared_workers")
@pytest.mark.parametrize("case", CASES)
def test_every_method_of_ours_is_the_same_on_neighbours(
    case: str, settings: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    every, mine = replay.neighbours_of, share(case)
    monkeypatch.setattr(replay, "neighbours_of", lambda *given, **more: every(*given, **more)[mine])
    found = replayed(settings(**CASES[case]))
    print(f"REPLAYED {case}: {found.verdict}, {found.measurements} values, {len(found.neighbours)} neighbours")
    assert found.verdict == "same", [found.unsteady, *(each for each in found.neighbours if each.findings)]
    assert found.measurements
    assert not found.unchecked
    assert len(found.neighbours) >= 12 // mine.step


class Planted(Counting):
    """A third party's method that does one thing too much."""

    name: ClassVar[str] = "planted"
    does: ClassVar[str] = ""
    needs: ClassVar[Needs] = Needs(candidates=True)

    def release(self, corpus: BoundedCorpus, plan: Plan, tools: ReleaseTools) -> Released:
        texts = [text for batch in corpus.batches() for text in batch.texts]
        count, does = len(texts), self.does
        query = (
            Every(self.word, tools.labels.size) if does == "sensitivity" else WordCount(self.word, tools.labels.size)
        )
        if does == "fails" and any(len(text) > 2000 for text in texts):
            raise ValueError("too long")
        if does == "reads twice" and any(not text.isascii() for text in texts):
            tools.open("word-count")
        counts = tools.measure("word-count", query, corpus)
        asked = 2 + (does == "request" and any(len(text) > 2000 for text in texts))
        assert tools.writer is not None
        list(tools.writer.write([Seed((self.word,), 0)] * asked))
        {
            "say": lambda: tools.say(f"{count} records"),
            "random": lambda: tools.say(token_hex(8)),
            "progress": lambda: tools.progress("records", count, count),
            "print": lambda: print(count),
            "warn": lambda: warnings.warn(f"{count} records", UnderstudyWarning, stacklevel=1),
            "log": lambda: logging.getLogger("understudy.planted").warning("%d records", count),
            "keep": lambda: tools.keep("mean", lambda: {"mean": np.array([count])}),
        }.get(does, lambda: None)()
        more = {"pad": np.zeros(count)} if does == "size" else {}
        terms = [self.word, *(["often"] if does == "decision" and count % 2 else [])]
        return Released({"counts": counts.value, **more}, terms, notes=(f"{count}",) if does == "note" else ())


class Every(WordCount):
    """Counts every occurrence, and states the sensitivity of one."""

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        counts = np.zeros(self.shape, dtype=np.int64)
        np.add.at(counts, batch.labels, np.array([text.count(self.word) for text in batch.texts]) * COUNT_GRID)
        return counts


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch, settings: Callable[..., dict[str, Any]]) -> Callable[[str], ReplayAudit]:
    """Replays the third party's method that does this."""
    module = types.ModuleType("planted_package")
    module.Planted = Planted  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "planted_package", module)
    points = EntryPoints([EntryPoint("planted", "planted_package:Planted", GROUP)])
    monkeypatch.setattr("understudy.methods.registry.entry_points", lambda group: points.select(group=group))

    def made(does: str) -> ReplayAudit:
        monkeypatch.setattr(Planted, "does", does)
        return replayed(settings(method="planted", llm="fake"), most=5)

    return made


VIOLATIONS = {
    "decision": "file",
    "request": "request",
    "say": "message",
    "size": "file",
    "sensitivity": "sensitivity",
    "note": "file",
    "progress": "progress",
    "print": "standard output",
    "warn": "warning",
    "log": "log",
    "keep": "kept",
    "fails": "outcome",
    "reads twice": "measurement",
}


@pytest.mark.parametrize("does", VIOLATIONS)
def test_a_planted_violation_is_found(does: str, planted: Callable[[str], ReplayAudit]) -> None:
    found = planted(does)
    assert found.verdict == "VIOLATION"
    kinds = {finding.kind for each in found.neighbours for finding in each.findings}
    assert VIOLATIONS[does] in kinds


def test_the_same_method_without_a_violation_is_the_same(planted: Callable[[str], ReplayAudit]) -> None:
    assert planted("").verdict == "same"


WITH_NOISE, CHOOSE = NoisySum.with_noise, BatchTokens.choose
TWINS: dict[str, tuple[Any, str, Any]] = {
    "dp-kps": (NoisySum, "with_noise", lambda self, sums, source: WITH_NOISE(self, 4 * sums, source)),
    "private-prediction": (BatchTokens, "choose", lambda self, sums: CHOOSE(self, 4 * sums)),
    "dp-kps, discovered terms": (discovered_terms, "weight_of", lambda _names: 2**21),
}


@pytest.mark.parametrize("case", TWINS)
def test_a_broken_twin_of_a_mechanism_of_ours_is_found(
    case: str, settings: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*TWINS[case])
    found = replayed(settings(**CASES[case]), most=FEW)
    assert {"sensitivity"} == {finding.kind for each in found.neighbours for finding in each.findings}


def test_nothing_is_charged_and_nothing_is_left_but_the_result(
    settings: Callable[..., dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERSTUDY_LEDGER", str(tmp_path / "none.sqlite"))
    replayed(settings(), most=1)
    assert not (tmp_path / "none.sqlite").exists()
    assert [path.name for path in (tmp_path / "out").rglob("*") if path.is_file()] == ["replay.json"]


def test_the_run_of_an_audit_is_not_signed(settings: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    signed = run_config(settings(sign="key", responsible="Ann"))
    assert (on_the_copy(signed, tmp_path).sign, on_the_copy(signed, tmp_path).responsible) == (None, "")


def test_a_run_with_a_promise_has_no_witness(settings: Callable[..., dict[str, Any]], tmp_path: Path) -> None:
    with pytest.raises(PrivacyError, match="has a witness"):
        run(run_config(settings()), witness=Witness())
    assert not (tmp_path / "out").exists()


def test_a_run_that_is_not_repeatable_is_told_from_a_violation(planted: Callable[[str], ReplayAudit]) -> None:
    found = planted("random")
    assert found.verdict == "NOT REPEATABLE"
    assert {finding.kind for finding in found.unsteady} == {"message"}


def test_a_language_model_elsewhere_is_refused(tmp_path: Path) -> None:
    table(tmp_path)
    values = {"data": str(tmp_path / "notes.csv"), **COMMON, **EPSILON, "labels": ",".join(LABELS), "llm": "openai:any"}
    with pytest.raises(ConfigError, match="nothing of it may leave"):
        replayed(values)


def test_charges_of_unknown_mechanisms_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch.setattr)
    table(tmp_path)
    found = replayed(parts(tmp_path), most=2)
    assert (found.verdict, found.unchecked) == ("same", ("tokens",))


def test_labels_read_from_the_data_are_public(settings: Callable[..., dict[str, Any]]) -> None:
    found = replayed(settings(labels=None, labels_from_data=True, **SKIPS), most=2)
    assert found.verdict == "same"


@pytest.mark.parametrize(("does", "code"), [("", 0), ("say", 9), ("random", 9)])
def test_the_command_says_what_it_found(
    does: str,
    code: int,
    planted: Callable[[str], ReplayAudit],
    settings: Callable[..., dict[str, Any]],
    understudy: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Planted, "does", does)
    values = settings(method="planted", llm="fake")
    said = understudy("audit", "replay", *flags(values), "--neighbours", "2", code=code)
    assert ("same" in said.out) == (does == "")
    assert ("message: number" in said.out) == (does == "say")
    assert ("Two runs on the same table differ" in said.err) == (does == "random")
