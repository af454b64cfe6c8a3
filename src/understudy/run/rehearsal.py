"""A rehearsal of a release before its charge: the same code on made-up records, with noise that is not charged.

A third party's method makes its plan itself, and ``release`` may ask for other charges and numbers than those planned.
Only running ``release`` shows that. So it is run once before the charge: on a few made-up records, in a folder that is
thrown away, with the checks of the real door. Its outcome is a function of public facts. A rehearsal ends early if the
method asks a language model or takes a charge in parts, because both may take hours. The methods of this package are
not rehearsed: they build each query from the plan (:meth:`~understudy.privacy.plan.Plan.query`).
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import UnderstudyError, bug
from understudy.corpus.bounding import BoundedCorpus
from understudy.corpus.corpus import Batch
from understudy.corpus.schema import Schema
from understudy.corpus.secrets import SecretFinder
from understudy.ledger.store import RunStore
from understudy.methods import usual
from understudy.methods.additions.registry import complete
from understudy.methods.base import Method, Preparation, ReleaseTools
from understudy.methods.release_schema import Contents, mismatch
from understudy.models.types import WrappedEmbedder
from understudy.privacy.measurement import Batches, OpenQuery, Query, Rates
from understudy.privacy.noise import InsecureSeededNoise
from understudy.privacy.plan import Plan, Receipt
from understudy.privacy.sample import SubsampledSums
from understudy.privacy.sealed import SealedValue
from understudy.release import Release
from understudy.run.door import Measurements

_NO_KEY = b"rehearsal"


def is_rehearsed(method: Method) -> bool:
    """Return whether the method is a third party's, and works without a model that reads private texts."""
    own = type(method).__module__.partition(".")[0] == __name__.partition(".")[0]
    return not (own or method.needs.private_model)


def rehearse(
    method: Method, plan: Plan, planned: Release, corpus: BoundedCorpus, schema: Schema, preparation: Preparation
) -> None:
    """Run ``method.prepare`` and ``method.release`` on made-up records. The release itself gets another result of
    ``prepare``, because this one may be used up.

    Args:
        planned: the Release without its content.
        corpus: the private records, of which only bounds and forms are used; no record is read.

    Raises:
        PrivacyError: if a query is not the one that its charge was planned for, a charge has no query or a query no
            charge, or the method fails otherwise.
        UnderstudyError: an error that the method itself raises.
    """
    beside = complete(Contents({}, {}), planned).charges
    own = replace(plan, charges=tuple(charge for charge in plan.charges if charge.name not in beside))
    made_up = replace(corpus, corpus=_MadeUp(schema), hash_key=_NO_KEY, engine=None, scratch=Path())
    quiet = replace(
        preparation,
        secrets=None if preparation.secrets is None else SecretFinder(("a made-up secret",)),
        embedder=None if preparation.embedder is None else _StandIn(preparation.embedder, preparation.dimension),
        say=lambda _line: None,
        progress=lambda _what, _done, _total: None,
    )
    with (
        tempfile.TemporaryDirectory(prefix="understudy-") as folder,
        RunStore.open(Path(folder) / "private", noise="seeded") as store,
    ):
        door = _Door(own, Receipt(store.run_id, own), InsecureSeededNoise(0), store, None, "")
        try:
            tools = ReleaseTools(
                **vars(quiet),
                door=door,
                writer=_Unasked() if method.needs.candidates else None,  # type: ignore[arg-type]
                prepared=method.prepare(made_up, plan, quiet),
                scratch=Path(folder) / "scratch",
                rows=_end if method.needs.rows and schema.typed else None,
            )
            released = method.release(made_up, own, tools)
            statement = replace(planned.statement, charges=own.charges)
            made = released.sealed(replace(planned, statement=statement), store.seals())
            made.save(Path(folder) / "rehearsal.release")
            if method.is_usual:
                usual.require_content(made, holds_texts=method.needs.holds_texts)
            contents = method.contents(made)
            problem = contents and mismatch(made, contents)
        except _Ended:
            return
        except UnderstudyError:
            raise
        except Exception as error:
            raise bug(
                f"The method {method.name} fails on a made-up table, before the private one is read "
                f"({type(error).__name__}: {error})",
                "`release` must run to the end on any table, also on an empty one",
            ) from error
    if problem:
        raise bug(f"The Release differs from the method's `contents`: {problem}.", "correct `contents` or `release`")


@dataclass(frozen=True)
class _MadeUp:
    """A made-up table of this schema: an empty batch, then a record of each label, each of a different owner. Texts
    with parts cannot be made up, so their table is only the empty batch."""

    schema: Schema

    def batches(self) -> Iterator[Batch]:
        yield self._batch(0)
        yield self._batch(self.size)

    @property
    def size(self) -> int:
        return 0 if self.schema.form else max(len(self.schema.labels), 1)

    def _batch(self, size: int) -> Batch:
        said = "This text was made up: it names a doctor, a ticket and the number 7."
        columns = self.schema.record_columns
        text = json.dumps(dict.fromkeys(columns, said)) if columns else said
        return Batch(
            texts=[text] * size,
            labels=np.arange(size, dtype=np.int32),
            owners=[f"owner {number}" for number in range(size)] if self.schema.owner is not None else None,
            secrets=[[] for _ in range(size)] if self.schema.secrets else None,
            cells=np.zeros((size, len(self.schema.typed)), np.int32) if self.schema.typed else None,
        )


class _Door(Measurements):
    """The door between made-up records and values that nobody uses."""

    def measure(
        self, name: str, query: Query[Any] | OpenQuery, data: Batches[Any], *, rates: Rates | None = None
    ) -> SealedValue:
        if isinstance(rates, np.ndarray) and isinstance(data, BoundedCorpus) and isinstance(data.corpus, _MadeUp):
            rates = np.resize(rates, data.corpus.size)  # there is one rate per private record
        return super().measure(name, query, data, rates=rates)

    def open(self, name: str) -> Any:
        mechanism = self.receipt.pay(name)
        if not isinstance(mechanism, SubsampledSums):
            raise _Ended
        self.opened.add(name)
        return mechanism.open(self.noise)


class _Ended(BaseException):
    """Ends a rehearsal early. No method catches it by mistake."""


def _end(*_: object) -> NoReturn:
    raise _Ended


class _Unasked:
    """A language model that ends the rehearsal if it is asked."""

    __getattr__ = _end


@dataclass(frozen=True)
class _StandIn(WrappedEmbedder):
    """An embedder with cheap vectors of the real one's shape."""

    dimension: int

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        vectors[np.arange(len(texts)), [len(text) % self.dimension for text in texts]] = 1
        return vectors
