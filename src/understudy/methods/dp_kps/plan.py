"""DP-KPS, before a private record is read: which noisy sums will be released, and what they buy.

1. vocabulary   noisy weighted counts of all public terms; those likely in many records (or the top N) are V~
   discovered-terms   noisy weighted counts of terms that no list has; those that stand above a threshold join V~
2. density      per label, a noisy kernel density over V~ (independent mode); of a table with typed columns per cell of
                each column too
   sequences-m  per label, one for every structure K_m (iterative mode)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from understudy.base.columns import Column
from understudy.base.errors import ConfigError
from understudy.base.parameters import Ablation, CommaSeparated, Gone, GoneOnes, Parameters, public_file
from understudy.methods.dp_kps.sequences import GRID, WEIGHT_GRID, structures
from understudy.methods.public import PublicFacts
from understudy.methods.shared.tables.variables import ALL, NONE
from understudy.models.machine import require_memory
from understudy.privacy.accountant import gaussian_split, pure_split
from understudy.privacy.facts import Fact, Facts
from understudy.privacy.guarantee import Budget
from understudy.privacy.mechanisms import COUNT_GRID, NoisySum, Sensitivity, require_releasable
from understudy.privacy.noise import NoiseKind
from understudy.privacy.plan import Charge, Plan
from understudy.privacy.selection import NoisySelection
from understudy.privacy.verdict import CLEAR, Verdict
from understudy.text.vocabulary.shrinkage import FEWEST_TERMS, MOST_TERMS, KnownNoise, noise_floor, require_enough_terms
from understudy.text.vocabulary.terms import ALL_LANGUAGES, BUILT_IN, Vocabulary, load_vocabulary

SMALLEST_BANDWIDTH = 0.001


class SequenceParameters(Parameters):
    """How keyphrase sequences are sampled from a Release: post-processing, free, changeable at every ``generate``."""

    length: int = Field(6, ge=1, le=100)
    """Terms of the longest sequences (L). A label with fewer terms above the noise has shorter ones."""
    shortest: Ablation[int] = Field(3, ge=1, le=100)
    """Terms of the shortest sequences, if length is not less: lengths are uniform between the two."""
    contrast: Ablation[float] = Field(1.0, ge=0, le=100)
    """How strongly terms that other labels share are avoided (gamma). 0: not at all."""

    gone: ClassVar[GoneOnes] = {
        "shrinkage": Gone(
            True, "sequences are always sampled by what scores are expected to be, given their noise", free=True
        ),
        "temperature": Gone(1.0, "terms are sampled in proportion to their scores", free=True),
        "coherence": Gone(
            0.0, "terms are sampled for themselves; with a guide, sequences are chosen as a whole", free=True
        ),
        "top_k": Gone(
            None, "all terms of the privatised vocabulary may be sampled (--top-terms makes it smaller)", free=True
        ),
        "sequence_candidates": Gone(4, "the guide chooses among 4 sequences for each one", free=True),
        "swap_rounds": Gone(
            3, "chosen sequences vary in 3 rounds, unless 80 % match their label as they are", free=True
        ),
    }


class ReleaseParameters(Parameters):
    """What DP-KPS releases, and how its budget is split."""

    noise: Ablation[NoiseKind] = "gaussian"
    """``gaussian``: (epsilon, delta)-DP. ``laplace``: pure DP, as published; the default where delta is 0."""
    mode: Ablation[Literal["independent", "iterative"]] = "independent"
    """Whether terms are sampled from a density of terms, or grown against densities of sequences."""
    vocabulary: str = public_file(BUILT_IN)
    """A public list of terms: a file, or the built-in English word list."""
    vocabulary_is_public: bool = False
    """Your word that your own vocabulary, stop words or embeddings were not made from private data."""
    stop_words: str | None = public_file(None)
    """A file of words to leave out, ``built-in``, ``none``, or ``all-languages``: those of 33, which also says that the
    texts are not English. Default: a built-in English list; of all languages where few names of the columns and labels
    are English, unless ``vocabulary`` is named."""
    top_terms: int | None = Field(None, ge=1)
    """Size of the privatised vocabulary (N). Default: twice as many as are likely to be real, given the noise (300 to
    5000)."""
    terms_per_record: Ablation[int] = Field(10, ge=1, le=100)
    """Contribution bound: the first distinct terms of a record that count (S)."""
    bandwidth: Ablation[float] = Field(0.0, ge=0, le=1000)
    """Bandwidth of the kernel on unit vectors (h), 0.2 to 0.5. 0: exact histogram, no smoothing, no embedder."""
    features: Ablation[int] = Field(2000, ge=1, le=100_000)
    """Random frequencies a sketch (I)."""
    discover_terms: float | None = Field(None, ge=0, le=0.9)
    """Share of the budget (of mu^2) for finding terms of one to three words that no public list has, and numbers: those
    that many records have join the vocabulary. 0: none. Default: none; 0.3 where few names of the columns and labels
    are English, as the built-in vocabulary is."""
    phrase_columns: Ablation[CommaSeparated] = (ALL,)
    """Typed columns that phrases depend on, besides the label: ``all``, ``none``, or names. With a bandwidth: none."""

    gone: ClassVar[GoneOnes] = {
        "ensemble": Gone("log", "the iterative mode has structures of 1, 2, 4, ... terms"),
        "vocabulary_size": Gone(None, "a shorter --vocabulary is a file with fewer terms"),
        "vocabulary_share": Gone(0.2, "the vocabulary gets a fifth of the budget"),
    }


class DPKPSParameters(ReleaseParameters, SequenceParameters):
    """All parameters of DP-KPS."""

    @model_validator(mode="after")
    def _bandwidth_fits(self) -> Self:
        if self.mode == "iterative" and self.bandwidth == 0:
            raise ValueError("the iterative mode needs a bandwidth above 0")
        if 0 < self.bandwidth < SMALLEST_BANDWIDTH:  # its phases are too large for the cosines of float32
            raise ValueError(f"a bandwidth is 0 (the exact histogram) or at least {SMALLEST_BANDWIDTH}")
        return self

    @model_validator(mode="after")
    def _columns_are_counted(self) -> Self:
        if needs_embeddings(self) and self.phrase_columns not in ((ALL,), (NONE,)):
            raise ValueError("phrase_columns needs a bandwidth of 0, since columns have exact counts of terms")
        return self


def needs_embeddings(parameters: ReleaseParameters) -> bool:
    """False for the exact histogram, which smooths nothing."""
    return parameters.mode == "iterative" or parameters.bandwidth > 0


NAME = "dp-kps"
VOCABULARY, DISCOVERED, COLUMN_DENSITY = "vocabulary", "discovered-terms", "column-density"
_VOCABULARY_SHARE = 0.2
"""Of the budget (of mu^2 or of epsilon)."""
MOST_DISCOVERED = 5000
"""Discovered terms that join the vocabulary: those that most units have."""
_DISCOVERED_PER_UNIT = 100
_DISCOVERED_DELTA = Fraction(1, 10)
"""Of delta: with what probability a term is shown that one unit alone has."""
_COLUMNS_PART = 0.5
"""Of the density's share of the budget: for all columns together, beside the label."""


