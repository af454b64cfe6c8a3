"""The engine that processes a run's private records."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from understudy.base.errors import ConfigError, EngineError
from understudy.base.files import PRIVATE_MODE, private_folder, write_file
from understudy.models.embedder_checks import kind_of_worker
from understudy.models.types import Embedder, WrappedEmbedder
from understudy.models.vectors import uncached
from understudy.privacy.measurement import Engine
from understudy.run.settings import EngineParameters

_CHUNKS_PER_WORKER, _MOST_TEXTS = 4, 4096  # of texts that are only embedded


@contextmanager
def open_engine(config: EngineParameters, scratch: Path) -> Iterator[Engine | None]:
    """Return the named engine; None for this process.

    Args:
        scratch: private: the run's folder, used if none is named.
    """
    if config.engine == "in-process":
        if config.workers or config.scratch:
            raise ConfigError(
                "A number of workers is given, but no engine.", "Give --engine processes or --engine ray."
            )
        yield None
        return
    private_folder(scratch)
    from understudy.run.engine import Processes, RayCluster

    own = config.engine == "processes"
    engine = Processes(config.workers) if own else RayCluster(workers=config.workers, scratch=scratch)
    path, token = scratch / f"shared-{secrets.token_hex(8)}", secrets.token_bytes(16)
    try:
        write_file(path, token, mode=PRIVATE_MODE)
        if engine.ask(partial(_read, path)) != token:
            raise EngineError(
                "The machines of the cluster cannot read the run's private folder.",
                "Name a folder on a drive that all of them share: --scratch FOLDER.",
            )
        path.unlink()
        engine.ask(kind_of_worker, always=True)
        yield engine
    finally:
        path.unlink(missing_ok=True)
        engine.close()


def embedder_of_workers(config: EngineParameters, embedder: Embedder) -> Embedder:
    """Return the embedder for workers: without stored vectors if they may not see the output's folder."""
    return uncached(embedder) if config.engine == "ray" and config.scratch is not None else embedder


def embedding_on(engine: Engine | None, embedder: Embedder | None) -> Embedder | None:
    """Return an embedder that embeds on the engine's workers; without an engine, the same embedder."""
    return embedder if engine is None or embedder is None else _EngineEmbedder(embedder, engine)


@dataclass(frozen=True)
class _EngineEmbedder(WrappedEmbedder):
    """An embedder that embeds chunks of texts on an engine's workers and returns the vectors in order."""

    engine: Engine

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        size = min(_MOST_TEXTS, 1 + len(texts) // (_CHUNKS_PER_WORKER * self.engine.workers))
        chunks = [texts[start : start + size] for start in range(0, len(texts), size)] or [texts]
        return np.concatenate(list(self.engine.map(self.embedder.embed, chunks)))


def statement_of(config: EngineParameters) -> tuple[str, ...]:
    """Return the statement's sentence about the trusted operators of a cluster; none without a cluster."""
    if config.engine != "ray":
        return ()
    return (
        "The machines of a Ray cluster read the private texts (--engine ray): nothing is promised against anyone who "
        "runs them, or can read their memory, disks or network.",
    )


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None
