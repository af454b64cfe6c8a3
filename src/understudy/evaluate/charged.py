"""Metrics on private records that may be shared: plan, charge, measure, store, use, as for any release."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, LedgerError, ResumeError
from understudy.corpus import Corpus
from understudy.corpus.bounding import BoundedBatch, BoundedCorpus
from understudy.corpus.schema import Schema
from understudy.corpus.verified import VerifiedCorpus
from understudy.evaluate.metrics.fidelity.texts import LABEL_SHARE
from understudy.evaluate.metrics.intervals import quantile_ends
from understudy.evaluate.metrics.overview import bin_titles
from understudy.evaluate.metrics.results import ReleasedMetrics
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import ACCURACY, kind_named
from understudy.evaluate.metrics.value import REAL, SYNTHETIC, Interval, Metric, MetricValue, Setting, metric_named
from understudy.evaluate.tables import Comparison, unit_vectors
from understudy.ledger.store import FILE, RunStore
from understudy.models.embedder_checks import require_same_vectors, trusted_with_texts
from understudy.models.types import Embedder
from understudy.privacy.exact import EPSILONS
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import Engine, Query
from understudy.privacy.mechanisms import NoisySum, Sensitivity
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.sealed import SYSTEM
from understudy.privacy.unit import Unit
from understudy.release.statement import Sealed
from understudy.run.door import ledger_of, open_ledger, pay
from understudy.run.outputs import OutputFolder
from understudy.run.session import Lasting, Listener, Session
from understudy.run.settings import LedgerParameters
from understudy.run.working import embedding_on, statement_of
from understudy.schema.labels import LabelSet, canonical

if TYPE_CHECKING:
    from understudy.ledger import Ledger

LENGTH_EDGES = (0, 5, 10, 15, 20, 30, 40, 60, 80, 120, 160, 240, 320, 640)
"""Words; public. The last bin is open."""

NAME = _STORE = "metrics"
LARGEST_GRID = 2.0**28
"""Counts of 2^35 owners still fit into 64-bit integers."""

RECORDS = metric_named("records")
LENGTH_SHARE = metric_named("length_share")
_RESAMPLES = 2000
_MOST_RECORDS = 2**53  # limit for a total that is all noise, which may exceed any integer that is sampled

Right = Callable[[BoundedBatch], NDArray[np.bool_]]
"""Returns which records of a batch a classifier labels correctly, ``Bool[n]``, each judged from that record alone."""


@dataclass(frozen=True, repr=False)
class MetricCounts(Query[BoundedBatch]):
    """The counts behind the charged metrics, one block after another: labels, lengths, and for every classifier the
    records of each label that it labels correctly.

    Guarantee:
        Unit: one record, or one owner, whose records are averaged: each weighs 1/(number of the owner's records used).
        Sensitivity: a record adds at most 1 to each block, in one cell; so L1 at most the number of blocks and L2 at
        most its root, for a record and (the triangle inequality) for an average of an owner's records. Exactly so:
        weights are integers, in steps of 1/lcm(1..k).
        Conditions: a classifier is trained on released texts only, and judges each record from that record alone.

    Args:
        labels: size of the label set, 1 without labels.
        classifiers: by name, functions for which records are labelled correctly.
        unit: the privacy unit.

    Raises:
        ConfigError: if an owner may have too many records for their averages to be counted exactly.
    """

    labels: int
    classifiers: Mapping[str, Right]
    unit: Unit

    def __post_init__(self) -> None:
        if self.grid > LARGEST_GRID:
            raise ConfigError(
                f"Averages over up to {self.unit.max_records} records of an owner cannot be counted exactly.",
                "Use at most 22 records of an owner (--max-records-per-owner).",
            )

    @property
    def blocks(self) -> int:
        return 2 + len(self.classifiers)

    @property
    def shape(self) -> tuple[int]:
        return (self.labels * (1 + len(self.classifiers)) + len(LENGTH_EDGES),)

    @property
    def grid(self) -> float:
        return float(math.lcm(*range(1, self.unit.max_records + 1)))

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity.of_counts(self.blocks, grid=self.grid)

    def of_batch(self, batch: BoundedBatch) -> NDArray[np.int64]:
        """Return the counts of one batch, in steps of 1/``grid``."""
        counts = np.zeros(self.shape, dtype=np.int64)
        weights = int(self.grid) // batch.shares
        np.add.at(counts, batch.labels, weights)
        np.add.at(counts, self.labels + length_bins(batch.said), weights)
        start = self.labels + len(LENGTH_EDGES)
        for right in self.classifiers.values():
            chosen = right(batch)
            np.add.at(counts, start + batch.labels[chosen], weights[chosen])
            start += self.labels
        return counts


def length_bins(texts: Sequence[str]) -> NDArray[np.int64]:
    """Return the bin of each text's number of words (split at white space), ``Int64[len(texts)]``."""
    words = np.array([len(text.split()) for text in texts], dtype=np.int64)
    return np.searchsorted(np.array(LENGTH_EDGES), words, side="right").astype(np.int64) - 1


def charged_values(
    counts: NDArray[np.float64],
    *,
    labels: Sequence[str],
    classifiers: Sequence[str],
    training_texts: int,
    noise_scale: float,
    seed: int,
) -> tuple[MetricValue, ...]:
    """Return the metrics of noisy counts: shares of labels and lengths, and the accuracy of synthetic texts'
    classifiers.

    Shares are ratios of noisy sums, clipped to [0, 1]. Intervals assume known noise and, for shares, that the records
    are a random sample: counts are sampled again around the released ones.

    Args:
        counts: ``Float64`` in the order of :class:`MetricCounts`.
        training_texts: how many synthetic texts the classifiers were trained on.
        noise_scale: b of the Laplace noise on each count.
    """
    cells = max(1, len(labels))
    of_labels, rest = counts[:cells], counts[cells:]
    of_lengths, of_right = rest[: len(LENGTH_EDGES)], rest[len(LENGTH_EDGES) :]
    ratio = _Ratios(noise_scale, seed)
    values = [_value(RECORDS, *ratio.total(of_labels), {})]
    values += [
        _value(LABEL_SHARE, *ratio.share(of_labels, place), {"label": label})
        for place, label in enumerate(labels if len(labels) > 1 else ())
    ]
    values += [
        _value(LENGTH_SHARE, *ratio.share(of_lengths, place), {"words": words})
        for place, words in enumerate(bin_titles(LENGTH_EDGES))
    ]
    for place, name in enumerate(classifiers):
        right = of_right[place * cells : (place + 1) * cells]
        settings = {"classifier": name}
        values.append(_value(ACCURACY, *ratio.between(right, of_labels), settings, of=SYNTHETIC, size=training_texts))
    return tuple(values)


class _Ratios:
    def __init__(self, scale: float, seed: int) -> None:
        self._scale = scale
        self._generator = np.random.default_rng(seed)

    def total(self, counts: NDArray[np.float64]) -> tuple[float, Interval]:
        total = float(counts.sum())
        return max(total, 0.0), _interval(np.maximum(total + self._noise(len(counts)), 0))

    def share(self, counts: NDArray[np.float64], place: int) -> tuple[float, Interval]:
        noise = self._noise(1)
        return self._ratio(float(counts[place]), float(counts.sum()), noise, noise + self._noise(len(counts) - 1))

    def between(self, part: NDArray[np.float64], whole: NDArray[np.float64]) -> tuple[float, Interval]:
        noises = self._noise(len(part)), self._noise(len(whole))
        return self._ratio(float(part.sum()), float(whole.sum()), *noises)

    def _ratio(
        self, hits: float, total: float, noise: NDArray[np.float64], noise_of_total: NDArray[np.float64]
    ) -> tuple[float, Interval]:
        """Return hits over total, in [0, 1], with an interval from simulated repetitions."""
        value = min(max(hits / total, 0.0), 1.0) if total > 0 else 0.0
        again = self._generator.binomial(min(max(0, round(total)), _MOST_RECORDS), value, size=_RESAMPLES) + noise
        whole = total + noise_of_total
        return value, _interval(np.divide(again, whole, out=np.zeros_like(again), where=whole > 0).clip(0, 1))

    def _noise(self, terms: int) -> NDArray[np.float64]:
        """Sample Laplace noise (two exponentials' difference) of a sum of ``terms`` counts, ``Float64[resamples]``."""
        up, down = (self._generator.gamma(terms, self._scale, size=_RESAMPLES) for _ in range(2))
        noise: NDArray[np.float64] = up - down
        return noise


def _interval(values: NDArray[np.float64]) -> Interval:
    return Interval(*quantile_ends(values), "noise of the release and sampling of the records")


def _value(
    metric: Metric,
    value: float,
    interval: Interval,
    settings: Mapping[str, Setting],
    of: str = REAL,
    size: int | None = None,
) -> MetricValue:
    note = "Released with a charge."
    return MetricValue(metric, value, of, interval, settings, note, reads_private=False, sample_size=size)


@dataclass(frozen=True)
class ChargedMetrics:
    """The metrics of a private table that are to be released, and the conditions of the charge.

    Args:
        unit: the privacy unit that the dataset was opened with.
        epsilon: the cost of the metrics (pure, delta 0).
        named: True if the user named the dataset; False if its name is from the statement of the synthetic texts.
        ledger: id of the ledger in which the synthetic texts' run charged this dataset; None if unknown.
    """

    dataset: str
    unit: Unit
    epsilon: str | float
    classifiers: Sequence[str]
    seed: int
    named: bool = False
    ledger: str | None = None

    @classmethod
    def of(cls, job: Comparison) -> ChargedMetrics:
        """Return what to release, and its conditions; ConfigError if the synthetic texts do not allow it."""
        config, made = job.config, job.made
        if made.folder is None or made.statement is None or made.file is None:
            raise ConfigError(
                "Charged metrics need the statement of the synthetic texts, but there is none.",
                "Evaluate the output folder of `understudy run` or `generate`.",
            )
        if not made.statement.private and not (config.insecure_no_noise or config.insecure_noise_seed is not None):
            raise ConfigError(
                "The synthetic texts were made without noise, so nothing learnt from them is private.",
                "Evaluate a run with noise.",
            )
        if not made.statement.labels_declared:
            raise ConfigError(
                "The label set of the synthetic texts was read from the data: it is not protected, but would be shown.",
                "Leave --charge-metrics out, or make a run with a declared label set.",
            )
        assert config.charge_metrics is not None
        EPSILONS.of(charge_metrics=config.charge_metrics)
        try:
            found = made.file.origins()
        except Exception:  # a damaged table fails in many ways
            found = None
        if found is None or made.sha256 is None:
            raise ConfigError(
                f"The synthetic table {made.file.path.name} is damaged, or too large for a report.",
                "Make another with `understudy generate`, free of charge.",
            )
        release = made.release.origin if made.release is not None else next((name for name, _ in found), "")
        # This detects mix-ups only: the folder's sender could forge the provenance of texts.
        if any(not name or (name, promised) != (release, made.statement.private) for name, promised in found):
            raise ConfigError(
                f"Some texts in {made.file.path.name} were not made from the Release that the folder's statement "
                "describes, so a charge would not cover what is learned from them.",
                "Put back the table that the run wrote; `understudy generate FILE.release --output ELSEWHERE` makes "
                "another, free of charge.",
            )
        unit = made.statement.unit  # by default, that of the synthetic table's promise
        if config.owner:
            unit = Unit("owner", config.max_records_per_owner, config.owner)
        if unit.kind == "secret":
            raise ConfigError(
                "Metrics are charged by epsilon, and this dataset's budget protects secrets.",
                "Leave --charge-metrics out: the metrics in private/ are for the data holder.",
            )
        dataset = config.dataset or made.statement.dataset
        return cls(
            dataset,
            unit,
            config.charge_metrics,
            [each for each in config.charged_classifiers if each == "tf-idf" or config.embedder != "none"],
            config.seed,
            named=config.dataset is not None,
            ledger=_ledger_of_run(made.folder) if dataset == made.statement.dataset else None,
        )

    def require(self, schema: Schema) -> None:
        """Raise ConfigError if the real table cannot be measured under these conditions, before a text is read."""
        if schema.owner != self.unit.column:
            raise ConfigError(
                f"The real table has the owner column {schema.owner!r}, but the dataset protects one {self.unit.name}.",
                "Name the owner column that identifies the protected units, the same for the table and for --owner.",
            )
        if not schema.labels_declared:
            raise ConfigError(
                "Labels that are read from the real table are not protected, and would be released by name.",
                "Declare the label set with --labels, or leave --charge-metrics out.",
            )

    def require_booked(self, ledger: Ledger) -> None:
        """Raise LedgerError if the ledger is not that of the synthetic texts' run, or does not have the dataset."""
        if self.ledger not in (None, ledger.id):
            raise LedgerError(
                f"The run in this folder was charged in a different ledger, not in {ledger.location}.",
                "Name that one with --ledger: charges in two ledgers are never added up.",
            )
        if not self.named and ledger.dataset(self.dataset) is None:
            raise LedgerError(
                f"The dataset {self.dataset!r} is not open in the ledger {ledger.location}.",
                "Name the ledger in which the run was charged (--ledger), or open the dataset with "
                "`understudy ledger open`.",
            )

    @property
    def budget(self) -> Budget:
        return Budget(self.epsilon, 0)

    def mechanism(self, query: MetricCounts) -> NoisySum:
        """Return discrete Laplace noise on the counts, calibrated not to exceed epsilon."""
        epsilon = float(self.budget.epsilon)
        multiplier = 1 / epsilon
        while 1 / multiplier > epsilon:
            multiplier = math.nextafter(multiplier, math.inf)
        return NoisySum("laplace", multiplier, query.sensitivity, query.shape)

    def plan(self, mechanism: NoisySum, classifiers: Sequence[str]) -> Plan:
        names = f", right answers of {', '.join(classifiers)}" if classifiers else ""
        why = f"noisy counts of labels, lengths{names}"
        return Plan("evaluate", self.unit, self.budget, (Charge(NAME, mechanism, why),))


def _ledger_of_run(folder: OutputFolder) -> str | None:
    """Return the id of the ledger in which the folder's run was charged, if its private half is here and states it."""
    if not os.path.exists(folder.private / FILE):  # noqa: PTH110 - another user's folder may not be readable
        return None
    with RunStore.open(folder.private, noise=SYSTEM) as store:
        return ledger_of(store)


def release_metrics(
    wanted: ChargedMetrics,
    corpus: Corpus,
    synthetic: Sample,
    job: Comparison,
    *,
    embedder: Embedder | None,
    engine: Engine | None,
    listener: Listener,
) -> ReleasedMetrics:
    """Charge the ledger, count, add noise, and write ``release/metrics.json``. A repeated call uses the stored counts,
    which are in ``private/metrics``.

    Args:
        synthetic: released texts, on which the classifiers are trained.

    Raises:
        ConfigError: if a classifier cannot be trained.
        LedgerError: if the ledger does not have the dataset, or the run was charged in another ledger.
        BudgetExceeded: if less than epsilon is left of the dataset's cap.
    """
    labels = [canonical(label) for label in corpus.labels]
    embedding = embedding_on(engine, embedder)
    names = wanted.classifiers if len(labels) > 1 and synthetic.labels is not None else ()
    classifiers = {name: _right(name, synthetic, labels, embedding, wanted.seed) for name in names}
    query = MetricCounts(LabelSet(tuple(labels)).size, classifiers, wanted.unit)
    mechanism = wanted.mechanism(query)
    if embedder is not None and any(kind_named(name).embeddings for name in classifiers):
        require_same_vectors(engine, embedder, say=listener.say)
    plan, settings, folder = wanted.plan(mechanism, list(classifiers)), job.config.part(LedgerParameters), job.folder
    assert folder is not None, "that of the synthetic table, at least"
    noise = settings.noise_source
    insecure = {"insecure_no_noise": settings.insecure_no_noise, "insecure_noise_seed": settings.insecure_noise_seed}
    lasting = _lasting(wanted, labels, synthetic, embedder) | insecure
    folder.make_private()
    with ExitStack() as stack:
        store = stack.enter_context(RunStore.open(folder.private / _STORE, noise=noise.origin, fresh=job.config.fresh))
        folder.make()
        folder.require_writable()
        session = Session(folder, store, Lasting(lasting), folder, noise)
        if session.begun:
            try:
                session.begin()
            except ResumeError as error:
                raise ResumeError(
                    error.problem.replace("a run with", "released metrics of"),
                    "Use the settings that they were released with, or --fresh to release others, which charges the "
                    "budget a second time.",
                ) from None
        ledger = stack.enter_context(open_ledger(settings, store)) if noise.origin == SYSTEM else None
        if ledger is not None:
            wanted.require_booked(ledger)
            ledger.check(wanted.dataset, plan, run_id=store.run_id)  # before any private read
            corpus = VerifiedCorpus.read(corpus, ledger.fingerprint_key, resumed=session.begun, engine=engine)
        paid = pay(ledger, wanted.dataset, plan, corpus, session, listener, known_only=not wanted.named)
        bounded = BoundedCorpus(corpus, plan.unit, paid.hash_key, form=corpus.schema.form)
        counts = paid.door.measure(NAME, query, bounded).value
        (sealed,) = {Sealed.of(seal) for seal in store.seals()}  # whether the values are private
    values = charged_values(
        counts,
        labels=labels,
        classifiers=list(classifiers),
        training_texts=len(synthetic),
        noise_scale=mechanism.scale / mechanism.sensitivity.grid,
        seed=wanted.seed,
    )
    made = ReleasedMetrics(
        values=values,
        settings={"classifiers": list(classifiers), "seed": wanted.seed},
        table_sha256=job.made.sha256,
        sealed=sealed,
        dataset=wanted.dataset,
        trusted=() if embedder is None else (*trusted_with_texts(embedder), *statement_of(job.config)),
        unit=wanted.unit,
        protects=wanted.unit.describe(),
        budget=wanted.budget,
        charges=plan.charges,
    )
    made.save(folder.metrics_file)
    listener.say(f"Wrote the released metrics to {folder.metrics_file}.")
    return made


def _right(name: str, synthetic: Sample, labels: Sequence[str], embedder: Embedder | None, seed: int) -> Right:
    kind = kind_named(name)
    kind.require(synthetic)
    predicted_labels, predict = kind.train(synthetic, seed=seed)
    places = {label: place for place, label in enumerate(labels)}
    numbers = np.array([places.get(label, -1) for label in predicted_labels], dtype=np.int64)

    def right(batch: BoundedBatch) -> NDArray[np.bool_]:
        if not len(batch.texts):
            return np.zeros(0, dtype=np.bool_)
        vectors = unit_vectors(embedder, batch.said) if embedder is not None and kind.embeddings else None
        predicted = numbers[predict(Sample(tuple(batch.said), None, vectors))]
        return np.asarray(predicted == batch.labels, dtype=np.bool_)

    return right


def _lasting(
    wanted: ChargedMetrics, labels: Sequence[str], synthetic: Sample, embedder: Embedder | None
) -> dict[str, Any]:
    """Return the settings that a repeated call must share with the first; if they differ, it is a different release."""
    table = json.dumps([synthetic.texts, synthetic.labels], ensure_ascii=False)
    reads_vectors = [kind_named(name).embeddings for name in wanted.classifiers]
    return {
        "dataset": wanted.dataset,
        "charge_metrics": str(wanted.budget.epsilon),
        "charged_classifiers": list(wanted.classifiers),
        "labels": list(labels),
        "unit": wanted.unit.to_json(),
        "seed": wanted.seed,
        "embedder": embedder.fingerprint if embedder is not None and any(reads_vectors) else None,
        "synthetic_table": hashlib.sha256(table.encode()).hexdigest(),
    }
