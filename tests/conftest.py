"""What every test shares: hypothesis measures no time, for a busy machine is no fault, and tries fifty examples where
no number is named; ledgers begin by themselves; privacy losses of the same events are computed once."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from shutil import disk_usage
from typing import Any

if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the processors: before any library reads it
    os.environ.setdefault("OMP_NUM_THREADS", "1")

os.environ.setdefault("UNDERSTUDY_DTYPE", "float32")  # the same models on every processor

import numpy as np
import pytest
from hypothesis import settings
from numpy.typing import NDArray
from pyarrow.fs import FileSystem

from understudy.base import heartbeat
from understudy.ledger import location
from understudy.privacy import accountant, events, guarantee, subsampled
from understudy.privacy.noise import NoiseKind, SystemNoise
from understudy.text.gate import Earlier, Gate

for folder in ("models", "methods/private_prediction", "methods", "run"):  # what several rooms share
    sys.path.insert(0, str(Path(__file__).parent / folder))

IN_MEMORY = Path("/dev/shm")
if os.access(IN_MEMORY, os.W_OK) and disk_usage(IN_MEMORY).free > 4 * 1024**3:
    os.environ.setdefault(
        "PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY)
    )  # no test cuts the power, so none need wait for a disk

settings.register_profile("understudy", deadline=None, max_examples=50)
settings.load_profile("understudy")


@pytest.fixture(autouse=True)
def ledgers_begin_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every place is as good as the default one, so that a test need not begin its ledger before it runs something.

    Tests of ledgers themselves, and of the documentation, have them as users do.
    """
    monkeypatch.setattr("understudy.ledger.ledger.begins_by_itself", lambda _location: True)


@pytest.fixture(scope="session", autouse=True)
def drives_last() -> Iterator[frozenset[str]]:
    """No new ledger warns that its drive is in memory, as the tests' folder is; the test of that warning undoes this.

    The value is the set of drive types that do not last.
    """
    passing = location.PASSING
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(location, "PASSING", frozenset())
        yield passing


@pytest.fixture(scope="session", autouse=True)
def the_machine_is_idle() -> Iterator[None]:
    """No command is slow enough to show a sign of life, however busy the machine is; the tests of those undo this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(heartbeat, "SECONDS", 3600.0)
        yield


@pytest.fixture(scope="session", autouse=True)
def guides_are_asked_for() -> Iterator[None]:
    """No run of a test embeds its texts because the embedder happens to be installed; tests of the decision say so."""
    from understudy.methods.additions.guide import addition as guide_addition
    from understudy.run import defaults as decided

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decided, "embedder_here", lambda _name: False)
        patch.setattr(guide_addition, "embedder_here", lambda _name: True)
        yield


_FAULT, _TAKES = Gate.fault, Earlier.takes


@pytest.fixture(scope="session", autouse=True)
def stand_ins_pass() -> Iterator[None]:
    """The gate lets the answers of stand-ins for models pass, which are no texts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gate, "fault", lambda *_args, **_more: None)
        patch.setattr(Earlier, "takes", lambda *_args: True)
        yield


@pytest.fixture
def gate_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have it: texts are read."""
    monkeypatch.setattr(Gate, "fault", _FAULT)
    monkeypatch.setattr(Earlier, "takes", _TAKES)


@pytest.fixture(scope="session", autouse=True)
def tables_are_english() -> Iterator[Callable[..., str | None]]:
    """Tables whose names tell no language are English, so that a test need not state it."""
    from understudy.run import defaults as decided

    asked = decided.language_of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decided, "language_of", lambda config, table: asked(config, table) or "en")
        yield asked


@pytest.fixture
def languages_are_asked_for(tables_are_english: Callable[..., str | None], monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have it: nothing is charged where neither the user nor the table's names tell the language."""
    from understudy.run import defaults as decided

    monkeypatch.setattr(decided, "language_of", tables_are_english)


