"""Made-up runs: a shareable folder as `understudy run` leaves it, and what was measured beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from understudy.audit.result import Attack, Guesses, GuessRule, RunAudit
from understudy.base.files import private_folder
from understudy.evaluate.metrics.overview import Histogram, Overview, Point, Profile, Topic
from understudy.evaluate.metrics.results import Evaluation, ReleasedMetrics
from understudy.evaluate.metrics.value import Interval, Metric, MetricValue
from understudy.evaluate.synthetic import SyntheticFile
from understudy.privacy.accountant import gaussian_split
from understudy.privacy.events import GaussianEvent, PureEvent
from understudy.privacy.guarantee import Budget, SecretBudget
from understudy.privacy.mechanisms import Declared
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.unit import Unit
from understudy.release import PublicSchema, Release
from understudy.release.statement import Sealed, Statement
from understudy.run.outputs import OutputFolder
from understudy.run.table import SyntheticTable
from understudy.text.records import SyntheticRecord

LABELS = ("cardiology", "neurology", "skin")
# Stands everywhere in the private half of a made-up run, and nowhere else.
PLANTED = "zyxomma-private-string"

ACCURACY = Metric(
    "utility", "accuracy", "Accuracy on real texts", "Share that is right, in [0, 1].", "Paper 1", "higher"
)
FRECHET = Metric("fidelity", "frechet", "Fréchet distance", "Distance of two normals; 0 if equal.", "Paper 2", "lower")
COPIED = Metric("leakage", "copied", "Longest copied span", "Words in the longest shared run.", "Paper 3", "same")
LABEL_SHARE = Metric("fidelity", "label_share", "Label share", "Share with this label, in [0, 1].", "Paper 4", "same")


def made_statement(
    epsilon: float = 6, *, method: str = "dp-kps", private: bool = True, secret: bool = False
) -> Statement:
    """A statement of two Gaussian releases, for a record or for a secret."""
    budget: Budget | SecretBudget = SecretBudget("0.01", "0.2") if secret else Budget(epsilon, "1e-6")
    noise = [3.0, 3.0] if isinstance(budget, SecretBudget) else gaussian_split(budget, [1, 4])
    unit = Unit("secret", 3, recognised_by="detectors email") if secret else Unit()
    charges = tuple(
        Charge(name, Declared(GaussianEvent(each)), f"noisy {name} counts")
        for name, each in zip(("vocabulary", "density"), noise, strict=True)
    )
    made = Statement.of(
        Plan(method, unit, budget, charges),
        public_inputs={"vocabulary": {"source": "terms.txt", "sha256": "ab" * 32}},
        labels_declared=True,
        dataset="clinic",
        notes=("A note of the method.",),
    )
    return replace(made, sealed=Sealed("system" if private else "none", "0" * 32, "1" * 32, 1))


def made_texts(count: int = 30) -> list[tuple[str, int]]:
    """Texts and labels by number."""
    words = ("heart chest murmur rhythm", "headache tremor sleep seizure", "rash itch eczema cream")
    generator = np.random.default_rng(5)
    return [
        (f"The patient has {' and '.join(generator.choice(words[place % 3].split(), 3))}.", place % 3)
        for place in range(count)
    ]


def make_run(
    root: Path,
    texts: Sequence[tuple[str, int]] | None = None,
    *,
    output_format: str = "parquet",
    statement: Statement | None = None,
    labels: tuple[str, ...] = LABELS,
) -> OutputFolder:
    """A run's folder without a private half. ``texts`` None: 30 of them; empty: a release alone."""
    folder, statement = OutputFolder(root), statement or made_statement()
    folder.make()
    schema = PublicSchema("note", "department", labels)
    release = Release(
        statement.method,
        {"length": 3, "seed": 0},
        schema,
        statement,
        {"counts": np.zeros(2), "real": np.ones(2), "density": np.zeros((len(labels), 2))},
        terms=("heart", "skin"),
    )
    folder.write_release(release)
    texts = made_texts() if texts is None else texts
    if texts:
        provenance = {"phrases": ["chest pain", "murmur"], "model": "builtin:tiny", "release": root.name}
        records = [SyntheticRecord(text, label, provenance) for text, label in texts]
        folder.write_records(records, schema)
        if output_format != "parquet":
            folder.synthetic_file().unlink()
            SyntheticTable.of(records, schema).write(folder.synthetic_file(output_format))
    return folder


