"""Tuning: gradients per row, what learns, the optimiser that goes on where it stood."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from local_fixtures import make_llama
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from understudy.base.errors import ConfigError, PrivacyError
from understudy.models import training
from understudy.models.causal import CausalModel
from understudy.models.lora import SCALE, Adapters, find_sites

SHAPES = training.Shapes(prompt=4, target=20, rows=4)


def make_gpt2(folder: Path) -> Path:
    """The Llama's tokenizer on a GPT-2, whose linear layers are transformers' Conv1D."""
    make_llama(folder)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    for each in folder.glob("*.safetensors"):
        each.unlink()
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=32, n_layer=2, n_head=2, n_positions=128, bos_token_id=1)
    config.eos_token_id = 2
    GPT2LMHeadModel(config).save_pretrained(folder)
    return folder


def loaded(folder: Path) -> CausalModel:
    return CausalModel(folder, name="tiny", device="cpu", dtype="float32")


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def causal(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CausalModel:
    folder = tmp_path_factory.mktemp(request.param)
    return loaded(make_llama(folder) if request.param == "llama" else make_gpt2(folder))


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> CausalModel:
    return loaded(make_llama(tmp_path_factory.mktemp("llama")))


def moved(trainable: Any, *, seed: int = 0) -> Any:
    """With weights beside those that it begins with."""
    weights = trainable.start()
    trainable.load((weights + np.random.default_rng(seed).normal(0, 0.05, len(weights))).astype(np.float32))
    return trainable


def trainables(causal: CausalModel) -> dict[str, Any]:
    return {
        "LoRA": moved(training.LoRA(causal, rank=2, targets=["all"], layers=None)),
        "one block": moved(training.Weights(causal, blocks=1)),
        "all": moved(training.Weights(causal, blocks=None)),
    }


def some_rows(causal: CausalModel, lengths: tuple[int, ...] = (3, 10, 1)) -> list[training.TokenRow]:
    generator = np.random.default_rng(3)
    return [
        training.TokenRow(
            generator.integers(3, 250, 1 + size % 4).tolist(), generator.integers(3, 250, size).astype(np.int32)
        )
        for size in lengths
    ]


def own_loss(trainable: Any, row: training.TokenRow) -> Any:
    """transformers' own loss of a row alone."""
    tokens = torch.tensor([[*row.prompt, *row.target.tolist()]])
    labels = tokens.clone()
    labels[:, : len(row.prompt)] = -100
    return trainable.network(input_ids=tokens, labels=labels).loss


# -- losses and gradients ---------------------------------------------------------------------------------------------


def test_losses_are_transformers_own_and_neither_prompt_nor_padding_has_one(causal: CausalModel) -> None:
    rows = some_rows(causal)
    block = SHAPES.block(rows, device="cpu")
    with torch.no_grad():
        found = training.token_losses(causal, causal.network, block)
        means = training.row_losses(causal, causal.network, block)
        for number, row in enumerate(rows):
            assert means[number] == pytest.approx(float(own_loss(causal, row)), rel=1e-5)
            assert (found[number] > 0).tolist() == [place < len(row.target) for place in range(block.width)]
    assert not means[len(rows) :].any()


def test_what_is_in_the_padding_changes_nothing(causal: CausalModel) -> None:
    lora = trainables(causal)["LoRA"]
    rows = some_rows(causal)
    block = SHAPES.block(rows, device="cpu")
    filled = block.tokens.clone()
    for number, row in enumerate(rows):
        filled[number, len(row.prompt) + len(row.target) :] = 77
    filled[len(rows) :] = 99
    other = replace(block, tokens=filled)
    assert torch.equal(lora.gradients(other), lora.gradients(block))
    assert not lora.gradients(block)[len(rows) :].any()


@pytest.mark.parametrize("name", ["LoRA", "one block", "all"])
def test_gradients_are_those_of_ordinary_autograd(causal: CausalModel, name: str) -> None:
    trainable = trainables(causal)[name]
    rows = some_rows(causal)
    found = trainable.gradients(SHAPES.block(rows, device="cpu"))
    assert found.shape == (SHAPES.rows, trainable.size)
    assert found.dtype == torch.float32
    for number, row in enumerate(rows):
        if name == "LoRA":
            leaves = [each.clone().requires_grad_() for each in trainable._tensors]
            with trainable.adapters.active(leaves):
                loss = own_loss(trainable, row)
            expected = torch.cat([each.flatten() for each in torch.autograd.grad(loss, leaves[1::2])])
        else:
            expected = trainable.gradient(partial(own_loss, trainable, row))
        assert torch.allclose(found[number], expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-4)
        assert float(expected.norm()) > 0


