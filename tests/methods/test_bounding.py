"""Which records of a unit are used: decided by the unit's own records and the dataset's key alone."""

from __future__ import annotations

import numpy as np
import pytest
from tiny_corpora import KEY, OWNER, RECORD, Row, TinyTable, bounded

from understudy.corpus.bounding import BoundedCorpus
from understudy.privacy.unit import Unit


def used(corpus: BoundedCorpus) -> list[tuple[str, int, int]]:
    """(text, label, share) of the records that are used, sorted."""
    return sorted(
        (text, int(label), int(share))
        for batch in corpus.batches()
        for text, label, share in zip(batch.texts, batch.labels, batch.shares, strict=True)
    )


MANY = [Row(f"text {number}", number % 3, "ann") for number in range(20)]


def test_for_record_and_secret_units_every_record_is_a_unit_of_its_own_and_weighs_one() -> None:
    rows = [Row("same", 0, "ann"), Row("same", 0, "ann"), Row("", 2, "bob")]
    for unit in (RECORD, Unit("secret", 3)):
        assert used(bounded(rows, unit)) == [("", 2, 1), ("same", 0, 1), ("same", 0, 1)]
        units = [int(number) for batch in bounded(MANY, unit, batch_size=7).batches() for number in batch.units]
        assert units == list(range(20))

    class Ownerless(TinyTable):
        def batches(self):  # type: ignore[no-untyped-def]
            for batch in super().batches():
                yield type(batch)(batch.texts, batch.labels, None)

    assert used(BoundedCorpus(Ownerless((Row("a"),)), RECORD, KEY)) == [("a", 0, 1)]


@pytest.mark.parametrize("records", [1, 3, 20, 100])
def test_an_owner_has_at_most_k_records_that_together_weigh_at_most_one(records: int) -> None:
    chosen = used(bounded(MANY, Unit("owner", records)))
    assert len(chosen) == min(records, 20)
    assert {share for _, _, share in chosen} == {len(chosen)}


def test_identical_records_of_an_owner_count_once_and_those_of_two_owners_twice() -> None:
    rows = [Row("same", 0, "ann"), Row("same", 0, "ann"), Row("same", 1, "ann"), Row("same", 0, "bob")]
    assert used(bounded(rows, OWNER)) == [("same", 0, 1), ("same", 0, 2), ("same", 1, 2)]


@pytest.mark.parametrize("batch_size", [1, 7])
def test_the_choice_depends_on_the_owners_own_records_only(batch_size: int) -> None:
    chosen = used(bounded(MANY, OWNER))
    others = [Row(f"other {number}", 0, f"owner {number % 5}") for number in range(50)]
    for rows in (others + MANY, MANY[::-1] + others, [row for pair in zip(others, MANY, strict=False) for row in pair]):
        found = used(bounded(rows, OWNER, batch_size=batch_size))
        assert [each for each in found if each[0].startswith("text")] == chosen


def test_every_record_of_an_owner_is_chosen_about_equally_often_over_keys() -> None:
    counts = np.zeros(20)
    for number in range(400):
        for text, _, _ in used(BoundedCorpus(TinyTable(tuple(MANY)), Unit("owner", 5), number.to_bytes(4))):
            counts[int(text.split()[1])] += 1
    assert counts.sum() == 2_000
    assert 50 < counts.min() < counts.max() < 160  # 100 expected, standard deviation 8.7


def test_an_owners_name_and_a_text_cannot_be_mistaken_for_one_another() -> None:
    rows = [Row("a", 0, "b\x00c"), Row("a", 0, "b"), Row("0\x00a", 0, "b"), Row("a", 1, "b")]
    assert len(used(bounded(rows, OWNER))) == 4


def test_an_owner_who_appears_between_two_passes_contributes_nothing() -> None:
    rows = [Row("fever", 0, "ann"), Row("cough", 0, "bob")]
    corpus = BoundedCorpus(TinyTable(rows), Unit("owner", 2), KEY)  # type: ignore[arg-type]
    before = used(corpus)
    rows.append(Row("rash", 0, "cid"))
    assert used(corpus) == before


@pytest.mark.parametrize("batch_size", [1, 7])
def test_an_owner_has_one_number_in_all_batches_and_the_numbers_are_dense(batch_size: int) -> None:
    rows = [Row(f"text {number}", number % 3, f"owner {number % 5}") for number in range(40)]
    owner_of = {row.text: row.owner for row in rows}
    pairs = {
        (owner_of[text], int(number))
        for batch in bounded(rows, OWNER, batch_size=batch_size).batches()
        for text, number in zip(batch.texts, batch.units, strict=True)
    }
    assert len(pairs) == 5
    assert sorted(number for _, number in pairs) == list(range(5))


def hashes(corpus: BoundedCorpus) -> dict[tuple[str, int], int]:
    """By text and label, of records that are used."""
    return {
        (text, int(label)): number
        for batch in corpus.batches()
        for text, label, number in zip(batch.texts, batch.labels, batch.hashes(), strict=True)
    }


@pytest.mark.parametrize("unit", [RECORD, OWNER])
def test_a_units_hash_never_depends_on_others_or_on_where_it_stands(unit: Unit) -> None:
    others = [Row(f"other {number}", number % 3, f"owner {number}") for number in range(9)]
    before = hashes(bounded(others, unit))
    for place in (0, 4, 9):
        rows = [*others[:place], Row("", 1, "zoe"), *others[place:]]
        for size in (1, 4, 100):
            after = hashes(bounded(rows, unit, batch_size=size))
            assert {record: after[record] for record in before} == before


def test_a_records_hash_is_of_label_and_text_and_of_the_datasets_key() -> None:
    rows = [Row("same", 0, "ann"), Row("same", 1, "ann"), Row("same", 0, "bob")]
    ((batch),) = bounded(rows, RECORD).batches()
    first, other_label, copy = batch.hashes()
    assert len({first, other_label, copy}) == 3
    assert batch.hashes() == [first, other_label, copy], "asking again counts nothing twice"
    ((again),) = BoundedCorpus(TinyTable(tuple(rows)), RECORD, b"another key").batches()
    assert not set(again.hashes()) & set(batch.hashes())


def test_copies_of_a_text_are_spread_and_one_copy_more_changes_no_hash() -> None:
    copies = [Row("same") for _ in range(9)]
    other = Row("another")

    def all_hashes(rows: list[Row]) -> list[int]:
        return sorted(number for batch in bounded(rows, RECORD).batches() for number in batch.hashes())

    fewer = all_hashes([*copies, other])
    assert len(set(fewer)) == 10
    for more in (
        [*copies, other, Row("same")],
        [Row("same"), *copies, other],
        [*copies[:4], other, *copies[4:], copies[0]],
    ):
        assert set(fewer) < set(all_hashes(more))
        assert len(all_hashes(more)) == 11


def test_an_owners_hash_is_of_the_owner_in_all_labels() -> None:
    assert (
        len(set(hashes(bounded([Row(f"text {number}", number % 3, "ann") for number in range(3)], OWNER)).values()))
        == 1
    )


def test_hashes_are_64_bits_and_spread_evenly() -> None:
    found = hashes(bounded([Row(f"text {number}") for number in range(4000)], RECORD)).values()
    assert 0 <= min(found) < max(found) < 2**64
    counts = np.bincount([number % 4 for number in found])
    assert abs(counts - 1000).max() < 6 * (4000 * 3 / 16) ** 0.5