def phrase_columns(parameters: ReleaseParameters, columns: Sequence[Column]) -> tuple[int, ...]:
    """The places, among the typed columns, of those that phrases depend on.

    Raises ConfigError if a name is not one of theirs, or is repeated.
    """
    asked, places = parameters.phrase_columns, {column.name: place for place, column in enumerate(columns)}
    if needs_embeddings(parameters) or asked == (NONE,):
        return ()
    if asked == (ALL,):
        return tuple(places.values())
    for name in asked:
        if name not in places:
            named = f"Name some of these (phrase_columns): {', '.join(places)}; or all, or none."
            raise ConfigError(
                f"Phrases are to depend on {name!r:.60}, which is no typed column beside the label.",
                named if places else "Declare typed columns with --columns, or leave phrase_columns out.",
            )
    if len(set(asked)) < len(asked):
        raise ConfigError("A column is named twice (phrase_columns).", "Name each once.")
    return tuple(sorted(places[name] for name in asked))


def public_vocabulary(parameters: ReleaseParameters) -> Vocabulary:
    """The terms that are counted. Raises ConfigError if they are not declared public."""
    own = parameters.vocabulary != BUILT_IN or parameters.stop_words not in (None, BUILT_IN, "none", ALL_LANGUAGES)
    if own and not parameters.vocabulary_is_public:
        raise ConfigError(
            "A vocabulary or stop word list of your own must not be made from the private data.",
            "If it is public, say so with --vocabulary-is-public.",
        )
    return load_vocabulary(parameters.vocabulary, stop_words=parameters.stop_words)


