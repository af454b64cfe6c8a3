"""Fine-tuning a local encoder: a tiny one with random weights, and the built-in one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch
from local_fixtures import make_bert
from toys import toy

from understudy.base.errors import ModelError
from understudy.evaluate.metrics.sample import Sample
from understudy.evaluate.metrics.utility.classifiers import measure_classifiers
from understudy.evaluate.metrics.utility.neural import fit_encoder


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
    monkeypatch.setattr(import_module("understudy.evaluate.metrics.utility.neural"), "_ENCODER_RATE", 3e-3)
    monkeypatch.setattr(import_module("understudy.evaluate.metrics.utility.neural"), "_HEAD_RATE", 1e-2)
    train, targets = letters(160, seed=1)
    test, truth = letters(60, seed=2)
    assert np.mean(fit_encoder(train, targets, seed=0, encoder=encoder)(test) == truth) > 0.9


def test_its_weights_are_tuned_and_the_folder_stays_as_it_was(encoder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from understudy.evaluate.metrics.utility import neural as module

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


def test_a_folder_without_a_model_is_one_clear_error(tmp_path: Path) -> None:
    train, targets = letters(4, seed=1)
    with pytest.raises(ModelError, match="holds no sentence embedder"):
        fit_encoder(train, targets, seed=0, encoder=f"hf:{tmp_path}")


@pytest.mark.models
@pytest.mark.slow
def test_the_embedded_encoder_learns_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("understudy.evaluate.metrics.utility.neural"), "_ENCODER_STEPS", 15)
    train, test = toy(60, seed=1), toy(60, seed=2)
    predict = fit_encoder(train, np.arange(60) % 3, seed=0, encoder="builtin")
    assert np.mean(predict(test) == np.arange(60) % 3) > 0.9
