"""The topics of one Release counted again in another table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from subjects import Places, table, texts

import understudy as us
from understudy.base.errors import ConfigError, ReleaseError
from understudy.ledger import Ledger
from understudy.methods.additions.topics.plan import SHARES
from understudy.methods.additions.topics.release import TopicSizes
from understudy.methods.shared.specs import LabelCountsSpec
from understudy.privacy.accountant import gaussian_split
from understudy.run.topics import FoundTopics

BUDGET = us.Budget(epsilon=4, delta="1e-6")


@pytest.fixture(scope="module", autouse=True)
def places() -> Iterator[Places]:
    with pytest.MonkeyPatch.context() as patch:
        made = Places()
        patch.setattr("understudy.models.catalog.load_embedder", lambda spec: made)
        yield made


def found(folder: Path, lines: Sequence[str], topics: Any, **options: Any) -> FoundTopics:
    owner = options.pop("owners", str)
    named = table(folder, lines, owner) | {"dataset": folder.name, "output": str(folder / "out")} | options
    return us.topics(folder / "notes.csv", BUDGET, topics=topics, **named)


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory, places: Places) -> FoundTopics:
    """To be read only."""
    folder = tmp_path_factory.mktemp("march")
    return found(folder, texts(), 3, dataset="march")


@pytest.fixture
def april(tmp_path: Path) -> Path:
    (tmp_path / "april").mkdir()
    return tmp_path / "april"


def file_of(made: FoundTopics) -> Path:
    assert made.folder is not None
    return made.folder.release_file("topics")


def test_centres_longer_than_embeddings_are_refused_before_the_charge(earlier: FoundTopics, april: Path) -> None:
    """Scalar products with them would round by what stands beside a record, and one record would move others."""
    centres = earlier.release.arrays["centres"]
    forged = replace(earlier.release, arrays={**earlier.release.arrays, "centres": np.full_like(centres, 4096)})
    forged.save(april / "forged.release")
    with pytest.raises(ReleaseError, match="not valid embeddings"):
        found(april, texts(100), str(april / "forged.release"))
    with pytest.raises(ReleaseError, match="not valid embeddings"):
        TopicSizes(LabelCountsSpec(3), forged.arrays["centres"])
    assert not (april / "out" / "release").exists()


def test_known_topics_are_counted_for_the_whole_budget(earlier: FoundTopics, april: Path) -> None:
    lines = texts(1200)
    later = found(april, lines, str(file_of(earlier)))
    counts = np.bincount(earlier.assign(lines), minlength=3)
    assert [topic.name for topic in later.topics] == [topic.name for topic in earlier.topics]
    statement = later.release.statement
    assert [charge.name for charge in statement.charges] == ["sizes"]
    std = statement.noise_multiplier("sizes")
    assert std is not None
    assert std < 0.4 * gaussian_split(BUDGET, list(SHARES.values()))[-1]
    assert [topic.size for topic in later.topics] == pytest.approx(counts, abs=8 * std)
    assert statement.private
    assert statement.epsilon_at[1e-6] == pytest.approx(4, abs=0.1)
    assert set(statement.public_inputs) == {"topics", "embedder"}
    assert later.release.parameters["topics"] == "topics.release"  # and no folder
    us.load_release(file_of(later))
    with Ledger(april / "ledger.sqlite") as ledger:
        assert len(ledger.history("april")) == 1


def test_a_folder_will_do_and_the_same_call_resumes(earlier: FoundTopics, april: Path) -> None:
    assert earlier.folder is not None
    first = found(april, texts(400), str(earlier.folder.root))
    again = found(april, texts(400), str(earlier.folder.root))
    assert again.release.digest == first.release.digest
    assert us.plan(us.Topics(topics=str(file_of(earlier))), BUDGET).plan.charges[0].name == "sizes"


def _bare(made: FoundTopics, folder: Path) -> str:
    return str(file_of(found(folder, texts(300), 2, insecure_no_noise=True, fresh=True)))


@pytest.mark.parametrize(
    ("topics", "match"),
    [
        (lambda made, folder: str(folder / "none.release"), "release|Release"),
        (lambda made, folder: str(folder / "notes.csv"), "no Release|Release"),
        (_bare, "with noise"),
    ],
    ids=["missing", "a table", "without noise"],
)
def test_what_is_no_release_of_topics_is_refused(
    earlier: FoundTopics, april: Path, topics: Callable[[FoundTopics, Path], str], match: str
) -> None:
    table(april, texts(20))
    named = topics(earlier, april)
    with pytest.raises((ReleaseError, ConfigError), match=match):
        found(april, texts(20), named, fresh=True)


def test_another_embedder_is_refused_before_the_charge(
    earlier: FoundTopics, april: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "fingerprint", "9" * 64)
    with pytest.raises(ReleaseError, match="embedder"):
        found(april, texts(20), str(file_of(earlier)))
    with Ledger(april / "ledger.sqlite") as ledger:
        assert not ledger.datasets()
