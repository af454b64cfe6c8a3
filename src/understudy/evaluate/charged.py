"""Metrics on private records that may be shared: plan, charge, sample, store, use, as for any release."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, LedgerError
from understudy.base.labels import LabelSet
from understudy.corpus import Corpus, canonical
from understudy.corpus.bounding import BoundedBatch, BoundedCorpus
from understudy.corpus.verified import VerifiedCorpus, contents
from understudy.evaluate.counting import NAME, MetricCounts, Right, charged_values
from understudy.evaluate.metrics.results import ReleasedMetrics
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import kind_named
from understudy.models.trials import require_embeds_all, require_text_invariance
from understudy.models.types import Embedder
from understudy.privacy.guarantee import Budget
from understudy.privacy.measurement import Engine
from understudy.privacy.mechanisms import NoisySum
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.sealed import SYSTEM, Seal
from understudy.privacy.unit import Unit
from understudy.release.statement import Sealed
from understudy.run.measuring import open_ledger, pay
from understudy.run.outputs import OutputFolder
from understudy.run.session import Listener, Session
from understudy.run.settings import LedgerParameters
from understudy.run.working import embedding_on, require_same_vectors

if TYPE_CHECKING:
    from understudy.ledger import Ledger

_STORE = "metrics"


@dataclass(frozen=True)
class ChargedMetrics:
    """What is released of a private table, and on which terms.

    Args:
        dataset: its name in the ledger.
        unit: the privacy unit that the dataset was opened with.
        epsilon: what the metrics cost (pure, delta 0).
        classifiers: those whose accuracy is released.
        seed: of their training.
        named: whether the user named the dataset, or the synthetic texts' statement did.
        ledger: id of the ledger in which the synthetic texts' run charged this dataset; None if that is not known.
    """

    dataset: str
    unit: Unit
    epsilon: str | float
    classifiers: Sequence[str]
    seed: int
    named: bool = False
    ledger: str | None = None

    @property
    def budget(self) -> Budget:
        return Budget(self.epsilon, 0)

    def mechanism(self, query: MetricCounts) -> NoisySum:
        """Discrete Laplace noise on the counts, calibrated not to pass epsilon."""
        epsilon = float(self.budget.epsilon)
        multiplier = 1 / epsilon
        while 1 / multiplier > epsilon:
            multiplier = math.nextafter(multiplier, math.inf)
        return NoisySum("laplace", multiplier, query.sensitivity, query.shape)

    def plan(self, mechanism: NoisySum, classifiers: Sequence[str]) -> Plan:
        names = f", right answers of {', '.join(classifiers)}" if classifiers else ""
        why = f"noisy counts of labels, lengths{names}"
        return Plan(
            "evaluate",
            self.unit,
            self.budget,
            (Charge(NAME, mechanism, why),),
        )


def release_metrics(
    wanted: ChargedMetrics,
    corpus: Corpus,
    synthetic: Sample,
    *,
    table_sha256: str,
    folder: OutputFolder,
    settings: LedgerParameters,
    embedder: Embedder | None,
    engine: Engine | None,
    trusted: Sequence[str],
    fresh: bool,
    listener: Listener,
) -> ReleasedMetrics:
    """Charge, count, add noise, and write ``release/metrics.json``. The same call again resamples nothing anew.

    Args:
        corpus: the private table, with its declared label set.
        synthetic: released texts, on which the classifiers are trained.
        table_sha256: of the table that they are from, as :func:`understudy.evaluate.synthetic.table_sha256` has it.
        folder: whose ``private/metrics`` keeps the noisy counts.
        engine: whose workers embed; None: this process.
        trusted: who could read the real texts, one sentence each.

    Raises:
        ConfigError: if secrets are protected, labels are not declared, or a classifier cannot be trained.
        LedgerError: if the ledger does not have the dataset, or not what the run has spent of it.
        BudgetExceeded: if the dataset has not so much left.
    """
    from understudy.ledger.store import RunStore

    if wanted.unit.kind == "secret":
        raise ConfigError(
            "Metrics are charged by epsilon, and this dataset's budget protects secrets.",
            "Leave --charge-metrics out: the metrics in private/ are for the data's holder.",
        )
    if not corpus.schema.labels_declared:
        raise ConfigError(
            "Labels that are read from the real table are not protected, and would be released by name.",
            "Declare the label set with --labels, or leave --charge-metrics out.",
        )
    labels = [canonical(label) for label in corpus.labels]
    if embedder is not None and any(kind_named(name).embeddings for name in wanted.classifiers):
        require_embeds_all(embedder)
    classifiers = _classifiers(wanted, synthetic, labels, embedding_on(engine, embedder))
    query = MetricCounts(LabelSet(tuple(labels)).size, classifiers, wanted.unit)
    mechanism = wanted.mechanism(query)
    if embedder is not None and any(kind_named(name).embeddings for name in classifiers):
        listener.say("Checking that texts do not change the embeddings of others (under a minute).")
        require_text_invariance(embedder)
        if engine is not None:
            require_same_vectors(engine, embedder)
    plan, noise = wanted.plan(mechanism, list(classifiers)), settings.noise_source
    insecure = {"insecure_no_noise": settings.insecure_no_noise, "insecure_noise_seed": settings.insecure_noise_seed}
    lasting = _lasting(wanted, labels, synthetic, embedder) | insecure
    folder.make_private()
    with ExitStack() as stack:
        store = stack.enter_context(RunStore.open(folder.private / _STORE, noise=noise.origin, fresh=fresh))
        folder.make()
        folder.require_writable()
        session = Session(folder, store, lasting, folder, noise)
        if session.begun:
            session.begin()  # with the same settings, or it is an error
        counts = _counts(query, plan, wanted, corpus, session, settings, listener)
        seals = store.seals()
    values = charged_values(
        counts,
        labels=labels,
        classifiers=list(classifiers),
        training_texts=len(synthetic),
        noise_scale=mechanism.scale / mechanism.sensitivity.grid,
        seed=wanted.seed,
    )
    made = _released(
        plan,
        seals=seals,
        dataset=wanted.dataset,
        values=values,
        settings={"classifiers": list(classifiers), "seed": wanted.seed},
        trusted=trusted,
        table_sha256=table_sha256,
    )
    made.save(folder.metrics_file)
    listener.say(f"Wrote what was released to {folder.metrics_file}.")
    return made


def _released(plan: Plan, *, seals: Sequence[Seal], trusted: Sequence[str], **measured: Any) -> ReleasedMetrics:
    """What is handed out: the values, and what they promise and cost. Whether they are private their seals say."""
    (sealed,) = {Sealed.of(seal) for seal in seals}
    assert isinstance(plan.budget, Budget)
    return ReleasedMetrics(
        sealed=sealed,
        trusted=tuple(trusted),
        unit=plan.unit,
        protects=plan.unit.describe(),
        budget=plan.budget,
        charges=plan.charges,
        **measured,
    )


def _counts(
    query: MetricCounts,
    plan: Plan,
    wanted: ChargedMetrics,
    corpus: Corpus,
    session: Session,
    settings: LedgerParameters,
    listener: Listener,
) -> NDArray[np.float64]:
    with ExitStack() as stack:
        ledger = stack.enter_context(open_ledger(settings, session.store)) if session.noise.origin == SYSTEM else None
        found = None
        if ledger is not None:
            _require_ledger(wanted, ledger)
            ledger.check_if_open(wanted.dataset, plan, run_id=session.store.run_id)  # before any private read
            found = contents(corpus, ledger.fingerprint_key)
            if not session.begun:
                corpus.require_usable(found.bad_share)
            corpus = VerifiedCorpus(corpus, key=ledger.fingerprint_key, expected=found)
        paid = pay(ledger, wanted.dataset, plan, corpus, found, session, listener, known_only=not wanted.named)
        bounded = BoundedCorpus(corpus, plan.unit, paid.hash_key, form=corpus.schema.form)
        return paid.door.measure(NAME, query, bounded).value


def _require_ledger(wanted: ChargedMetrics, ledger: Ledger) -> None:
    """See that the charge is added to what the run of the synthetic texts has spent.

    Raises:
        LedgerError: if that was charged in another ledger.
    """
    if wanted.ledger not in (None, ledger.id):
        raise LedgerError(
            f"The run in this folder was charged in another ledger than {ledger.location}.",
            "Name that one with --ledger: what is charged in two ledgers is never added up.",
        )
    if not wanted.named and ledger.dataset(wanted.dataset) is None:
        raise LedgerError(
            f"The dataset {wanted.dataset!r} is not open in the ledger {ledger.location}.",
            "Name the ledger in which the run was charged (--ledger), or open the dataset with "
            "`understudy ledger open`.",
        )


def _classifiers(
    wanted: ChargedMetrics, synthetic: Sample, labels: Sequence[str], embedder: Embedder | None
) -> dict[str, Right]:
    """Trained on released texts. Without labels there are none."""
    if len(labels) < 2 or synthetic.labels is None:
        return {}
    return {name: _right(name, synthetic, labels, embedder, wanted.seed) for name in wanted.classifiers}


def _right(name: str, synthetic: Sample, labels: Sequence[str], embedder: Embedder | None, seed: int) -> Right:
    kind = kind_named(name)
    kind.require(synthetic)
    predicted_labels, predict = kind.train(synthetic, seed=seed)
    places = {label: place for place, label in enumerate(labels)}
    numbers = np.array([places.get(label, -1) for label in predicted_labels], dtype=np.int64)

    def right(batch: BoundedBatch) -> NDArray[np.bool_]:
        if not len(batch.texts):
            return np.zeros(0, dtype=np.bool_)
        vectors = embedder.embed(list(batch.said)) if embedder is not None and kind.embeddings else None
        predicted = numbers[predict(Sample(tuple(batch.said), None, vectors))]
        return np.asarray(predicted == batch.labels, dtype=np.bool_)

    return right


def _lasting(
    wanted: ChargedMetrics, labels: Sequence[str], synthetic: Sample, embedder: Embedder | None
) -> dict[str, Any]:
    """What a call again must have the same, or it is another release."""
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
