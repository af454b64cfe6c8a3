"""The three-layer network and Deep CORAL."""

from __future__ import annotations

from fractions import Fraction
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from local_fixtures import make_bert
from scipy import sparse
from toys import toy

from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import measure_classifiers
from understudy.evaluate.metrics.utility.fitting import ExactLinear, batches, coral, fit_encoder, fit_network


def test_the_coral_loss_is_that_of_the_paper() -> None:
    generator = np.random.default_rng(0)
    first, second = generator.normal(size=(30, 5)), 2 * generator.normal(size=(17, 5)) + 3
    difference = np.cov(first, rowvar=False) - np.cov(second, rowvar=False)
    expected = (difference**2).sum() / (4 * 5**2)
    assert float(coral(torch.from_numpy(first), torch.from_numpy(second))) == pytest.approx(expected)
    assert float(coral(torch.from_numpy(first), torch.from_numpy(first + 7))) == pytest.approx(0, abs=1e-12)


def shifted(count: int, *, seed: int, recipient: bool) -> tuple[Sample, np.ndarray]:
    """Two classes. Their second clue is strong noise in the recipient's texts."""
    generator = np.random.default_rng(seed)
    targets = np.arange(count) % 2
    rows = generator.normal(scale=0.1, size=(count, 6))
    rows[:, 0] = 2 * targets - 1 + generator.normal(scale=0.4, size=count)
    rows[:, 1] = 0.6 * targets - 0.3 + generator.normal(scale=0.4, size=count)
    if recipient:
        rows[:, 1] = generator.normal(scale=1.6, size=count)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Sample(("",) * count, None, rows.astype(np.float32)), targets


def test_coral_helps_where_the_recipients_texts_vary_in_another_way() -> None:
    train, targets = shifted(90, seed=1, recipient=False)
    test, truth = shifted(300, seed=2, recipient=True)
    recipient, _ = shifted(300, seed=3, recipient=True)

    def accuracy(others: Sample | None) -> float:
        found = [np.mean(fit_network(train, targets, seed=seed, recipient=others)(test) == truth) for seed in range(2)]
        return float(np.mean(found))

    assert accuracy(recipient) > accuracy(None) + 0.02


def test_it_stops_before_it_knows_wrong_labels_by_heart(monkeypatch: pytest.MonkeyPatch) -> None:
    train = toy(400, seed=1, noise=0.4)
    targets = np.arange(400) % 3
    targets[::5] = (targets[::5] + 1) % 3
    steps: list[int] = []
    step = torch.optim.AdamW.step
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda self: steps.append(1) or step(self))
    predict = fit_network(train, targets, seed=0)
    assert len(steps) < 30 * 10
    assert np.mean(predict(toy(300, seed=2, noise=0.4)) == np.arange(300) % 3) > 0.85


def test_the_texts_held_out_are_never_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()

    def watched(rows: torch.Tensor, size: int, draw: torch.Generator):
        seen.update(rows.tolist())
        return batches(rows, size, draw)

    monkeypatch.setattr(import_module("understudy.evaluate.metrics.utility.fitting"), "batches", watched)
    fit_network(toy(200, seed=1), np.arange(200) % 3, seed=0)
    assert len(seen) == 180


def test_batches_take_every_row_once_a_round_and_each_round_in_another_order() -> None:
    drawn = batches(torch.arange(10), 4, torch.Generator().manual_seed(0))
    rounds = [torch.cat([next(drawn) for _ in range(3)]).tolist() for _ in range(2)]
    assert [sorted(each) for each in rounds] == [list(range(10))] * 2
    assert rounds[0] != rounds[1]


def test_what_it_answers_is_what_torch_computes() -> None:
    """But for the grid: the layers of a trained network, run in float32."""
    from understudy.evaluate.metrics.utility import fitting

    train, test = toy(90, seed=1, noise=0.6), toy(400, seed=2, noise=0.6)
    targets = np.arange(90) % 3
    with fitting.one_core():
        draw = torch.Generator().manual_seed(5)
        layers = fitting._train(fitting._inputs(train), torch.from_numpy(targets), None, draw)
        with torch.no_grad():
            expected = fitting._forward(layers, fitting._inputs(test)).argmax(1).numpy()
    assert np.mean(fit_network(train, targets, seed=5)(test) == expected) > 0.99


# -- fine-tuning a local encoder: a tiny one with random weights, and the built-in one --------------------------------


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"hf:{make_bert(tmp_path_factory.mktemp('bert'))}"


def letters(count: int, *, seed: int) -> tuple[Sample, np.ndarray]:
    """Texts of letters from one half of the alphabet or the other."""
    generator, targets = np.random.default_rng(seed), np.arange(count) % 2
    halves = [list("abcdef"), list("uvwxyz")]
    return Sample(tuple(" ".join(generator.choice(halves[target], 5)) for target in targets)), targets


