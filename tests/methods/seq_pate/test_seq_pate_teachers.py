"""A record changes one teacher and no other by no bit; what teachers answer moves no further than is stated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from local_fixtures import make_llama
from numpy.typing import NDArray
from scipy.optimize import minimize
from test_training import make_gpt2
from tiny_corpora import OWNER, RECORD, Row, bounded, movement, random_neighbours, random_rows
from transformers import AutoModelForCausalLM, Gemma2Config, GPTNeoXConfig, PreTrainedTokenizerFast, Qwen2Config

from understudy.base.errors import ConfigError, PrivacyError
from understudy.methods.seq_pate import teachers as seq_pate
from understudy.methods.seq_pate.plan import AnswersSpec
from understudy.methods.seq_pate.student import project, shares_of, shrink
from understudy.methods.shared.decoding.tuned import Instructions, TunedModel
from understudy.models.causal import CausalModel
from understudy.models.lora import Trunk
from understudy.models.shared_prefix import hidden_states
from understudy.models.training import Block, LoRA, TokenRow, logits_of, losses_of, row_losses
from understudy.privacy.mechanisms import COUNT_GRID
from understudy.privacy.unit import Unit

PROMPTS = ((5, 6, 7), (5, 9), (8,))
TOKENS, SIZE = 12, 4
SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 64}
CONFIGS: dict[str, Any] = {
    "gpt-neox": lambda words: GPTNeoXConfig(vocab_size=words, **SMALL),
    "qwen2": lambda words: Qwen2Config(vocab_size=words, num_key_value_heads=2, **SMALL),
    "gemma2": lambda words: Gemma2Config(vocab_size=words, num_key_value_heads=2, head_dim=8, **SMALL),
}


def make_model(name: str, folder: Path) -> Path:
    if name == "llama":
        return make_llama(folder)
    if name == "gpt2":
        return make_gpt2(folder)
    make_llama(folder)
    for each in folder.glob("*.safetensors"):
        each.unlink()
    torch.manual_seed(0)
    config = CONFIGS[name](len(PreTrainedTokenizerFast.from_pretrained(folder)))
    config.max_position_embeddings, config.bos_token_id, config.eos_token_id, config.pad_token_id = 128, 1, 2, None
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: make_model(name, tmp_path_factory.mktemp(name)) for name in ("llama", "gpt2", *CONFIGS)}


def loaded(folder: Path, dtype: str = "float32") -> CausalModel:
    return CausalModel(folder, name="tiny", device="cpu", dtype=dtype)


def faculty_of(
    causal: CausalModel, *, layers: int | None = 1, steps: int = 3, batch: int = 1, size: int = SIZE, rate: float = 0.1
) -> seq_pate.Faculty:
    lora = LoRA(causal, rank=4, targets=["all"], layers=layers)
    tuned = TunedModel(lora, Instructions(PROMPTS), tokens=TOKENS)
    return seq_pate.Faculty(lora, Trunk(causal, layers=layers), tuned, seq_pate.Recipe(steps, batch, rate, size))


@pytest.fixture(scope="module", params=["llama", "gpt2"])
def causal(request: pytest.FixtureRequest, folders: dict[str, Path]) -> CausalModel:
    return loaded(folders[request.param])


@pytest.fixture(scope="module")
def llama(folders: dict[str, Path]) -> CausalModel:
    return loaded(folders["llama"])


def token_rows(*lengths: int, seed: int = 0) -> list[TokenRow]:
    generator = np.random.default_rng(seed)
    return [
        TokenRow(PROMPTS[number % 2], generator.integers(3, 250, length).astype(np.int32))
        for number, length in enumerate(lengths)
    ]


# -- one shard, one teacher -------------------------------------------------------------------------------------------

SHARDS = [token_rows(3, 12, 0), token_rows(7, seed=1), [], token_rows(1, 2, 3, 13, 5, 6, 7, 8, 9, seed=2)]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_teacher_is_the_same_bit_for_bit_whatever_the_shards_of_others_hold(
    folders: dict[str, Path], name: str, dtype: str, batch: int
) -> None:
    faculty = faculty_of(loaded(folders[name], dtype), batch=batch)
    together = faculty.train(SHARDS)
    assert together.shape == (SIZE, faculty.lora.size)
    for number, shard in enumerate(SHARDS):
        alone = faculty.train([shard if each == number else [] for each in range(SIZE)])
        assert np.array_equal(alone[number], together[number])
        assert np.array_equal(alone[number], faculty.lora.start()) is not bool(shard)


def test_a_teacher_that_is_not_finite_stays_alone(causal: CausalModel) -> None:
    """In training and in what the group answers."""
    faculty = faculty_of(causal, rate=1.0)
    found = faculty.train(SHARDS)
    broken = found.copy()
    broken[0], broken[3] = np.nan, np.inf
    optimised = faculty._gradient(*_slots(faculty, SHARDS), broken)
    plain = faculty._gradient(*_slots(faculty, SHARDS), found)
    assert not torch.isfinite(optimised[0]).all()
    assert torch.equal(optimised[1:3], plain[1:3])
    query = seq_pate.TeacherAnswers(AnswersSpec(6, None), faculty, asked(6))
    with_nan, without = (query.of_batch(seq_pate.Group(each, SIZE)) for each in (broken, found))
    alone = query.of_batch(seq_pate.Group(found[[1, 2, 1, 2]], 2))
    assert np.array_equal(with_nan, alone), "what is not finite counts as nothing"
    assert not np.array_equal(without, alone)


def _slots(faculty: seq_pate.Faculty, shards: Sequence[Sequence[TokenRow]]) -> tuple[list[Any], list[list[int]]]:
    """The first texts, as training has them."""
    block = faculty.block([shard[0] if shard else faculty.public for shard in shards])
    with torch.no_grad():
        states = faculty.trunk.below(block.tokens[:, :-1])
    return [(block, states)], [[0]] * len(shards)


@pytest.mark.parametrize("layers", [1, None])
def test_gradients_are_those_of_ordinary_autograd_on_the_whole_model(causal: CausalModel, layers: int | None) -> None:
    faculty = faculty_of(causal, layers=layers)
    generator = np.random.default_rng(0)
    start = faculty.lora.start()
    weights = np.stack([start + generator.normal(0, 0.02, len(start)) for _ in SHARDS]).astype(np.float32)
    found = faculty._gradient(*_slots(faculty, SHARDS), weights)
    for number, shard in enumerate(SHARDS):
        row = shard[0] if shard else faculty.public
        faculty.lora.load(weights[number])
        block = faculty.block([row])

        def loss(block: Block = block) -> Any:
            states = hidden_states(causal.network, input_ids=block.tokens[:, :-1], use_cache=False)
            return losses_of(logits_of(faculty.head, states, block), block).sum() / block.counts.clamp(min=1)[0]

        expected = faculty.lora.gradient(loss)
        assert bool(expected.any()) is bool(shard)
        assert float((found[number] - expected).norm()) <= 1e-6 * float(expected.norm())


def test_a_teacher_goes_through_its_shard_again_and_again(llama: CausalModel) -> None:
    """Two texts in four steps of one, as if each were there twice; and only as many as can be read."""
    two, faculty = token_rows(4, 8), faculty_of(llama, steps=4)
    again = faculty.train([two, [*two, *two], [*two, *two, *token_rows(9, 9, seed=4)], []])
    assert np.array_equal(again[0], again[1])
    assert np.array_equal(again[0], again[2])
    assert not np.array_equal(again[0], faculty.train([two[::-1]] * SIZE)[0])


def test_a_teacher_learns_its_shard(llama: CausalModel) -> None:
    faculty = faculty_of(llama, steps=30, rate=0.03)
    row = token_rows(10)[0]
    weights = faculty.train([[row], [], [], []])
    losses = []
    for each in weights[:2]:
        faculty.lora.load(each)
        with torch.no_grad(), faculty.lora.active():
            losses.append(float(row_losses(llama, llama.network, faculty.block([row]))[0]))
    assert losses[0] < losses[1] / 2


# -- the trunk --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "gpt2", *CONFIGS])
def test_a_network_that_is_cut_gives_the_same_states(folders: dict[str, Path], name: str) -> None:
    causal = loaded(folders[name])
    tokens = torch.arange(3 * 9).reshape(3, 9) % causal.vocabulary
    with torch.inference_mode():
        whole = hidden_states(causal.network, input_ids=tokens, use_cache=False)
        for layers in (1, 2, 9, None):
            trunk = Trunk(causal, layers=layers)
            assert torch.equal(trunk.above(tokens, trunk.below(tokens)), whole)
        assert torch.equal(hidden_states(causal.network, input_ids=tokens, use_cache=False), whole)


def test_a_trunk_does_not_read_the_adapters_above_it(causal: CausalModel) -> None:
    faculty = faculty_of(causal)
    tokens = torch.arange(SIZE * 9).reshape(SIZE, 9) % causal.vocabulary
    with torch.inference_mode():
        plain = faculty.trunk.below(tokens)
        above = faculty.trunk.above(tokens, plain)
        with faculty.active(np.ones((SIZE, faculty.lora.size), dtype=np.float32)):
            assert torch.equal(faculty.trunk.below(tokens), plain)
            assert not torch.equal(faculty.trunk.above(tokens, plain), above)
        assert torch.equal(faculty.trunk.above(tokens, plain), above)


def test_a_model_whose_blocks_read_more_than_states_is_refused(folders: dict[str, Path]) -> None:
    """Each block adds what the blocks before it left aside, as models with shared keys do."""
    causal = loaded(folders["llama"])
    left: dict[str, Any] = {}

    class Aside(type(causal.network.model.layers[0])):  # type: ignore[misc]
        def forward(self, states: Any, *given: Any, **named: Any) -> Any:
            found = super().forward(states, *given, **named)
            found = found + left.pop("aside") if "aside" in left else found
            if self.self_attn.layer_idx == 0:
                left["aside"] = states
            return found

    for block in causal.network.model.layers:
        block.__class__ = Aside
    causal.network.model.embed_tokens.register_forward_hook(lambda *_: left.clear())
    with pytest.raises(ConfigError, match="cannot be computed apart from the trunk"):
        Trunk(causal, layers=1)
    with pytest.raises(ConfigError, match="cannot be computed apart"):
        Trunk(SimpleNamespace(network=causal.network, head=None, vocabulary=250, model_id="tiny"), layers=1)  # type: ignore[arg-type]


# -- the trial --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 3, SIZE])
def test_teachers_that_are_separate_pass_the_trial(causal: CausalModel, size: int) -> None:
    seq_pate.require_separate_teachers(faculty_of(causal, size=size))


@dataclass(frozen=True, eq=False, repr=False)
class LeakingGradient(seq_pate.Faculty):
    """A teacher's gradient has a last bit of the others'."""

    def _gradient(self, *given: Any) -> Any:
        found = super()._gradient(*given)
        return found + 1e-6 * found.mean(0)


class LeakingTrunk:
    """A teacher's states have a last bit of the others' when they answer."""

    def __init__(self, real: Trunk) -> None:
        self.below, self._above = real.below, real.above

    def above(self, tokens: Any, states: Any) -> Any:
        found = self._above(tokens, states)
        return found if found.requires_grad else found + 1e-6 * found.mean(0)


@pytest.mark.parametrize("twin", ["gradient", "answers"])
def test_teachers_that_change_one_another_are_caught(llama: CausalModel, twin: str) -> None:
    real = faculty_of(llama)
    parts = (real.lora, real.trunk, real.tuned, real.recipe)
    leaking: Any = LeakingGradient(*parts) if twin == "gradient" else replace(real, trunk=LeakingTrunk(real.trunk))  # type: ignore[arg-type]
    with pytest.raises(PrivacyError, match="change the training of others"):
        seq_pate.require_separate_teachers(leaking)


def test_a_network_that_mixes_its_rows_is_caught(folders: dict[str, Path]) -> None:
    causal = loaded(folders["llama"])
    causal.network.model.norm.register_forward_hook(lambda _module, _given, found: found + 1e-6 * found.mean(0))
    with pytest.raises(PrivacyError, match="influence of one record would have no bound"):
        seq_pate.require_separate_teachers(faculty_of(causal))
    seq_pate.require_separate_teachers(faculty_of(causal, size=1))


# -- shards -----------------------------------------------------------------------------------------------------------


class Reader:
    """A row says its own text, in bytes."""

    instructions = Instructions(PROMPTS)

    @staticmethod
    def row(text: str, label: int) -> TokenRow:
        return TokenRow(PROMPTS[label % 2], np.frombuffer(f"{label}{text}".encode(), dtype=np.uint8).astype(np.int32))


def shards_of(rows: Sequence[Row], unit: Unit = RECORD, *, count: int = 5, slots: int = 1000) -> list[list[str]]:
    faculty: Any = SimpleNamespace(recipe=seq_pate.Recipe(slots, 1, 0.1, 2), tuned=Reader)
    found = seq_pate.Teachers(faculty, count, bounded(rows, unit), Path())._shards
    return [[bytes(row.target.astype(np.uint8)).decode() for row in shard] for shard in found]


@pytest.mark.parametrize("slots", [1, 2, 1000])
@pytest.mark.parametrize("unit", [RECORD, OWNER], ids=["record", "owner"])
def test_a_unit_changes_one_shard_wherever_it_stands(unit: Unit, slots: int) -> None:
    changed = 0
    for pair in random_neighbours(unit, pairs=100, seed=0):
        both = [shards_of(rows, unit, slots=slots) for rows in (pair.smaller, pair.larger)]
        different = sum(one != other for one, other in zip(*both, strict=True))
        assert different <= 1
        changed += different
    assert changed > 10


@pytest.mark.parametrize("unit", [RECORD, OWNER], ids=["record", "owner"])
def test_shards_do_not_depend_on_the_order_of_the_rows(unit: Unit) -> None:
    generator = np.random.default_rng(0)
    for slots in (1, 3, 1000):
        rows = random_rows(generator, owners=["ann", "bob", "cleo", "dora"], most=40)
        expected = shards_of(rows, unit, slots=slots)
        for _ in range(3):
            assert shards_of([rows[each] for each in generator.permutation(len(rows))], unit, slots=slots) == expected


def test_copies_of_a_text_are_shared_out_and_one_more_goes_to_one_shard() -> None:
    copies = [Row("the same")] * 200
    before, after = shards_of(copies), shards_of([*copies, Row("the same")])
    assert min(map(len, before)) > 20
    assert [len(one) - len(other) for one, other in zip(after, before, strict=True)].count(0) == 4
    assert sum(map(len, after)) == 201


def test_a_shard_that_is_cut_keeps_the_same_texts_as_one_that_is_read_whole() -> None:
    rows = [Row(f"note {number}") for number in range(300)]
    assert shards_of(rows, slots=3, count=2) == [shard[:3] for shard in shards_of(rows, count=2)]


def test_the_last_group_is_filled_up_and_its_fillers_do_not_answer(llama: CausalModel, tmp_path: Path) -> None:
    faculty = faculty_of(llama)
    teachers = seq_pate.Teachers(
        faculty, 6, bounded([Row(f"note {number}") for number in range(9)]), tmp_path / "teachers"
    )
    groups = list(teachers.batches())
    assert [(len(each.weights), each.real) for each in groups] == [(SIZE, SIZE), (SIZE, 2)]
    assert all(np.array_equal(each, faculty.lora.start()) for each in groups[1].weights[2:])
    query = seq_pate.TeacherAnswers(AnswersSpec(3, None), faculty, asked(3))
    most = [query.of_batch(each).sum(1).max() / COUNT_GRID for each in groups]
    assert most == [pytest.approx(SIZE, abs=1e-3), pytest.approx(2, abs=1e-3)]
    assert max(most) <= SIZE


# -- sensitivity ------------------------------------------------------------------------------------------------------


def asked(count: int, *, columns: int = 6, seed: int = 0) -> seq_pate.Questions:
    """Some of them about fewer candidates."""
    generator = np.random.default_rng(seed)
    rows = token_rows(9, 4, seed=seed)
    row = np.sort(generator.integers(2, size=count)).astype(np.int32)
    place = np.array([generator.integers(len(rows[each].target)) for each in row], dtype=np.int32)
    candidates = np.stack([generator.permutation(250)[:columns] for _ in range(count)]).astype(np.int32)
    candidates[count // 2 :, columns // 2 :] = -1
    return seq_pate.Questions(rows, row, place, candidates)


@pytest.mark.parametrize("kind", ["probabilities", "votes"])
@pytest.mark.parametrize("unit", [RECORD, OWNER], ids=["record", "owner"])
def test_no_neighbour_moves_the_answers_by_more_than_is_stated(
    causal: CausalModel, tmp_path: Path, unit: Unit, kind: Any
) -> None:
    faculty = faculty_of(causal, steps=2, rate=0.5)
    query = seq_pate.TeacherAnswers(AnswersSpec(5, None), faculty, asked(5), kind)
    folders = iter(range(1000))

    def taught(rows: Sequence[Row], unit: Unit) -> seq_pate.Teachers:
        return seq_pate.Teachers(faculty, 5, bounded(rows, unit), tmp_path / str(next(folders)))

    moved = [movement(query, pair, unit, bound=taught) for pair in random_neighbours(unit, pairs=6, seed=3)]
    assert max(max(each) for each in moved) <= 1
    assert max(each.l2 for each in moved) > 0.03


@dataclass(frozen=True)
class Told:
    """Answers of teachers who give any logits: ``Float[G, q, V]``."""

    logits: Any

    @property
    def faculty(self) -> Any:
        head = SimpleNamespace(of=lambda tokens: lambda states: states[:, tokens])
        return SimpleNamespace(head=head)

    def answers(self, candidates: NDArray[np.int32], real: int, kind: Any) -> NDArray[np.int64]:
        query = seq_pate.TeacherAnswers(AnswersSpec(1, None), self.faculty, asked(1), kind)
        return query._of(torch.from_numpy(self.logits), candidates, real)


ANY = st.one_of(
    st.sampled_from([np.nan, np.inf, -np.inf, 3e38, -3e38, 0.0, 1e-40, 88.0, -104.0]), st.floats(-30, 30, width=32)
)


@settings(max_examples=200, deadline=None)
@given(
    arrays(np.float32, (2, 3, 8), elements=ANY),
    arrays(np.int32, (3, 5), elements=st.integers(0, 7)),
    st.integers(0, 4),
    st.sampled_from(["probabilities", "votes"]),
)
def test_an_answer_is_at_most_one_in_all_whatever_the_logits(
    logits: NDArray[np.float32], candidates: NDArray[np.int32], masked: int, kind: Any
) -> None:
    candidates[:, 5 - masked :] = -1
    one, other = (Told(logits[each : each + 1]).answers(candidates, 1, kind) for each in (0, 1))
    for each in (one, other):
        assert each.dtype == np.int64
        assert (each >= 0).all()
        assert (each.sum(1) <= COUNT_GRID).all()
        assert not each[:, 5 - masked :].any()
    moved = (one - other).astype(object)
    assert abs(moved).sum() <= 2 * 3 * COUNT_GRID
    assert (moved**2).sum() <= 2 * 3 * COUNT_GRID**2
    both = Told(logits).answers(candidates, 2, kind)
    assert np.array_equal(both, one + other), "a teacher's answers do not depend on who answers beside it"
    assert np.array_equal(Told(logits).answers(candidates, 1, kind), one)


def test_answers_about_a_whole_vocabulary_add_up_to_no_more_than_one() -> None:
    """In float32 they do not: one likely token among many, whose parts are lost where they are added to it."""
    words = 50_000
    candidates = np.arange(words, dtype=np.int32)[None]
    for extra in np.linspace(0.001, 0.9, 1000):
        logits = np.full((1, 1, words), np.log(12.49 * 2.0**-23), dtype=np.float32)
        logits[0, 0, 0], logits[0, 0, 1:17] = 0, np.log(extra / 16)
        plain = torch.from_numpy(logits[0]).softmax(1).double() * (1 - 2**-20) * COUNT_GRID
        if plain.floor().sum() > COUNT_GRID:  # on how many of them depends on the processor
            assert Told(logits).answers(candidates, 1, "probabilities").sum() <= COUNT_GRID


# -- the nearest distribution -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, (1, 4), elements=st.floats(-2, 2)), arrays(np.bool_, (1, 4)))
def test_the_projection_is_the_nearest_distribution(means: NDArray[np.float64], known: NDArray[np.bool_]) -> None:
    known[0, 1] = True  # a question is about one token at least
    found = project(means, known)
    assert found.sum() == pytest.approx(1)
    assert (found >= 0).all()
    assert not found[~known].any()
    columns = known[0]
    nearest = minimize(
        lambda shares: ((shares - means[0, columns]) ** 2).sum(),
        np.full(columns.sum(), 1 / columns.sum()),
        bounds=[(0, 1)] * int(columns.sum()),
        constraints={"type": "eq", "fun": lambda shares: shares.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14},
    ).x
    assert ((found[0, columns] - means[0, columns]) ** 2).sum() <= ((nearest - means[0, columns]) ** 2).sum() + 1e-9
    assert found[0, columns] == pytest.approx(nearest, abs=1e-4)


@settings(max_examples=100, deadline=None)
@given(arrays(np.float64, (3, 7), elements=st.floats(-1e6, 1e6)))
def test_any_noisy_answer_becomes_a_distribution(means: NDArray[np.float64]) -> None:
    known = np.ones_like(means, dtype=np.bool_)
    known[0, 1:] = False  # one column
    known[1, 3:] = False
    for loss in ("kl", "top-answer"):
        candidates = np.where(known, np.arange(7), -1).astype(np.int32)
        prior = (known / known.sum(1, keepdims=True)).astype(np.float32)
        zeros = np.zeros(3, dtype=np.int32)
        found = shares_of(means, seq_pate.Questions([], zeros, zeros, candidates, prior), std=0.1, loss=loss)  # type: ignore[arg-type]
        assert np.isfinite(found).all()
        assert (found >= 0).all()
        assert found.sum(1) == pytest.approx([1] * 3, abs=1e-6)
        assert not found[~known].any()
        assert found[0, 0] == pytest.approx(1)
    assert np.array_equal(project(found, known).round(12), found), "a distribution stays as it is"


def test_answers_that_are_noise_become_what_the_student_expected_and_clear_ones_stay() -> None:
    generator = np.random.default_rng(0)
    prior = generator.dirichlet([0.2] * 20, size=400)
    truth = np.array([generator.dirichlet(10 * each + 1e-3) for each in prior])
    known = np.ones_like(prior, dtype=np.bool_)
    exact = shrink(truth, prior, known, std=1e-9)
    assert exact == pytest.approx(truth, abs=1e-6)
    for std in (0.03, 0.1, 0.3):
        noisy = truth + generator.normal(size=truth.shape) * std
        found = shrink(noisy, prior, known, std=std)
        assert ((found - truth) ** 2).sum() < 0.7 * min(((noisy - truth) ** 2).sum(), 4 * ((prior - truth) ** 2).sum())
        assert ((found - truth) ** 2).sum() < ((prior - truth) ** 2).sum()
    nothing = prior + generator.normal(size=prior.shape) * 0.1
    assert np.abs(shrink(nothing, prior, known, std=0.1) - prior).mean() < 0.02
