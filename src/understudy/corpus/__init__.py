"""Read, check and write private and public tables of text.

>>> from understudy.corpus import read_corpus
>>> rows = [{"note": "Chest pain on exertion.", "department": "cardiology"}]
>>> corpus = read_corpus(rows, text="note", label="department", labels=["cardiology", "other"])
>>> [batch.texts for batch in corpus.batches()]
[['Chest pain on exertion.']]
"""

from understudy.corpus.arrow import is_frame
from understudy.corpus.corpus import Batch, Corpus
from understudy.corpus.read import TableSource, read_corpus
from understudy.corpus.schema import Schema
from understudy.corpus.sources import OnBadRow
from understudy.corpus.write import write_table

__all__ = [
    "Batch",
    "Corpus",
    "OnBadRow",
    "Schema",
    "TableSource",
    "is_frame",
    "read_corpus",
    "write_table",
]