def sketch_names(parameters: DPKPSParameters) -> dict[str, int]:
    """Names of the density releases and the terms per sequence in each, in order."""
    if parameters.mode == "independent":
        return {"density": 1}
    return {f"sequences-{m}": m for m in structures(parameters.length)}


def fewest_terms(parameters: DPKPSParameters) -> int:
    """Terms of the smallest privatised vocabulary: no sequence may be longer."""
    return parameters.top_terms or max(FEWEST_TERMS, parameters.length)


def most_terms(parameters: DPKPSParameters, vocabulary_size: int) -> int:
    """Terms of the largest privatised vocabulary."""
    listed = parameters.top_terms or min(max(MOST_TERMS, fewest_terms(parameters)), vocabulary_size)
    return listed + (MOST_DISCOVERED if discovery_share(parameters) else 0)


def discovery_share(parameters: ReleaseParameters) -> float:
    """Of the budget (of mu^2), for terms that no list has.

    Raises ConfigError if there is one, and the noise is to be pure.
    """
    share = parameters.discover_terms or 0.0
    if share and parameters.noise == "laplace":
        raise ConfigError(
            "Terms that no list has are found under (epsilon, delta), not under pure differential privacy.",
            "Leave --discover-terms out, or choose gaussian noise.",
        )
    return share


def density_sensitivity(noise: NoiseKind, features: int) -> Sensitivity:
    """Of one record's vector, which is scaled onto the ball of one term's features in the noise's own norm."""
    whole = WEIGHT_GRID * GRID
    if noise == "laplace":
        return Sensitivity(whole * math.sqrt(2) * features, whole * math.sqrt(2) * features, whole)
    bound = whole * math.sqrt(features)
    return Sensitivity(bound * math.sqrt(2 * features), bound, whole)


def sequence_sensitivity(features: int) -> Sensitivity:
    """Of one feature vector: of L2 norm sqrt(I) and L1 norm sqrt(2) I at most."""
    whole = WEIGHT_GRID * GRID
    return Sensitivity(whole * math.sqrt(2) * features, whole * math.sqrt(features), whole)


def mechanisms(
    parameters: DPKPSParameters, budget: Budget, *, labels: int, vocabulary_size: int, cells: Sequence[int] = ()
) -> dict[str, NoisySum | NoisySelection]:
    """Each noisy sum by its charge's name, calibrated so that together they spend ``budget`` and no more.

    Args:
        cells: of each column that phrases depend on.
    """
    sketches = sketch_names(parameters)
    share = _VOCABULARY_SHARE
    part = _COLUMNS_PART if cells else 0.0
    shares = [
        share,
        *((1 - share) * (1 - part) / len(sketches) for _ in sketches),
        *([(1 - share) * part] if cells else []),
    ]
    discovered = discovery_share(parameters)
    lone = budget.delta * _DISCOVERED_DELTA
    if discovered:
        shares = [*(each * (1 - discovered) for each in shares), discovered]
        budget = Budget.of(budget.epsilon, budget.delta - lone)
    noise = parameters.noise
    if noise == "gaussian":
        multipliers = gaussian_split(budget, shares)
    else:
        multipliers = tuple(1 / epsilon for epsilon in pure_split(budget, shares))
    weights = Sensitivity.of_shared_weight(noise, parameters.terms_per_record)
    columns: int | None = 2 * parameters.features
    most, fewer, sensitivity = 2 * parameters.features, "features", density_sensitivity(noise, parameters.features)
    if parameters.mode == "iterative":
        sensitivity = sequence_sensitivity(parameters.features)
    elif not needs_embeddings(parameters):
        columns, sensitivity = None if discovered else parameters.top_terms, weights
        most, fewer = most_terms(parameters, vocabulary_size), "top_terms"
    require_releasable((labels, most), cure=f"Lower {fewer}, or declare fewer labels.")
    sums: dict[str, NoisySum | NoisySelection] = {
        VOCABULARY: NoisySum(noise, multipliers[0], weights, (vocabulary_size,))
    }
    if discovered:
        sums[DISCOVERED] = NoisySelection(multipliers[-1], float(lone), _DISCOVERED_PER_UNIT)
    for name, multiplier in zip(sketches, multipliers[1:], strict=False):
        sums[name] = NoisySum(noise, multiplier, sensitivity, (labels, columns))
    if cells:
        require_releasable((sum(cells), most), cure=f"Lower {fewer}, or name fewer phrase_columns.")
        shape = (sum(cells), columns)
        sums[COLUMN_DENSITY] = NoisySum(noise, multipliers[1 + len(sketches)], weights.in_blocks(len(cells)), shape)
    return sums


