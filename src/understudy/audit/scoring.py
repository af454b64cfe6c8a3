"""How much a run's output looks as if a canary had been in its data: one number per canary, high where it does.

Every attack sees what leaves the building (the synthetic texts, or the Release itself) and every canary, no coin."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from understudy.audit.canaries import Canaries
from understudy.base.errors import ConfigError
from understudy.methods.dp_kps.generate import scores as density_scores
from understudy.methods.dp_kps.plan import NAME as DP_KPS
from understudy.methods.dp_kps.plan import DPKPSParameters, score_noise
from understudy.methods.registry import own_parameters
from understudy.models.types import Embedder
from understudy.release import Release
from understudy.text.vocabulary.matcher import TermMatcher
from understudy.text.vocabulary.words import split_words

_ORDER = 3


class NGramModel:
    """Interpolated trigrams with Witten-Bell weights, down to equal chances for all words::

        p(w | h) = (c(h w) + t(h) p(w | h without its first word)) / (c(h) + t(h))

    c counts in the texts, t(h) is how many different words follow h. Memory: of contexts, those alone are kept
    whose words are all in ``words``.

    Args:
        texts: to learn from.
        words: all words that will be asked about, contexts included.

    Source: Witten and Bell 1991, method C; Chen and Goodman 1999, section 2.
    """

    def __init__(self, texts: Iterable[str], *, words: Iterable[str]) -> None:
        known = frozenset(words)
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._total: Counter[tuple[str, ...]] = Counter()
        self._types: Counter[tuple[str, ...]] = Counter()
        for text in texts:
            found = split_words(text)
            for position, word in enumerate(found):
                for start in range(position, max(-1, position - _ORDER), -1):
                    context = tuple(found[start:position])
                    if context and context[0] not in known:
                        break
                    gram = (*context, word)
                    self._total[context] += 1
                    self._types[context] += gram not in self._counts
                    self._counts[gram] += 1
        self._uniform = 1 / (len(known) + self._types[()] + 1)

    def log_probability(self, words: Sequence[str], *, after: Sequence[str] = ()) -> float:
        """log p(words | after), summed over the words; natural logarithm."""
        whole = [*after, *words]
        return sum(
            math.log(self._probability(whole[position], tuple(whole[max(0, position - _ORDER + 1) : position])))
            for position in range(len(after), len(whole))
        )

    def _probability(self, word: str, context: tuple[str, ...]) -> float:
        value = self._uniform
        for start in range(len(context), -1, -1):
            history = context[start:]
            types = self._types[history]
            if types == 0:
                break
            value = (self._counts[(*history, word)] + types * value) / (self._total[history] + types)
        return value


Scores = NDArray[np.float64]

TERMS, NGRAM, EMBEDDING, RELEASE = "terms", "ngram", "embedding", "release"
ATTACKS: Mapping[str, str] = {
    TERMS: "how often the canary's rare terms occur in the synthetic texts",
    NGRAM: "log-probability of the rare suffix after its prefix in a trigram model of the synthetic texts, less that "
    "of other canaries' suffixes after the same prefix",
    EMBEDDING: "cosine of the canary with its nearest synthetic text",
    RELEASE: "log-likelihood ratio of the noisy values that the Release holds of the canary's terms (dp-kps)",
}
"""Every attack by name, in words."""

_ALTERNATIVES = 20
_PARTS = 64


def attacks_of(method: str, chosen: Sequence[str]) -> tuple[str, ...]:
    """The attacks to make on a run of ``method``: the chosen ones, or where none are, all that there are.

    Raises ConfigError if one is unknown, or does not fit the method.
    """
    possible = tuple(name for name in ATTACKS if name != RELEASE or method == DP_KPS)
    for name in chosen:
        if name not in possible:
            raise ConfigError(
                f"There is no attack {name!r} on the method {method}.", f"Attacks are {', '.join(possible)}."
            )
    return tuple(dict.fromkeys(chosen)) or possible


def score(
    attack: str, canaries: Canaries, *, texts: Sequence[str], release: Release, embedder: Embedder | None
) -> Scores:
    """``Float64[m]``: the scores of one attack."""
    makers: dict[str, Callable[[], Scores]] = {
        TERMS: lambda: term_scores(canaries, texts),
        NGRAM: lambda: ngram_scores(canaries, texts),
        EMBEDDING: lambda: embedding_scores(canaries, texts, embedder),
        RELEASE: lambda: release_scores(canaries, release),
    }
    return makers[attack]()


def term_scores(canaries: Canaries, texts: Sequence[str]) -> Scores:
    """How often the canary's terms occur in ``texts``. No other canary has them, and no record of the corpus."""
    owners = [number for number, canary in enumerate(canaries) for _ in canary.terms]
    matcher = TermMatcher([term for canary in canaries for term in canary.terms])
    found = np.zeros(len(canaries))
    for text in texts:
        for index in matcher.find(text):
            found[owners[index]] += 1
    return found


