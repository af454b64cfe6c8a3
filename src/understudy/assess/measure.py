"""Every figure of an evaluation that is asked for: fidelity, utility, leakage, and the picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from understudy.assess.parameters import EvaluationParameters
from understudy.metrics.evaluation import Evaluation
from understudy.metrics.sample import Sample
from understudy.metrics.value import REAL, SYNTHETIC, Figure
from understudy.models.types import Embedder
from understudy.run.session import Listener


@dataclass(frozen=True)
class Tables:
    """The texts of an evaluation.

    Args:
        synthetic: what is judged.
        beside: other tables to train on, by name.
        holdout: real texts that the synthetic ones were not made from.
        recipient: unlabelled texts of whoever will use a classifier.
        public: public texts that the synthetic ones may have strings from.
        schema: a JSON schema that texts should keep to.
    """

    synthetic: Sample
    beside: Mapping[str, Sample]
    holdout: Sample | None
    recipient: Sample | None
    public: tuple[str, ...]
    schema: Mapping[str, Any] | None

    def embedded(self, embedder: Embedder | None, listener: Listener) -> Tables:
        """The same with embeddings."""
        if embedder is None:
            return self
        return replace(
            self,
            synthetic=embedded(self.synthetic, embedder, listener, "synthetic"),
            beside={name: embedded(table, embedder, listener, name) for name, table in self.beside.items()},
            holdout=self.holdout and embedded(self.holdout, embedder, listener, "held out"),
            recipient=self.recipient and embedded(self.recipient, embedder, listener, "the recipient's"),
        )


def embedded(sample: Sample, embedder: Embedder | None, listener: Listener, name: str) -> Sample:
    """A sample with embeddings, if there is an embedder."""
    if embedder is None:
        return sample
    listener.say(f"Embedding {name} texts with {embedder.model_id}.")
    return sample.with_embeddings(embedder.embed(list(sample.texts)))


def measure(config: EvaluationParameters, real: Sample, tables: Tables, listener: Listener) -> Evaluation:
    """Measure the synthetic texts against the real ones.

    Raises:
        UnderstudyError: of the kind that says what is wrong.
    """
    families: dict[str, Callable[[], tuple[Figure, ...]]] = {
        "fidelity": lambda: _fidelity(config, real, tables, listener),
        "utility": lambda: _utility(config, real, tables, listener),
        "leakage": lambda: _leakage(config, real, tables, listener),
    }
    figures = tuple(figure for name, made in families.items() if name in config.metrics for figure in made())
    from understudy.metrics.overview import draw_picture

    listener.say("Drawing a map of the texts.")
    picture = draw_picture({REAL: real, SYNTHETIC: tables.synthetic}, seed=config.seed)
    files = {"holdout", "beside", "recipient", "public_texts", "json_schema"}
    settings = config.model_dump(mode="json", exclude=files) | {"holdout": tables.holdout is not None}
    return Evaluation(figures, picture, settings)


def _fidelity(config: EvaluationParameters, real: Sample, tables: Tables, listener: Listener) -> tuple[Figure, ...]:
    from understudy.metrics.fidelity import measure_fidelity

    listener.say("Measuring fidelity.")
    return measure_fidelity(real, tables.synthetic, holdout=tables.holdout, schema=tables.schema, seed=config.seed)


def _leakage(config: EvaluationParameters, real: Sample, tables: Tables, listener: Listener) -> tuple[Figure, ...]:
    from understudy.metrics.leakage import measure_leakage

    listener.say("Looking for leaks.")
    return measure_leakage(
        real,
        tables.synthetic,
        holdout=tables.holdout,
        public=tables.public,
        detectors=config.detectors,
        seed=config.seed,
    )


def _utility(config: EvaluationParameters, real: Sample, tables: Tables, listener: Listener) -> tuple[Figure, ...]:
    """What the texts are good for, tested on held out texts, or on one half of the real ones."""
    train, test = (real, tables.holdout) if tables.holdout is not None else _halves(real, seed=config.seed)
    trained_on = {SYNTHETIC: tables.synthetic, **tables.beside}
    figures: list[Figure] = []
    if test.labels is not None and tables.synthetic.labels is not None:
        from understudy.metrics.utility.classifiers import measure_classifiers

        listener.say("Training classifiers.")
        words_only = test.embeddings is None
        kinds = [kind for kind in config.classifiers if not words_only or kind in ("tf-idf", "encoder")]
        figures += measure_classifiers(
            train,
            test,
            trained_on,
            kinds=[*kinds, "coral"] if tables.recipient is not None and not words_only else kinds,
            seeds=config.seeds,
            seed=config.seed,
            recipient=tables.recipient,
            encoder="builtin" if words_only else config.embedder,
        )
    if config.language_model:
        from understudy.metrics.utility.language import measure_language_model

        listener.say("Tuning a small language model.")
        figures += measure_language_model(train, test, trained_on, model=config.local_model, seed=config.seed)
    if config.shots and test.labels is not None and train.labels is not None:
        from understudy.metrics.utility.in_context import measure_in_context

        listener.say("Asking a language model with examples.")
        names = sorted({*train.labels, *test.labels})
        pools = {**trained_on, REAL: train}
        figures += measure_in_context(
            test, pools, label_names=names, model=config.local_model, shots=config.shots, seed=config.seed
        )
    return tuple(figures)


def _halves(real: Sample, *, seed: int) -> tuple[Sample, Sample]:
    """Real texts to train on and others to test on, at random."""
    order = np.random.default_rng(seed).permutation(len(real))
    return real.take(np.sort(order[: len(real) // 2])), real.take(np.sort(order[len(real) // 2 :]))