def test_it_learns_what_its_texts_tell(encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At rates for weights that start at random."""
    monkeypatch.setattr(import_module("understudy.evaluate.metrics.utility.fitting"), "_ENCODER_RATE", 3e-3)
    monkeypatch.setattr(import_module("understudy.evaluate.metrics.utility.fitting"), "_HEAD_RATE", 1e-2)
    train, targets = letters(160, seed=1)
    test, truth = letters(60, seed=2)
    assert np.mean(fit_encoder(train, targets, seed=0, encoder=encoder)(test) == truth) > 0.9


def test_its_weights_are_tuned_and_the_folder_stays_as_it_was(encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from understudy.evaluate.metrics.utility import fitting as module

    files = {path: path.read_bytes() for path in Path(encoder.removeprefix("hf:")).rglob("*") if path.is_file()}
    changes: list[bool] = []
    tune = module._tune

    def watched(model, head, texts, targets) -> None:
        before = [each.detach().clone() for each in model.parameters() if each.requires_grad]
        tune(model, head, texts, targets)
        after = [each for each in model.parameters() if each.requires_grad]
        changes.extend(not torch.equal(one, other) for one, other in zip(before, after, strict=True))

    monkeypatch.setattr(module, "_tune", watched)
    train, targets = letters(20, seed=1)
    fit_encoder(train, targets, seed=0, encoder=encoder)
    assert np.mean(changes) > 0.8  # all but unused ones, such as a pooler's
    assert files == {path: path.read_bytes() for path in files}


def test_a_seed_repeats_it_and_global_random_numbers_stay_as_they_were(encoder: str) -> None:
    train, targets = letters(20, seed=1)
    test, _ = letters(200, seed=2)
    torch.manual_seed(3)
    expected = torch.rand(2).tolist()
    torch.manual_seed(3)
    targets = np.random.default_rng(0).permutation(targets)  # nothing to learn: what is answered hangs on the seed
    first = fit_encoder(train, targets, seed=1, encoder=encoder)(test)
    assert torch.rand(2).tolist() == expected
    assert np.array_equal(first, fit_encoder(train, targets, seed=1, encoder=encoder)(test))
    assert not np.array_equal(first, fit_encoder(train, targets, seed=2, encoder=encoder)(test))


def test_it_is_a_kind_of_classifier_that_needs_no_embeddings(encoder: str) -> None:
    synthetic, test = toy(30, seed=1), toy(12, seed=2)
    values = measure_classifiers(
        None,
        Sample(test.texts, test.labels),
        {"s": Sample(synthetic.texts, synthetic.labels)},
        kinds=["encoder"],
        seeds=1,
        encoder=encoder,
    )
    assert [each.settings["classifier"] for each in values] == ["encoder"] * 2
    assert all(each.value is not None for each in values)


# -- exact sums in a linear layer -------------------------------------------------------------------------------------


def unit_rows(count: int, width: int, *, seed: int, dtype: type = np.float32) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, width))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(dtype)


@pytest.mark.parametrize("size", [1e-6, 1.0, 300.0])
@pytest.mark.parametrize("reach", [0.5, 1.0, 37.0])
def test_it_is_the_linear_layer_up_to_its_grid(size: float, reach: float) -> None:
    generator = np.random.default_rng(0)
    weights, bias = size * generator.normal(size=(384, 5)), generator.normal(size=5)
    rows = reach * unit_rows(50, 384, seed=1)
    layer = ExactLinear.rounded(weights, bias, reach=reach)
    scale = reach * np.linalg.norm(weights, axis=0).max()
    assert np.abs(layer(rows) - (rows @ weights + bias)).max() < 2e-5 * scale


def test_every_sum_is_the_exact_one_and_within_what_float64_holds() -> None:
    weights = np.random.default_rng(0).normal(size=(384, 3)).astype(np.float32)
    rows = unit_rows(20, 384, seed=1)
    layer = ExactLinear.rounded(weights, np.zeros(3), reach=1.0)
    steps = [[int(each) for each in row] for row in np.rint(rows.astype(float) * layer.row_step)]
    columns = [[int(each) for each in column] for column in layer.weights.T]
    sums = [[sum(x * w for x, w in zip(row, column, strict=True)) for column in columns] for row in steps]
    worst = max(sum(abs(x * w) for x, w in zip(row, column, strict=True)) for row in steps for column in columns)
    assert worst < 2**53
    expected = [[float(Fraction(each) / Fraction(layer.row_step * layer.weight_step)) for each in row] for row in sums]
    assert layer(rows).tolist() == expected


def test_a_row_alone_has_the_result_that_it_has_among_others_bit_for_bit() -> None:
    weights, bias = np.random.default_rng(0).normal(size=(384, 14)), np.random.default_rng(1).normal(size=14)
    layer = ExactLinear.rounded(weights, bias, reach=1.0)
    rows = unit_rows(257, 384, seed=2)
    assert np.array_equal(np.concatenate([layer(row[None]) for row in rows]), layer(rows))


def test_sparse_rows_have_the_results_of_dense_ones() -> None:
    rows = unit_rows(40, 90, seed=0, dtype=np.float64) * (np.random.default_rng(1).random((40, 90)) < 0.1)
    layer = ExactLinear.rounded(np.random.default_rng(2).normal(size=(90, 4)), np.arange(4.0), reach=1.0)
    assert np.array_equal(layer(sparse.csr_matrix(rows)), layer(rows))
    assert np.array_equal(layer(sparse.csr_array(rows)), layer(rows))


def test_no_result_is_longer_than_its_reach() -> None:
    layer = ExactLinear.rounded(np.random.default_rng(2).normal(size=(6, 4)), np.ones(4), reach=2.0)
    assert np.linalg.norm(layer(2 * unit_rows(2000, 6, seed=0)), axis=1).max() <= layer.reach


def test_a_row_that_is_too_long_or_no_number_leaves_the_others_as_they_are() -> None:
    layer = ExactLinear.rounded(np.random.default_rng(0).normal(size=(384, 5)), np.zeros(5), reach=1.0)
    rows = unit_rows(30, 384, seed=2)
    expected = layer(rows)
    for odd in (1e30, -np.inf, np.nan):
        beside = np.vstack([rows[:7], np.full((1, 384), odd), rows[7:]])
        found = layer(beside)
        assert np.array_equal(np.delete(found, 7, axis=0), expected)
        assert np.array_equal(layer(beside[7:8]), found[7:8], equal_nan=True)
    long = rows * np.float32(1e9)
    assert np.array_equal(layer(long), np.concatenate([layer(row[None]) for row in long]))