def test_weights_that_do_not_learn_are_shared_and_the_model_stays_as_it_is(causal: CausalModel) -> None:
    before = {name: each.clone() for name, each in causal.network.state_dict().items()}
    for blocks, everything in ((1, False), (None, True)):
        weights = training.Weights(causal, blocks=blocks)
        assert np.array_equal(weights.joined(weights.named(weights.start())), weights.start())
        weights.load(weights.start() + 1)
        assert np.array_equal(weights.joined(weights.named(weights.start())), weights.start())
        parameters = dict(weights.network.named_parameters())
        shared = {name for name, each in causal.network.named_parameters() if parameters[name] is each}
        assert bool(shared) is not everything
        assert weights.size == sum(each.numel() for name, each in parameters.items() if name not in shared)
    assert all(torch.equal(before[name], each) for name, each in causal.network.state_dict().items())
    with pytest.raises(ConfigError, match="do not fit the model"):
        weights.joined({"other": np.zeros(3)})


@pytest.mark.parametrize("name", ["LoRA", "one block"])
def test_gradients_that_rows_leave_alone_pass_the_trial(causal: CausalModel, name: str) -> None:
    training.require_separate_gradients(trainables(causal)[name], SHAPES)
    training.require_separate_gradients(trainables(causal)[name], replace(SHAPES, rows=1))


class Twin:
    """Broken: a row's gradient depends on the others, its place, or whether it is the last."""

    def __init__(self, real: Any, broken: Callable[[Any], Any]) -> None:
        self.causal, self.real, self.broken = real.causal, real, broken
        self.start, self.load = real.start, real.load

    def gradients(self, block: training.Block) -> Any:
        return self.broken(self.real.gradients(block))


TWINS: dict[str, Callable[[Any], Any]] = {
    "others": lambda found: found + 1e-6 * found.mean(0),
    "place": lambda found: found * (1 + 1e-6 * torch.arange(len(found))[:, None]),
    "the end": lambda found: torch.cat([found[:-1], found[-1:] * (1 + 1e-6)]),
}


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("rows", [2, 3, 4, 5])
def test_gradients_that_rows_change_are_caught(llama: CausalModel, twin: str, rows: int) -> None:
    broken: Any = Twin(trainables(llama)["LoRA"], TWINS[twin])
    with pytest.raises(PrivacyError, match="change with the other texts"):
        training.require_separate_gradients(broken, replace(SHAPES, rows=rows))
    training.require_separate_gradients(broken, replace(SHAPES, rows=1))  # alone there is nothing beside it


# -- shapes -----------------------------------------------------------------------------------------------------------


def test_a_rows_width_follows_from_its_own_length(llama: CausalModel) -> None:
    assert SHAPES.widths == (12, 28)
    rows = some_rows(llama, (1, 12, 13, 20, 5))
    assert [SHAPES.width_of(row) for row in rows] == [12, 12, 28, 28, 12]
    blocks = list(SHAPES.blocks(rows, device="cpu"))
    assert [(block.width, real) for block, real in blocks] == [(12, 3), (28, 2)]
    assert {tuple(block.tokens.shape) for block, _ in blocks} == {(4, 16), (4, 32)}
    assert not list(SHAPES.blocks([], device="cpu"))
    assert [real for _, real in SHAPES.blocks(some_rows(llama, (2,) * 9), device="cpu")] == [4, 4, 1]


def test_rows_are_read_in_whole_registers(causal: CausalModel) -> None:
    """One token less, and in adapters of some ranks a row's last bits show its place."""
    lora, seen = trainables(causal)["LoRA"], []

    def see(_module: Any, given: tuple[Any, ...], named: dict[str, Any]) -> None:
        seen.append(tuple(named["input_ids"].shape))

    base = getattr(lora.network, lora.network.base_model_prefix)
    hook = base.register_forward_pre_hook(see, with_kwargs=True)
    for block, _ in SHAPES.blocks(some_rows(causal, (1, 20)), device="cpu"):
        lora.gradients(block)
    hook.remove()
    assert seen == [(4, 16), (4, 32)]


