"""The topics of one Release counted again in another table; and what grew or shrank between the two."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from clinic import flags
from subjects import SUBJECTS, Places, table, texts

import understudy as us
from understudy.base.errors import ConfigError, ReleaseError
from understudy.ledger import Ledger
from understudy.methods.additions.topics import changes as comparing
from understudy.methods.additions.topics.changes import LEVEL, changes
from understudy.methods.additions.topics.plan import mechanisms
from understudy.methods.additions.topics.release import TopicSizes
from understudy.privacy.unit import Unit
from understudy.release import Release
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


def without(subject: str) -> list[str]:
    """The same table, with a third of the texts about one subject."""
    about = [set(subject.split()) & set(line.split()) for line in texts()]
    return [line for number, line in enumerate(texts()) if not about[number] or number % 12 < 4]


def test_centres_longer_than_embeddings_are_refused_before_the_charge(earlier: FoundTopics, april: Path) -> None:
    """Scalar products with them would round by what stands beside a record, and one record would move others."""
    centres = earlier.release.arrays["centres"]
    forged = replace(earlier.release, arrays={**earlier.release.arrays, "centres": np.full_like(centres, 4096)})
    forged.save(april / "forged.release")
    with pytest.raises(ReleaseError, match="no embeddings"):
        found(april, texts(100), str(april / "forged.release"))
    with pytest.raises(ReleaseError, match="no embeddings"):
        TopicSizes(forged.arrays["centres"])
    assert not (april / "out" / "release").exists()


# -- counting again ---------------------------------------------------------------------------------------------------


def test_known_topics_are_counted_for_the_whole_budget(earlier: FoundTopics, april: Path) -> None:
    lines = texts(1200)
    later = found(april, lines, str(file_of(earlier)))
    counts = np.bincount(earlier.assign(lines), minlength=3)
    assert [topic.name for topic in later.topics] == [topic.name for topic in earlier.topics]
    statement = later.release.statement
    assert [charge.name for charge in statement.charges] == ["sizes"]
    std = statement.noise_multiplier("sizes")
    assert std is not None
    assert std < 0.4 * mechanisms(3, BUDGET, Unit())["sizes"].noise_multiplier
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
        (_bare, "made with noise"),
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


# -- what changed -----------------------------------------------------------------------------------------------------


def test_what_grew_or_shrank_is_named_and_nothing_else(earlier: FoundTopics, april: Path) -> None:
    same = found(april, texts(1400), str(file_of(earlier)))
    assert same.changes_since(earlier) == ()
    later = found(april, without(SUBJECTS[0]), str(file_of(earlier)), fresh=True, dataset="may")
    fewer, *more = later.changes_since(earlier)
    assert fewer.topic.terms[0] in SUBJECTS[0].split()
    assert fewer.after < fewer.before
    assert fewer.low < fewer.after - fewer.before < fewer.high < 0
    assert all(each.after > each.before for each in more)


def test_topics_that_were_found_anew_are_refused(earlier: FoundTopics, april: Path) -> None:
    with pytest.raises(ReleaseError, match="other topics"):
        found(april, texts(900), 3).changes_since(earlier)


def test_other_units_and_hardly_any_record_are_refused(earlier: FoundTopics, april: Path) -> None:
    owners = found(april, texts(900), str(file_of(earlier)), owner="clinician")
    with pytest.raises(ReleaseError, match="different units"):
        owners.changes_since(earlier)
    few = {**earlier.release.arrays, "sizes": np.array([1.0, 0.5, -0.4])}
    with pytest.raises(ReleaseError, match="Too few"):
        replace(earlier, release=replace(earlier.release, arrays=few)).changes_since(earlier)


def made_of(release: Release, shares: Sequence[float], records: int, generator: np.random.Generator) -> Release:
    std = release.statement.noise_multiplier("sizes")
    assert std is not None
    sizes = generator.multinomial(records, shares) + generator.normal(0, std, len(shares))
    return replace(release, arrays={**release.arrays, "sizes": sizes})


def share_of_alarms(release: Release, *, records: int = 600) -> float:
    generator, shares = np.random.default_rng(5), (0.6, 0.3, 0.1)
    pairs = (tuple(made_of(release, shares, records, generator) for _ in range(2)) for _ in range(1000))
    return float(np.mean([len(changes(*pair)) > 0 for pair in pairs]))


@pytest.mark.slow
def test_where_nothing_changed_hardly_anything_is_named_at_the_stated_level(
    earlier: FoundTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 0.2 * LEVEL < share_of_alarms(earlier.release) < 1.4 * LEVEL
    monkeypatch.setattr(comparing.NormalDist, "inv_cdf", lambda _self, _level: 1.96)  # not corrected
    assert share_of_alarms(earlier.release) > 1.4 * LEVEL


def test_a_test_that_forgets_the_noise_names_what_did_not_change(
    earlier: FoundTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert share_of_alarms(earlier.release, records=100) < 1.4 * LEVEL
    real = comparing._shares

    def without_noise(release: Release) -> Any:
        found = real(release)
        return replace(found, variance=0 * found.variance)

    monkeypatch.setattr(comparing, "_shares", without_noise)
    assert share_of_alarms(earlier.release, records=100) > 2 * LEVEL


def test_the_page_and_json_say_what_changed_and_what_both_cost(
    earlier: FoundTopics, april: Path, understudy: Any
) -> None:
    named = table(april, without(SUBJECTS[0])) | {"data": str(april / "notes.csv"), "topics": str(file_of(earlier))}
    values = {**named, "epsilon": "4", "delta": "1e-6", "output": str(april / "out")}
    assert understudy("topics", *flags(values)).code == 0
    assert earlier.folder is not None
    both = (str(earlier.folder.root), str(april / "out"))
    page = april / "changes.html"
    said = understudy("report", *both, "--compare", "--output", str(page), "--json", code=0)
    made = json.loads(said.out)
    assert made["comparison"] == str(page)
    assert made["changes"][0]["after"] < made["changes"][0]["before"]
    told = page.read_text("utf-8")
    assert made["changes"][0]["name"] in told
    assert "epsilon = 8, delta = 2e-06" in told
    assert us.compare(list(both), page) == page