@pytest.fixture(scope="session", autouse=True)
def maps_are_flat() -> Iterator[None]:
    """Texts are placed by two principal components: t-SNE takes most of a small evaluation; its tests set it back."""
    from understudy.evaluate.metrics import overview

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(overview, "_FEWEST", 1 << 30)
        yield


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny causal model, to be read only."""
    from local_fixtures import make_llama

    return make_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def s3_server() -> Iterator[str]:
    """The address of a store that speaks S3, on this machine alone."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(s3_server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A new bucket's address. The environment has the store's, and invented credentials; ``store`` puts files there."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    credentials = {"AWS_ACCESS_KEY_ID": "AKIAZEBRA", "AWS_SECRET_ACCESS_KEY": "zebra/secret"}
    places = {"AWS_ENDPOINT_URL": s3_server, "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    files = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    for name, value in {**credentials, **places, **files}.items():
        monkeypatch.setenv(name, value)
    name = f"bucket-{secrets.token_hex(6)}"
    FileSystem.from_uri(f"s3://{name}?allow_bucket_creation=true")[0].create_dir(name)
    return f"s3://{name}"


@pytest.fixture
def store(bucket: str) -> Callable[[str, bytes], str]:
    """Put bytes under a key of the bucket; returns the address."""

    def put(key: str, content: bytes) -> str:
        opened, name = FileSystem.from_uri(bucket)
        with opened.open_output_stream(f"{name}/{key}", compression=None) as stream:
            stream.write(content)
        return f"{bucket}/{key}"

    return put


@pytest.fixture(scope="session", autouse=True)
def privacy_losses_once() -> Iterator[None]:
    """Tests compose the same few events again and again, and dp_accounting takes up to seconds for each."""
    from dp_accounting.pld import common, privacy_loss_distribution
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution, from_privacy_parameters

    once = lru_cache(128)  # by the numbers, and a distribution by its identity

    @once
    def pure(epsilon: float, delta: float, interval: float) -> PrivacyLossDistribution:
        return from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon, delta), value_discretization_interval=interval
        )

    def on_the_grid(original: Callable[..., Any]) -> Callable[..., Any]:
        return lambda event, *, interval=None: original(event, interval=interval or GRID[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "gaussian_loss", once(events.gaussian_loss))
        patch.setattr(
            privacy_loss_distribution, "from_privacy_parameters", lambda each: pure(each.epsilon, each.delta, GRID[0])
        )
        for kind in (events.GaussianEvent, events.SubsampledGaussianEvent):
            patch.setattr(kind, "to_pld", on_the_grid(kind.to_pld))
        for name in ("compose", "self_compose"):
            patch.setattr(PrivacyLossDistribution, name, once(getattr(PrivacyLossDistribution, name)))
        patch.setattr(guarantee, "_zcdp_delta", lru_cache(10_000)(guarantee._zcdp_delta))
        yield


FINE, COARSE = 1e-4, 1e-3
# Of privacy losses: the accountant's own; where whole runs are tested one that is faster, and says a little more.
GRID = [FINE]
WHOLE_RUNS = {"audit", "engine", "run", "test_the_examples_of_a_page_run"}


# Numbers of a value that are sampled exactly where whole runs are tested.
EXACT = 256
LONG_VALUES = [False]
QUICK_NOISE = WHOLE_RUNS - {"audit"} | {"test_the_examples_in_docstrings_are_true"}


@pytest.fixture(scope="session", autouse=True)
def long_values_have_quick_noise() -> Iterator[None]:
    """Where whole runs are tested, the first numbers of a value are sampled exactly and the others rounded, which is a
    hundred times as fast; the tests of noise and of mechanisms are not among them."""
    exactly = SystemNoise.draw

    def draw(self: SystemNoise, kind: NoiseKind, *, scale: float, size: int) -> NDArray[np.int64]:
        exact = exactly(self, kind, scale=scale, size=min(size, EXACT) if LONG_VALUES[0] else size)
        generator = np.random.default_rng()
        quick = generator.normal if kind == "gaussian" else generator.laplace
        return np.concatenate([exact, np.rint(quick(0.0, scale, size - len(exact))).astype(np.int64)])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SystemNoise, "draw", draw)
        yield


def pytest_runtest_setup(item: pytest.Item) -> None:
    names = {item.path.parent.name, item.name.partition("[")[0]}
    LONG_VALUES[0] = bool(names & QUICK_NOISE)
    grid = COARSE if names & WHOLE_RUNS else FINE
    if grid != GRID[0]:
        GRID[0] = grid
        searched = (subsampled.subsampled_multiplier, subsampled.votes_epsilon)
        for known in (accountant._numerical_epsilon, accountant._losses, *searched):
            known.cache_clear()


LONGEST = {"test_site.py", "test_kill_moments.py", "test_ledger_kills.py", "test_notebooks.py", "test_embedded_run.py"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest, so that no worker is left alone with one."""
    items.sort(key=lambda item: item.path.name not in LONGEST)


def pytest_collection() -> None:
    """Nothing that is imported now is garbage."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Every full collection of garbage would go through all that is imported by now."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, for some tests wait: for a server, a disk, a process that dies."""
    return 1 + (os.cpu_count() or 1)
