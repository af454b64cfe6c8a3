"""One core for what scikit-learn computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_core() -> Iterator[None]:
    """Within it scikit-learn computes in one thread, so that its sums do not depend on the number of cores.

    On busy cores that is also faster: threads that wait for each other were measured to take ten times as long.
    """
    import sklearn.cluster
    import sklearn.manifold  # noqa: F401  only libraries that are loaded can be limited
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        yield