# -- adapters ---------------------------------------------------------------------------------------------------------


def logits(network: Any) -> Any:
    with torch.no_grad():
        return network(input_ids=torch.arange(3, 13)[None]).logits


def test_an_adapter_changes_nothing_unlearnt_and_then_is_a_change_of_weights(causal: CausalModel) -> None:
    lora = training.LoRA(causal, rank=2, targets=["all"], layers=1)
    plain = logits(causal.network)
    lora.load(lora.start())
    with lora.active():
        assert torch.equal(logits(lora.network), plain)
    moved(lora)
    with lora.active():
        adapted = logits(lora.network)
    assert not torch.allclose(adapted, plain)
    assert torch.equal(logits(lora.network), plain)
    merged = training.Weights(causal, blocks=1)
    modules = dict(merged.network.named_modules())
    with torch.no_grad():
        for site, down, up in zip(lora.adapters.sites, lora._tensors[::2], lora._tensors[1::2], strict=True):
            change = SCALE * up @ down
            weight = modules[site.name].weight
            weight += change if weight.shape == change.shape and isinstance(site.module, torch.nn.Linear) else change.T
    assert torch.allclose(logits(merged.network), adapted, atol=1e-4)


def test_a_batch_may_have_an_adapter_for_each_row(llama: CausalModel) -> None:
    lora = training.LoRA(llama, rank=2, targets=["q_proj", "o_proj"], layers=None)
    tokens, alone, stacks = torch.arange(3, 13)[None], [], []
    for seed in (1, 2):
        moved(lora, seed=seed)
        stacks.append(lora._tensors)
        with torch.no_grad(), lora.active():
            alone.append(lora.network(input_ids=tokens).logits[0])
    with torch.no_grad(), lora.adapters.active([torch.stack(each) for each in zip(*stacks, strict=True)]):
        both = lora.network(input_ids=tokens.expand(2, -1)).logits
    assert torch.allclose(both, torch.stack(alone), atol=1e-5)


def test_adapters_are_active_in_their_own_thread_only_and_until_they_end(llama: CausalModel) -> None:
    lora = moved(training.LoRA(llama, rank=2, targets=["all"], layers=None))
    plain, seen = logits(lora.network), []
    with lora.active():
        thread = threading.Thread(target=lambda: seen.append(logits(lora.network)))
        thread.start()
        thread.join()
        with pytest.raises(RuntimeError), lora.active():
            raise RuntimeError
        assert not torch.equal(logits(lora.network), plain)
    assert torch.equal(seen[0], plain)
    assert torch.equal(logits(lora.network), plain)


def test_sites_are_the_layers_that_are_named_in_the_last_blocks(causal: CausalModel) -> None:
    gpt2 = causal.network.config.model_type == "gpt2"
    name = "c_attn" if gpt2 else "q_proj"
    everywhere = find_sites(causal.network, targets=[name], layers=None)
    assert len(everywhere) == 2
    assert [site.name for site in find_sites(causal.network, targets=[name], layers=1)] == [everywhere[1].name]
    assert len(find_sites(causal.network, targets=[name], layers=9)) == 2
    assert len(find_sites(causal.network, targets=["all"], layers=None)) == (8 if gpt2 else 14)
    if gpt2:
        assert (everywhere[0].reads, everywhere[0].gives) == (32, 96)
    with pytest.raises(ConfigError, match="no linear layers called nothing"):
        find_sites(causal.network, targets=[name, "nothing"], layers=None)
    with pytest.raises(ConfigError, match="no stack of transformer blocks"):
        find_sites(torch.nn.Linear(16, 16), targets=["all"], layers=None)


def test_an_adapters_matrices_have_names_and_survive(llama: CausalModel) -> None:
    lora = training.LoRA(llama, rank=3, targets=["q_proj"], layers=1)
    weights = np.arange(lora.size, dtype=np.float32)
    named = lora.named(weights)
    stem = "base_model.model.model.layers.1.self_attn.q_proj.lora_"
    assert {name: each.shape for name, each in named.items()} == {
        f"{stem}A.weight": (3, 32),
        f"{stem}B.weight": (32, 3),
    }
    assert np.array_equal(lora.joined(named), weights)
    assert not lora.named(lora.start())[f"{stem}B.weight"].any()
    assert np.array_equal(lora.start(), lora.start())
    with pytest.raises(ConfigError, match="do not fit the model"):
        lora.joined({**named, "more": np.zeros((1, 1))})
    with pytest.raises(ConfigError, match="do not fit the model"):
        lora.joined({name: each.T for name, each in named.items()})


