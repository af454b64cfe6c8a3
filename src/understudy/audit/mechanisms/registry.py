"""Every mechanism of the project, by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec

from understudy.audit.mechanisms.audit import Attack, Auditable
from understudy.audit.mechanisms.gradients import dp_sgd
from understudy.audit.mechanisms.sums import (
    OWNER,
    TERMS,
    QueryName,
    aug_pe,
    charged_metrics,
    columns,
    dp_kps,
    guide,
    one_sum,
    sec_pe,
)
from understudy.audit.mechanisms.teachers import seq_pate
from understudy.audit.mechanisms.tokens import few_shot, private_tokens, token_test
from understudy.base.errors import ConfigError
from understudy.models.machine import require_local
from understudy.privacy.guarantee import Budget
from understudy.privacy.unit import Unit

ALL = "all"
_MANY = 5000  # more than OpenDP chooses from: the other exact sampler
_RECORD = f"one record more, which holds all {len(TERMS)} terms of the vocabulary"
_OWNER = "one owner more, with three records"
_VOTER = "one record more, which votes for the two candidates of its label"
_ROW = "one record more in the batch, which favours half of the vocabulary by all that clipping leaves"
_ROWS = f"{_OWNER} that favour the same tokens"
_TEST = "one record more, which brings every distance nearer to the public one, and the last one further away"
_SUBSET = "one record more, which makes its subset say another token"
_CANARY = "one record more, whose gradient is clipped"
_SUBSET_HALF, _CANARY_HALF = (f"{each}, where it is sampled (half of the time)" for each in (_SUBSET, _CANARY))
_TURNED = "one record more, which turns its teacher's answers round"
_SECRETS = "three records more, which hold one secret"
_SECRETS_HALF = f"{_SECRETS} and are sampled half of the time"


def _sums(name: str, kind: QueryName, title: str, method: str = "dp-kps") -> tuple[Auditable, Auditable]:
    """A query with Gaussian noise, and the same with Laplace noise."""
    return (
        Auditable(name, f"{method}: {title}", _RECORD, partial(one_sum, kind, "gaussian")),
        Auditable(f"{name}-laplace", f"{method}, pure", _RECORD, partial(one_sum, kind, "laplace")),
    )


def _local(name: str, title: str, neighbours: str, attack: Callable[[Budget], Attack]) -> Auditable:
    return Auditable(name, title, neighbours, attack, local=True)


_ALL: tuple[Auditable, ...] = (
    *_sums("term-counts", "counts", "counts of public terms", "aug-pe"),
    *_sums("vocabulary", "vocabulary", "weighted counts of public terms"),
    *_sums("histogram", "histogram", "the same for each label"),
    *_sums("density", "density", "kernel density of terms"),
    *_sums("sequences", "sequences", "density of sequences"),
    Auditable("dp-kps", "dp-kps: all that it releases", _RECORD, partial(dp_kps, "gaussian", Unit())),
    Auditable(
        "dp-kps-owners", "dp-kps: the same for owners", f"{_OWNER} of all terms", partial(dp_kps, "gaussian", OWNER)
    ),
    Auditable(
        "charged-metrics",
        "evaluate: counts behind charged metrics, pure",
        "one record more, which counts in every block",
        partial(charged_metrics, Unit()),
    ),
    Auditable(
        "charged-metrics-owners",
        "evaluate: the same for owners",
        f"{_OWNER} that count alike",
        partial(charged_metrics, OWNER),
    ),
    Auditable(
        "label-counts", "aug-pe: records of each label", "one record more", partial(one_sum, "labels", "gaussian")
    ),
    Auditable("votes", "aug-pe: votes of one round", _VOTER, partial(aug_pe, 1, Unit())),
    Auditable("aug-pe", "aug-pe: votes of three rounds", _VOTER, partial(aug_pe, 3, Unit())),
    Auditable("votes-owners", "aug-pe: votes of owners", f"{_OWNER} in both labels", partial(aug_pe, 1, OWNER)),
    Auditable(
        "votes-secrets",
        "aug-pe: votes where secrets are protected",
        f"{_SECRETS} and vote alike",
        partial(aug_pe, 1, Unit("secret", 3)),
    ),
    Auditable(
        "clusters",
        "sec-pe: sums of public clusters",
        "one record more, which holds the secret and is always sampled",
        partial(sec_pe, rate=1.0, records=1),
    ),
    Auditable("clusters-sampled", "sec-pe: the same over samples", _SECRETS_HALF, partial(sec_pe, rate=0.5, records=3)),
    Auditable("sec-pe", "sec-pe: two releases", _SECRETS_HALF, partial(sec_pe, rate=0.5, records=3, releases=2)),
    Auditable(
        "guide",
        "guided-evolution: the guide, also of other methods",
        "one record more, whose embedding all lies in one coordinate",
        partial(guide, Unit()),
    ),
    Auditable(
        "guide-owners",
        "guided-evolution: the guide of owners",
        f"{_OWNER} of one label whose embeddings are alike",
        partial(guide, OWNER),
    ),
    Auditable(
        "columns",
        "typed columns: histograms, scores and pairs",
        "one record more, of values that no other has",
        partial(columns, Unit()),
    ),
    Auditable(
        "columns-owners",
        "typed columns of owners",
        f"{_OWNER} of one label and like values",
        partial(columns, OWNER),
    ),
    _local("private-tokens", "private-prediction: clipped logits", _ROW, partial(private_tokens, "recenter")),
    _local(
        "private-tokens-difference",
        "private-prediction: clipped differences",
        _ROW,
        partial(private_tokens, "difference"),
    ),
    _local(
        "private-tokens-owners",
        "private-prediction: clipped logits of owners",
        _ROWS,
        partial(private_tokens, "recenter", rows=3),
    ),
    _local(
        "private-tokens-many",
        f"private-prediction: a vocabulary of {_MANY}",
        _ROW,
        partial(private_tokens, "recenter", vocabulary=_MANY),
    ),
    _local("token-test", "private-prediction: one run of the sparse vector", _TEST, token_test),
    _local("subsets", "few-shot: noisy sums", _SUBSET, partial(few_shot, "gaussian", rate=1.0, tokens=2)),
    _local(
        "subsets-sampled",
        "few-shot: noisy sums of samples",
        _SUBSET_HALF,
        partial(few_shot, "gaussian", rate=0.5, tokens=1),
    ),
    _local("subset-votes", "few-shot: votes of samples", _SUBSET_HALF, partial(few_shot, "votes", rate=0.5, tokens=1)),
    _local("dp-sgd", "dp-finetune: clipped gradients of a sample", _CANARY_HALF, partial(dp_sgd, rate=0.5, steps=1)),
    _local("dp-sgd-steps", "dp-finetune: three steps", _CANARY_HALF, partial(dp_sgd, rate=0.5, steps=3)),
    _local("dp-sgd-everybody", "dp-finetune: steps on all records", _CANARY, partial(dp_sgd, rate=1.0, steps=2)),
    _local(
        "dp-sgd-owners",
        "dp-finetune: clipped gradients of sampled owners",
        f"{_OWNER} whose gradients are clipped, where it is sampled (half of the time)",
        partial(dp_sgd, rate=0.5, steps=1, records=3),
    ),
    _local("teacher-answers", "seq-pate: answers of all teachers", _TURNED, partial(seq_pate, queries=4)),
    _local(
        "teacher-answers-laplace",
        "seq-pate: the same, pure",
        _TURNED,
        partial(seq_pate, queries=1, noise="laplace"),
    ),
    _local("teacher-votes", "seq-pate: votes of all teachers", _TURNED, partial(seq_pate, queries=4, answers="votes")),
    _local("seq-pate", "seq-pate: answers of three rounds", _TURNED, partial(seq_pate, queries=5, rounds=3)),
    _local(
        "teacher-answers-owners",
        "seq-pate: answers of teachers of owners",
        f"{_OWNER} in one shard, who turn their teacher's answers round",
        partial(seq_pate, queries=4, unit=OWNER),
    ),
)
MECHANISMS = {each.name: each for each in _ALL}


def chosen(name: str) -> Sequence[Auditable]:
    """The mechanism of this name; or all of them, but for those that need torch where there is none.

    Raises:
        ConfigError: if there is none of this name.
        ModelError: if it needs torch, and there is none.
    """
    if name == ALL:
        return [each for each in MECHANISMS.values() if not each.local or find_spec("torch")]
    if name not in MECHANISMS:
        raise ConfigError(
            f"There is no mechanism {name!r:.80} to audit.", "See `understudy audit mechanism --list`, or say `all`."
        )
    if MECHANISMS[name].local:
        require_local()
    return [MECHANISMS[name]]