def make_plan(
    parameters: DPKPSParameters, budget: Budget, facts: PublicFacts, *, vocabulary_size: int | None = None
) -> Plan:
    """The plan of a release over a public vocabulary of this size; by default that of the parameters."""
    vocabulary_size = vocabulary_size or len(public_vocabulary(parameters).terms)
    if parameters.top_terms is not None:
        require_enough_terms(parameters.top_terms, vocabulary_size)
    if parameters.length > most_terms(parameters, vocabulary_size):
        raise ConfigError(
            f"Sequences of {parameters.length} distinct terms need at least as many in the vocabulary.",
            "Lower length or raise top_terms." if parameters.top_terms else "Lower length or give a larger vocabulary.",
        )
    if parameters.mode == "iterative" and parameters.length > parameters.terms_per_record:
        raise ConfigError(
            f"No record has sequences of {parameters.length} terms, since {parameters.terms_per_record} terms of a "
            "record count.",
            "Lower length or raise terms_per_record.",
        )
    if parameters.noise == "laplace":
        budget = Budget(budget.epsilon, 0)  # pure: no delta is booked
    labels = facts.labels.size
    chosen = [facts.columns[place] for place in phrase_columns(parameters, facts.columns)]
    cells = [column.size for column in chosen]
    sums = mechanisms(parameters, budget, labels=labels, vocabulary_size=vocabulary_size, cells=cells)
    stay = f"the top {parameters.top_terms}" if parameters.top_terms else "the likeliest"
    why = {VOCABULARY: f"noisy weighted counts of {vocabulary_size} public terms, of which {stay} stay"}
    for name, size in sketch_names(parameters).items():
        kind = "kernel density" if needs_embeddings(parameters) else "histogram"
        why[name] = (
            f"noisy {kind} of {'terms' if size == 1 else f'sequences of {size} terms'} for each of {labels} label(s)"
        )
    why[DISCOVERED] = "noisy weighted counts of terms that no list has, of which those above a threshold stay"
    names = ", ".join(column.name for column in chosen)
    why[COLUMN_DENSITY] = f"noisy histogram of terms for each value of {names}"
    charges = tuple(Charge(name, mechanism, why[name]) for name, mechanism in sums.items())
    return Plan(NAME, facts.unit, budget, charges, _forecast(parameters, sums, facts, vocabulary_size, chosen))


def require_room(parameters: DPKPSParameters, dimension: int, *, vocabulary_size: int) -> None:
    """See that the vocabulary's embeddings ``[N, dimension]`` and features can be stored and held; else ConfigError."""
    terms = most_terms(parameters, vocabulary_size)
    require_releasable((terms, dimension), cure="Lower top_terms.")
    require_memory_for_features(
        parameters, terms=terms, dimension=dimension, cure="Lower features, top_terms or, in iterative mode, length."
    )


def require_memory_for_features(parameters: DPKPSParameters, *, terms: int, dimension: int, cure: str) -> None:
    """See that the random features of a vocabulary can be held; else ConfigError."""
    features = parameters.features
    phases = max(sketch_names(parameters).values()) * terms * features * _PHASE_BYTES
    kernel = 0 if parameters.mode == "iterative" else terms * features * _FEATURE_BYTES
    require_memory(
        2 * phases + kernel + features * dimension * _FREQUENCY_BYTES,
        what="The random features of the vocabulary",
        cure=cure,
    )


_PHASE_BYTES = 4
_FEATURE_BYTES = 2 * (4 + 8 + 8)  # cos and sin: as they are, as sums are made of them, and on their way there
_FREQUENCY_BYTES = 8 + 4