@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning:transformers")
def test_peft_gives_the_same_names_and_the_same_logits(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    llama = loaded(make_llama(tmp_path))
    lora = moved(training.LoRA(llama, rank=2, targets=["q_proj", "down_proj"], layers=None))
    with lora.active():
        expected = logits(lora.network)
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
    theirs = peft.get_peft_model(loaded(tmp_path).network, config)
    state = dict(zip(lora.adapters.shapes, lora._tensors, strict=True))
    assert peft.get_peft_model_state_dict(theirs).keys() == state.keys()
    peft.set_peft_model_state_dict(theirs, state)
    assert torch.allclose(logits(theirs), expected, atol=1e-5)


# -- optimiser --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("weight_decay", "taken"), [(0.0, 0), (0.0, 3), (0.1, 3)])
def test_a_resumed_optimiser_ends_bit_for_bit_where_one_that_did_not_stop_does(weight_decay: float, taken: int) -> None:
    generator = np.random.default_rng(0)
    start = generator.normal(size=50).astype(np.float32)
    gradients = generator.normal(size=(6, 50))
    rate = training.LearningRate(0.01, steps=6, warmup=2)
    whole = training.AdamW(start, rate, weight_decay=weight_decay)
    for each in gradients:
        whole.step(each)
    first = training.AdamW(start, rate, weight_decay=weight_decay)
    for each in gradients[:taken]:
        first.step(torch.tensor(each))
    state = first.state()
    first.step(gradients[taken])  # what was stored is a copy
    second = training.AdamW(np.zeros(50, dtype=np.float32), rate, weight_decay=weight_decay)
    second.restore(state)
    assert second.taken == taken
    for each in gradients[taken:]:
        second.step(each)
    assert np.array_equal(second.weights, whole.weights)
    assert all(np.array_equal(each, whole.state()[name]) for name, each in second.state().items())


def test_the_optimiser_is_torchs() -> None:
    weights = torch.zeros(4, requires_grad=True)
    theirs = torch.optim.AdamW([weights], lr=0.1, weight_decay=0.0)
    rate = training.LearningRate(0.1, steps=3)
    ours = training.AdamW(np.zeros(4, dtype=np.float32), rate)
    for step in range(3):
        theirs.param_groups[0]["lr"] = rate.at(step)
        weights.grad = torch.tensor([1.0, -2.0, 0.0, 1e-3])
        theirs.step()
        ours.step(weights.grad)
    assert np.array_equal(ours.weights, weights.detach().numpy())


def test_the_learning_rate_rises_and_then_falls() -> None:
    falling = training.LearningRate(0.1, steps=10, warmup=2)
    assert [falling.at(step) for step in (0, 1, 5, 9)] == pytest.approx([0.05, 0.09, 0.05, 0.01])
    assert training.LearningRate(0.1, steps=10).at(0) == 0.1
    for peak in (0.0, -1.0, 1.1, float("nan")):
        with pytest.raises(ConfigError, match="learning rate"):
            training.LearningRate(peak, steps=3)


def test_one_network_may_have_adapters_beside_others_that_are_not_active(llama: CausalModel) -> None:
    first = moved(training.LoRA(llama, rank=2, targets=["q_proj"], layers=None))
    plain = first.gradients(SHAPES.block(some_rows(llama), device="cpu"))
    Adapters(llama.network, find_sites(llama.network, targets=["q_proj"], layers=None), rank=4)
    assert torch.equal(first.gradients(SHAPES.block(some_rows(llama), device="cpu")), plain)


def test_random_rows_are_the_same_each_time_and_cost_something(llama: CausalModel) -> None:
    first, second = (training.random_rows(llama, SHAPES, targets=[7] * 3, prompts=[2] * 3, seed=0) for _ in range(2))
    assert [row.prompt for row in first] == [row.prompt for row in second]
    assert all(len(row.target) == 7 and len(row.prompt) == 2 for row in first)
    cost = training.measure_cost(trainables(llama)["LoRA"], SHAPES, target=10)
    assert cost.seconds > 0
    assert cost.bytes_per_row > 0