def ngram_scores(canaries: Canaries, texts: Sequence[str]) -> Scores:
    """log p(suffix | prefix) in a trigram model of ``texts``, less the mean of that of 20 other canaries' suffixes.

    Source: Meeus et al. 2025, *The Canary's Echo* (arXiv:2502.14921), who score with bigrams; the comparison with
    alternatives is the exposure of Carlini et al. 2019.
    """
    prefixes = [split_words(canary.prefix) for canary in canaries]
    suffixes = [split_words(canary.suffix) for canary in canaries]
    model = NGramModel(texts, words=(word for words in (*prefixes, *suffixes) for word in words))
    count = len(suffixes)
    others = range(1, min(_ALTERNATIVES, count - 1) + 1)
    found = np.zeros(count)
    for number, (prefix, suffix) in enumerate(zip(prefixes, suffixes, strict=True)):
        alternatives = [model.log_probability(suffixes[(number + step) % count], after=prefix) for step in others]
        found[number] = model.log_probability(suffix, after=prefix) - float(np.mean(alternatives or [0.0]))
    return found


def embedding_scores(canaries: Canaries, texts: Sequence[str], embedder: Embedder | None) -> Scores:
    """Cosine of each canary with its nearest synthetic text.

    Source: Meeus et al. 2025, who plant a canary several times and average over as many texts.
    """
    assert embedder is not None, "the audit loads one where this attack is made"
    if not texts:
        return np.zeros(len(canaries))
    ours, theirs = embedder.embed([canary.text for canary in canaries]), embedder.embed(list(texts))
    parts = [(part @ theirs.T).max(axis=1) for part in np.array_split(ours, _PARTS) if len(part)]
    return np.concatenate(parts).astype(np.float64)


def release_scores(canaries: Canaries, release: Release) -> Scores:
    """What a dp-kps Release says of the canary's terms: noisy counts and densities, each by its signal over its
    variance, which is the log-likelihood ratio for gaussian noise, up to a constant.

    A term that is not in the privatised vocabulary counts as the least that is.
    """
    parameters = DPKPSParameters(**own_parameters(release))
    mechanisms: dict[str, Any] = {charge.name: charge.mechanism for charge in release.statement.charges}
    terms = parameters.terms_per_record
    signal = 1 / math.sqrt(terms) if parameters.noise == "gaussian" else 1 / terms
    counts = np.asarray(release.arrays["counts"], dtype=np.float64)
    weighted = counts * signal / mechanisms["vocabulary"].noise_std ** 2
    least = float(weighted.min())
    labels = {label: row for row, label in enumerate(release.schema.labels)}
    by_label = np.tile(weighted, (release.schema.label_set.size, 1))
    if parameters.mode == "independent":
        variance = score_noise(parameters, mechanisms["density"].noise_multiplier) ** 2
        by_label += density_scores(parameters, release.arrays, release.parameters["seed"]) * signal / variance
    position = {term: index for index, term in enumerate(release.terms)}
    found = np.zeros(len(canaries))
    for number, canary in enumerate(canaries):
        row = by_label[0 if canary.label is None else labels[canary.label]]
        found[number] = sum(row[position[term]] if term in position else least for term in canary.terms)
    return found
