"""Every mechanism of the project, by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec

from understudy.audit.mechanisms.audit import Auditable
from understudy.audit.mechanisms.sums import OWNER, TERMS, aug_pe, charged_metrics, dp_kps, one_sum, sec_pe
from understudy.audit.mechanisms.tokens import few_shot, private_tokens, token_test
from understudy.errors import ConfigError
from understudy.models.extra import require_local
from understudy.privacy.unit import Unit

ALL = "all"
_MANY = 5000  # more than OpenDP chooses from: the other exact sampler
_RECORD = f"one record more, which holds all {len(TERMS)} terms of the vocabulary"
_OWNER = "one owner more, with three records of all terms"
_VOTER = "one record more, which votes for the two candidates of its label"
_ROW = "one record more in the batch, which favours half of the vocabulary by all that clipping leaves"
_SUBSET = "one record more, which makes its subset say another token"

_TERMS: tuple[Auditable, ...] = (
    Auditable("term-counts", "dp-kps, aug-pe: counts of public terms", _RECORD, partial(one_sum, "counts", "gaussian")),
    Auditable("term-counts-laplace", "dp-kps, pure", _RECORD, partial(one_sum, "counts", "laplace")),
    Auditable("histogram", "dp-kps: weighted term counts", _RECORD, partial(one_sum, "histogram", "gaussian")),
    Auditable("histogram-laplace", "dp-kps, pure", _RECORD, partial(one_sum, "histogram", "laplace")),
    Auditable("density", "dp-kps: kernel density of terms", _RECORD, partial(one_sum, "density", "gaussian")),
    Auditable("density-laplace", "dp-kps, pure", _RECORD, partial(one_sum, "density", "laplace")),
    Auditable("sequences", "dp-kps: density of sequences", _RECORD, partial(one_sum, "sequences", "gaussian")),
    Auditable("sequences-laplace", "dp-kps, pure", _RECORD, partial(one_sum, "sequences", "laplace")),
    Auditable("dp-kps", "dp-kps: all that it releases", _RECORD, partial(dp_kps, "gaussian", Unit())),
    Auditable("dp-kps-owners", "dp-kps: the same for owners", _OWNER, partial(dp_kps, "gaussian", OWNER)),
    Auditable(
        "charged-metrics",
        "evaluate: counts behind charged metrics, pure",
        "one record more, which counts in every block",
        partial(charged_metrics, Unit()),
    ),
    Auditable(
        "charged-metrics-owners",
        "evaluate: the same for owners",
        "one owner more, with three records that count alike",
        partial(charged_metrics, OWNER),
    ),
    Auditable(
        "label-counts", "aug-pe: records of each label", "one record more", partial(one_sum, "labels", "gaussian")
    ),
)
_VOTES: tuple[Auditable, ...] = (
    Auditable("votes", "aug-pe: votes of one round", _VOTER, partial(aug_pe, 1, Unit())),
    Auditable("aug-pe", "aug-pe: votes of three rounds", _VOTER, partial(aug_pe, 3, Unit())),
    Auditable(
        "votes-owners",
        "aug-pe: votes of owners",
        "one owner more, with records in both labels",
        partial(aug_pe, 1, Unit("owner", 3)),
    ),
    Auditable(
        "votes-secrets",
        "aug-pe: votes where secrets are protected",
        "three records more, which hold one secret and vote alike",
        partial(aug_pe, 1, Unit("secret", 3)),
    ),
)
_CLUSTERS: tuple[Auditable, ...] = (
    Auditable(
        "clusters",
        "sec-pe: sums of public clusters",
        "one record more, which holds the secret and is always sampled",
        partial(sec_pe, rate=1.0, records=1),
    ),
    Auditable(
        "clusters-sampled",
        "sec-pe: the same over sampled records",
        "three records more, which hold one secret and are sampled half of the time",
        partial(sec_pe, rate=0.5, records=3),
    ),
    Auditable(
        "sec-pe",
        "sec-pe: two releases",
        "three records more, which hold one secret and are sampled half of the time",
        partial(sec_pe, rate=0.5, records=3, releases=2),
    ),
)
_TOKENS: tuple[Auditable, ...] = (
    Auditable(
        "private-tokens", "private-prediction: clipped logits", _ROW, partial(private_tokens, "recenter"), local=True
    ),
    Auditable(
        "private-tokens-difference",
        "private-prediction: clipped differences",
        _ROW,
        partial(private_tokens, "difference"),
        local=True,
    ),
    Auditable(
        "private-tokens-owners",
        "private-prediction: clipped logits of owners",
        "one owner more, with three records that favour the same tokens",
        partial(private_tokens, "recenter", rows=3),
        local=True,
    ),
    Auditable(
        "private-tokens-many",
        f"private-prediction: a vocabulary of {_MANY}",
        _ROW,
        partial(private_tokens, "recenter", vocabulary=_MANY),
        local=True,
    ),
    Auditable(
        "token-test",
        "private-prediction: one run of the sparse vector",
        "one record more, which brings every distance nearer to the public one, and the last one further away",
        token_test,
        local=True,
    ),
    Auditable(
        "subsets", "few-shot: noisy sums", _SUBSET, partial(few_shot, "gaussian", rate=1.0, tokens=2), local=True
    ),
    Auditable(
        "subsets-sampled",
        "few-shot: noisy sums of samples",
        f"{_SUBSET}, where it is sampled (half of the time)",
        partial(few_shot, "gaussian", rate=0.5, tokens=1),
        local=True,
    ),
    Auditable(
        "subset-votes",
        "few-shot: votes of samples",
        f"{_SUBSET}, where it is sampled (half of the time)",
        partial(few_shot, "votes", rate=0.5, tokens=1),
        local=True,
    ),
)
MECHANISMS = {each.name: each for each in (*_TERMS, *_VOTES, *_CLUSTERS, *_TOKENS)}


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