def made_values(accuracy: float = 0.8) -> tuple[MetricValue, ...]:
    """Some of each family."""
    utility = [
        MetricValue(
            ACCURACY,
            accuracy + gain + more,
            of,
            Interval(accuracy + gain + more - 0.02, accuracy + gain + more + 0.03, "t over 5 seeds"),
            {"classifier": classifier},
            sample_size=size,
        )
        for of, gain, size in (
            ("synthetic", 0, 30),
            ("baseline", -0.1, 30),
            ("real", 0.05, 30),
            ("real (all)", 0.1, 400),
        )
        for classifier, more in (("tf-idf", 0.0), ("embedding", 0.01))
    ]
    beside = [
        MetricValue(metric, value, of, settings=settings, note=note)
        for metric, settings in ((FRECHET, {}), (COPIED, {"quantile": 0.99}))
        for of, value, note in (("synthetic", 4.25, ""), ("holdout", None, f"Too few texts: {PLANTED}."))
    ]
    return (*utility, *beside)


def made_overview(points: int = 60, *, text: str = "") -> Overview:
    """Real and synthetic texts; the real ones hold ``PLANTED``."""
    generator = np.random.default_rng(3)
    edges = tuple(float(edge) for edge in range(0, 40, 10))
    profiles = {
        "real": Profile(400, Histogram(edges, (100, 200, 100)), {"cardiology": 200, "neurology": 120, "skin": 80}),
        "synthetic": Profile(30, Histogram(edges, (10, 20, 0)), {"cardiology": 10, "neurology": 10, "skin": 10}),
    }
    topics = (
        Topic((PLANTED, "heart"), {"real": 0.6, "synthetic": 0.5}),
        Topic(("rash",), {"real": 0.4, "synthetic": 0.5}),
    )
    places = generator.uniform(size=(points, 2))
    return Overview(
        profiles,
        topics,
        tuple(
            Point(
                float(x),
                float(y),
                "real" if number % 2 else "synthetic",
                LABELS[number % 3],
                f"{text}{PLANTED} {number}",
            )
            for number, (x, y) in enumerate(places)
        ),
    )


def measure(folder: OutputFolder, *, accuracy: float = 0.8, overview: Overview | None = None) -> None:
    """The private half: an evaluation and an audit."""
    private_folder(folder.private)
    settings = {"seeds": 5, "embedder": PLANTED}
    values, looks = made_values(accuracy), overview or made_overview()
    Evaluation(values, looks, settings, digest_of(folder)).save(folder.evaluation_file)
    made_audit().save(folder.audit_file)
    (folder.private / "bad_rows.jsonl").write_text(PLANTED, "utf-8")


def digest_of(folder: OutputFolder) -> str | None:
    """Which table was measured, as an evaluation says it."""
    table = SyntheticFile.within(folder.shareable)
    return None if table is None else table.sha256()


def made_audit(bound: float = 0.21, **changes: Any) -> RunAudit:
    interval = Interval(0.45, 0.55, "bootstrap")
    guesses = (Guesses(GuessRule("nearly all", 400, 400), 10, bound),)
    made = RunAudit(
        method="dp-kps",
        unit="one record",
        epsilon=6.0,
        delta=1e-6,
        private=True,
        canaries=1000,
        planted=493,
        synthetic_texts=30,
        confidence=0.95,
        attacks=(Attack(f"n-gram {PLANTED}", 0.5, interval, 0.012, interval, guesses),),
        largest_bound=5.1,
        canaries_needed=2300,
        seconds=1.0,
        settings={},
    )
    return replace(made, **changes)


def _seal_of(folder: OutputFolder, *, private: bool) -> Sealed:
    """That of a run of this folder."""
    run_id = hashlib.md5(str(folder.root).encode(), usedforsecurity=False).hexdigest()
    return Sealed("system" if private else "none", run_id, "1" * 32 if private else "", int(private))


def charge_metrics(folder: OutputFolder, accuracy: float = 0.75, *, private: bool = True) -> None:
    """``release/metrics.json``: an accuracy and the labels' shares, released with a charge."""
    values = (
        MetricValue(ACCURACY, accuracy, settings={"classifier": "tf-idf"}, note="Noisy."),
        *(
            MetricValue(LABEL_SHARE, share, "real", settings={"label": label})
            for label, share in zip(LABELS, (0.5, 0.3, 0.2), strict=True)
        ),
    )
    ReleasedMetrics(
        values,
        settings={},
        table_sha256=digest_of(folder),
        sealed=_seal_of(folder, private=private),
        dataset="clinic",
        trusted=(),
        unit=Unit(),
        protects="one record",
        budget=Budget("0.5", 0),
        charges=(Charge("metrics", Declared(PureEvent(0.5)), "noisy counts of labels"),),
    ).save(folder.metrics_file)