def _forecast(
    parameters: DPKPSParameters,
    sums: Mapping[str, NoisySum | NoisySelection],
    facts: PublicFacts,
    vocabulary_size: int,
    chosen: Sequence[Column],
) -> Facts:
    """Noise in units (records or owners: an averaged owner weighs as much as a record), and signal against it.

    A unit's weight of 1 is shared out over the terms that count of it; here over S of them, as of a longer record.
    """
    units, warnings = f"{facts.unit.kind}s", list[str]()
    counts = sums[VOCABULARY].noise_std
    sketches = {name: score_noise(parameters, sums[name].noise_multiplier) for name in sketch_names(parameters)}
    floor = noise_floor(counts, vocabulary_size)
    entries = [
        Fact("vocabulary_count_noise", counts, f"vocabulary weighted count noise (std, {units})"),
        Fact("vocabulary_noise_floor", floor, f"vocabulary noise floor ({units} of which this is the only term)"),
        *(Fact(f"{name}_score_noise", noise, f"{name} score noise (std, {units})") for name, noise in sketches.items()),
    ]
    if isinstance(selection := sums.get(DISCOVERED), NoisySelection):
        entries.append(Fact("discovery_threshold", selection.threshold / COUNT_GRID, _DISCOVERY.format(units=units)))
    if COLUMN_DENSITY in sums:
        noise = sums[COLUMN_DENSITY].noise_std
        entries.append(Fact("column_density_score_noise", noise, f"noise on a term's score by a column (std, {units})"))
    if facts.expected_records is not None:
        per_label = facts.expected_records / facts.labels.size
        weight = records_per_term(parameters)
        share = floor * weight / facts.expected_records
        entries += [
            Fact("expected_records", facts.expected_records, f"{units} (as declared)"),
            Fact("vocabulary_share_to_stand_out", share, f"share of {units} a term must be in to stand out"),
        ]
        for percent in (1, 5):
            ratio = per_label * percent / 100 / weight / max(sketches.values())
            title = f"signal to noise of a term that {percent}% of a label's {units} hold"
            entries.append(Fact(f"signal_to_noise_at_{percent}_percent", ratio, title))
        if chosen:
            seen = facts.expected_records * _COMMON / weight / sums[COLUMN_DENSITY].noise_std
            if drowned := [column.name for column in chosen if seen < column.size]:
                warnings.append(_DROWNED.format(units=units, names=", ".join(drowned), share=_COMMON))
    if facts.columns and needs_embeddings(parameters):
        warnings.append(_LABEL_ALONE)
    noise = max(sketches.values())
    found = verdict(parameters, noise, labels=facts.labels.size, records=facts.expected_records)
    return Facts(tuple(entries), tuple(warnings), found)


def verdict(parameters: DPKPSParameters, noise: float, *, labels: int, records: float | None) -> Verdict:
    """Of the standard deviation of the ``noise`` on a term's score under a label, in units of weight 1.

    A term that the share s of a label's n records say has the score n s w, w being what a record gives to each of its
    terms; it shows where that is CLEAR standard deviations. Records are taken to have S terms.
    """
    texts = CLEAR * noise * records_per_term(parameters)
    return Verdict.of("topics", texts=texts, labels=labels, records=records)


def records_per_term(parameters: DPKPSParameters) -> float:
    """1/w: records in which a term is one of S that have a weight of 1 on it together."""
    terms = parameters.terms_per_record
    return terms if parameters.noise == "laplace" else math.sqrt(terms)


_DISCOVERY = "threshold of a term that no list has (weighted count, {units})"
_COMMON = 0.05
_DROWNED = (
    "Phrases by {names} would be mostly noise: a term in {share:.0%} of the {units} with a given value counts for less "
    "than the noise. These columns take budget from the label's phrases. Name only those that matter with "
    "phrase_columns, or none."
)
_LABEL_ALONE = "With a bandwidth, phrases depend on the label alone, and not on the typed columns (phrase_columns)."


def known_noise(parameters: DPKPSParameters, multiplier: float | None, *, columns: int = 1) -> KnownNoise:
    """The noise on one term's score: under a label, or under a cell of one of so many ``columns``.

    None with a ``multiplier`` of 0, and without one (the iterative mode uses no such scores).
    """
    if not multiplier:
        return KnownNoise("gaussian", 0.0)
    blocks = math.sqrt(columns) if parameters.noise == "gaussian" else columns
    kind: NoiseKind = "gaussian" if needs_embeddings(parameters) else parameters.noise  # a sum of many is Gaussian
    return KnownNoise(kind, score_noise(parameters, multiplier) * blocks)


def score_noise(parameters: DPKPSParameters, multiplier: float) -> float:
    """Standard deviation of the noise on one term's score, in records."""
    if parameters.noise == "gaussian":
        return multiplier
    if not needs_embeddings(parameters):
        return multiplier * math.sqrt(2)
    return multiplier * 2 * math.sqrt(parameters.features)
