"""Secrets of a table: what they are, which records hold them, and the declared cap on records of one secret.

>>> from understudy.corpus import read_corpus
>>> from understudy.corpus.secrets import check_records_per_secret, incidence, secret_finder
>>> rows = [{"note": "Ann Smith, ann@example.org", "who": ["Ann"]}, {"note": "Seen with ANN.", "who": []}]
>>> corpus = read_corpus(rows, text="note", secrets="who")
>>> finder = secret_finder(corpus, detectors=["email"])
>>> check_records_per_secret(corpus, finder, 2)
>>> incidence(corpus, finder).to_csr().toarray().tolist()
[[1.0, 0.0], [1.0, 1.0]]
"""

from understudy.corpus.secrets.detectors import BUILT_IN, make_detectors
from understudy.corpus.secrets.finder import SecretFinder
from understudy.corpus.secrets.incidence import (
    Incidence,
    check_incidence,
    check_records_per_secret,
    incidence,
    records_per_secret,
    secret_finder,
    secrets_of_records,
)

__all__ = [
    "BUILT_IN",
    "Incidence",
    "SecretFinder",
    "check_incidence",
    "check_records_per_secret",
    "incidence",
    "make_detectors",
    "records_per_secret",
    "secret_finder",
    "secrets_of_records",
]
