"""Texts that have parts: whether these are as long and as many as the real ones, and whether they belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise

import numpy as np
from numpy.typing import NDArray

from understudy.base.transcript import Part, turns_of
from understudy.evaluate.metrics.fidelity.texts import Ints, length_ks, total_variation
from understudy.evaluate.metrics.intervals import (
    between_subsamples,
    value_of_subsamples,
    whole_and_subsamples,
)
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.value import Metric, MetricValue, Setting
from understudy.text.vocabulary.words import split_words

PART_LENGTH = Metric(
    "part_length_ks",
    "Length of a part, Kolmogorov-Smirnov",
    "fidelity",
    "Largest difference of the distribution functions of the number of words in a field, or in a turn of a role, in "
    "[0, 1].",
    "Smirnov 1948 (two-sample statistic)",
    "lower",
)
TURNS = Metric(
    "turns_ks",
    "Turns of a dialogue, Kolmogorov-Smirnov",
    "fidelity",
    "Largest difference of the distribution functions of the number of turns in a dialogue, in [0, 1].",
    PART_LENGTH.source,
    "lower",
)
BEGINS = Metric(
    "begins_distance",
    "Who begins, distance",
    "fidelity",
    "Total variation distance of the shares of dialogues that each role begins, in [0, 1].",
    "Levin, Peres and Wilmer 2009, proposition 4.2",
    "lower",
)
ACTS = Metric(
    "acts_distance",
    "Acts of turns, distance",
    "fidelity",
    "Total variation distance of the shares of turns that have each act, or none, in [0, 1].",
    BEGINS.source,
    "lower",
)
CALLS = Metric(
    "calls_distance",
    "Tools that are called, distance",
    "fidelity",
    "Total variation distance of the shares of calls that are of each tool, in [0, 1].",
    BEGINS.source,
    "lower",
)
BELONGING = Metric(
    "parts_belonging",
    "Parts that belong together",
    "fidelity",
    "How much more alike a part and the next one of its record are than a part and the next one of another record, at "
    "random: difference of the mean cosines of their TF-IDF vectors, in [-1, 1]. TF-IDF is that of the table "
    "itself. 0: parts have no more to do with each other than those of strangers.",
    "cosine of TF-IDF (Salton and Buckley 1988), against a permutation of the records",
    "same",
)
Statistic = Callable[[Ints, Ints], float]


def shape_values(real: Sample, other: Sample, *, of: str, **sampling: int) -> Iterator[MetricValue]:
    """The distances of two tables of texts that have the same parts, each of two records or more."""
    assert real.parts is not None
    assert other.parts is not None
    tables = real.parts, other.parts
    flat = [list(chain.from_iterable(table)) for table in tables]

    def measured(
        metric: Metric, statistic: Statistic, values: Sequence[Ints], settings: dict[str, Setting]
    ) -> MetricValue:
        ours, theirs = values
        if min(len(ours), len(theirs)) < 2:
            return MetricValue(metric, None, of, settings=settings, note="Takes at least 2 such parts of a table.")
        return between_subsamples(metric, statistic, ours, theirs, of, high=1.0, settings=settings, **sampling)

    if roles := list(real.form.roles):
        yield measured(TURNS, length_ks, [_numbers(len(turns_of(parts)) for parts in table) for table in tables], {})
        begins = [_numbers(roles.index(parts[0].name) for parts in table) for table in tables]
        yield measured(BEGINS, partial(total_variation, labels=len(roles)), begins, {})
    if real.form.acts:
        acts = ["", *real.form.acts]
        done = [_numbers(acts.index(part.act) for part in parts if not part.tool) for parts in flat]
        yield measured(ACTS, partial(total_variation, labels=len(acts)), done, {})
    if tools := list(real.form.tools):
        called = [_numbers(tools.index(part.tool) for part in parts if part.calls) for parts in flat]
        yield measured(CALLS, partial(total_variation, labels=len(tools)), called, {})
    for name in real.form.names:
        yield measured(PART_LENGTH, length_ks, [_lengths(parts, name) for parts in flat], {"part": name})


def _numbers(values: Iterable[int]) -> Ints:
    return np.array(list(values), dtype=np.int64)


def _lengths(parts: Sequence[Part], name: str) -> Ints:
    return _numbers(len(split_words(part.content)) for part in parts if part.name == name and not part.tool)


def belonging_values(table: Sample, of: str, *, seed: int, resamples: int) -> Iterator[MetricValue]:
    """How much parts belong together: of every field and the next, or of all turns and those that follow them."""
    assert table.parts is not None
    for one, other in pairwise(table.form.fields) if table.form.fields else [("", "")]:
        found = [
            (number, (first[0], second[0]), first[1], second[1])
            for number, parts in enumerate(table.parts)
            for first, second in pairwise(parts)
            if first[1] and second[1] and (first[0], second[0]) == ((one, other) if one else (first[0], second[0]))
        ]
        settings: dict[str, Setting] = {"part": one, "other": other} if one else {}
        yield _belonging(found, len(table), of, settings, seed=seed, resamples=resamples)


def _belonging(
    pairs: Sequence[tuple[int, tuple[str, str], str, str]],
    size: int,
    of: str,
    settings: dict[str, Setting],
    *,
    seed: int,
    resamples: int,
) -> MetricValue:
    """Of pairs of a part and the next: whose record's they are, their names, and what they say."""
    records = np.array([number for number, *_ in pairs], dtype=np.int64)
    kinds = np.array([f"{first}:{second}" for _, (first, second), *_ in pairs])
    others = _of_others(records, kinds, seed)
    known = np.flatnonzero(others >= 0)
    if len(known) < 2 or not any(split_words(text) for *_, first, second in pairs for text in (first, second)):
        note = "Takes at least two records with such parts that say something."
        return MetricValue(BELONGING, None, of, settings=settings, note=note)
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectors = TfidfVectorizer(analyzer=split_words).fit_transform(text for *_, a, b in pairs for text in (a, b))
    ours, theirs = vectors[0::2], vectors[1::2]
    more = np.asarray(ours[known].multiply(theirs[known] - theirs[others[known]]).sum(axis=1)).ravel()
    chosen = whole_and_subsamples([size], seed=seed, resamples=resamples)[0]
    whole = float(more.mean())
    means = [float(more[kept].mean()) if kept.any() else whole for kept in chosen[:, records[known]]]
    return value_of_subsamples(BELONGING, means, of, low=-1.0, high=1.0, settings=settings)


def _of_others(records: Ints, kinds: NDArray[np.str_], seed: int) -> Ints:
    """For each pair one of the same kind of another record, at random; -1 where there is none.

    Pairs of a kind are ordered by their records, which are in random order, and moved on by as many as the record with
    the most of them has.
    """
    order = np.random.default_rng(seed).permutation(int(records.max(initial=0)) + 1)
    found = np.full(len(records), -1, dtype=np.int64)
    for kind in np.unique(kinds):
        mine = np.flatnonzero(kinds == kind)
        mine = mine[np.argsort(order[records[mine]], kind="stable")]
        moved = np.roll(mine, int(np.bincount(records[mine]).max()))
        found[mine] = np.where(records[mine] == records[moved], -1, moved)
    return found
