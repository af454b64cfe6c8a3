"""The probe of an embedder, whatever it is, through the one method by which texts go in."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hashing import Hashing
from local_fixtures import make_bert
from numpy.typing import NDArray
from transformers import BertConfig, BertModel, LlamaConfig, LlamaModel

from understudy.base.errors import ModelError
from understudy.methods.shared.evolution.embeddings import Block, integer_vectors, private_vectors
from understudy.methods.shared.evolution.voting import nearest
from understudy.models import embedder_checks, vectors
from understudy.models import embedder_checks as trials
from understudy.models.embedder import SentenceEmbedder

FIRST = 16  # tokens that the model with dynamic positions was first trained with
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 8.0}
LONG = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "short_factor": [1.0] * 4,
    "long_factor": [4.0] * 4,
    "original_max_position_embeddings": FIRST,
    "factor": 4.0,
}


def nudged(vectors: NDArray[np.float32], rows: Any) -> NDArray[np.float32]:
    """The vectors, of which some differ in the last bit of a coordinate."""
    vectors[rows, 0] = np.nextafter(vectors[rows, 0], np.float32(2))
    return vectors


class ByPlace(Hashing):
    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return nudged(super().embed(texts), slice(7, 8))


class Remembering(Hashing):
    """A long text leaves something behind, as factors of dynamic positions do."""

    seen = 0

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        self.seen = max(self.seen, *(len(text.split()) for text in texts))
        return nudged(super().embed(texts), slice(None) if self.seen > self.longest else slice(0))


class Twin(Hashing):
    def __init__(self, wrong: Callable[[Sequence[str]], Any]) -> None:
        self._wrong = wrong

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        wrong = self._wrong(texts)
        return nudged(super().embed(texts), slice(None) if wrong is True else slice(0) if wrong is False else wrong)


def in_another_thread() -> bool:
    return threading.current_thread() is not threading.main_thread()


CHANCE = np.random.default_rng(0)
TWINS: dict[str, Hashing] = {
    "by place": ByPlace(),
    "by the longest": Twin(lambda texts: any(len(text) > 1000 for text in texts)),
    "by count": Twin(lambda texts: len(texts) == 1),
    "beside an empty text": Twin(lambda texts: [place + 1 for place, text in enumerate(texts[:-1]) if not text]),
    "by what came before": Remembering(),
    "by thread": Twin(lambda _texts: in_another_thread()),
    "at random": Twin(lambda texts: CHANCE.random(len(texts)) < 0.05),
    "by place where they are cut": Twin(
        lambda texts: [n for n, text in enumerate(texts) if n % 2 and len(text.split()) > 40]
    ),
}


def test_an_embedder_whose_texts_are_kept_apart_passes() -> None:
    embedder_checks.require_text_invariance(Hashing())


@pytest.mark.parametrize("twin", TWINS)
def test_a_bit_that_changes_with_other_texts_is_caught(twin: str) -> None:
    with pytest.raises(ModelError, match="change with the other texts"):
        embedder_checks.require_text_invariance(TWINS[twin])


def test_vectors_that_are_no_numbers_are_compared_too_and_shapes_are_checked() -> None:
    class Nothing(Hashing):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return np.full((len(texts), 4), np.nan, dtype=np.float32)

    class OneShort(Hashing):
        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            return super().embed(texts)[1:]

    embedder_checks.require_text_invariance(Nothing())
    with pytest.raises(ModelError, match="one vector per text"):
        embedder_checks.require_text_invariance(OneShort())


def test_an_embedder_that_says_nothing_of_its_sizes_is_tried_up_to_hundreds_of_words() -> None:
    seen: list[int] = []

    class Plain:
        model_id, fingerprint, local = "fake:plain", "0" * 64, True

        def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
            seen.extend(len(text.split()) for text in texts)
            return Hashing().embed(texts)

    embedder_checks.require_text_invariance(Plain())
    assert max(seen) == 768
    assert {0, 1, 2, 3, 512} <= set(seen)


# -- local models -----------------------------------------------------------------------------------------------------


def make_rope(folder: Path, rope: dict[str, Any]) -> Path:
    """A sentence embedder of 64 tokens whose position encodings hang on the longest text beyond 16."""
    make_bert(folder)
    (folder / "model.safetensors").unlink()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=60,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=FIRST if rope is DYNAMIC else 64,
        initializer_range=0.5,
        rope_parameters=rope,
    )
    LlamaModel(config).save_pretrained(folder)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 64, "do_lower_case": false}')
    return folder


def words(count: int, draw: np.random.Generator) -> str:
    return " ".join(draw.choice(list("abcdefghijklmnopqrstuvwxyz"), count))


def votes(folder: Path, records: Sequence[str], candidates: NDArray[np.int16], *, unlimited: bool) -> NDArray[Any]:
    """The exact votes of the records, embedded fifty at a time; the first one by itself, since threads that share a
    model whose factors stay in it may overwrite what a long text left there."""
    embedder = SentenceEmbedder(folder, name="rope", device="cpu")
    if unlimited:
        without_window(embedder)
    starts = [0, *range(1, len(records), 50)]
    parts = [embedder.embed(records[start : start + 50 if start else 1]) for start in starts]
    zeros = np.zeros(len(records), dtype=np.int64)
    block = Block(private_vectors(np.concatenate(parts)), zeros.astype(np.int32), zeros)
    (found,) = nearest([block], candidates, np.zeros(len(candidates), dtype=np.int32), device=None)
    return np.bincount(found[:, 0], minlength=len(candidates))


def without_window(embedder: SentenceEmbedder) -> None:
    """The twin: texts are cut at the model's own 64 tokens, as they were."""
    embedder.longest, embedder._columns = 64, [16, 24, 32, 48, 72]


@pytest.mark.parametrize("rope", [DYNAMIC, LONG], ids=["dynamic", "longrope"])
def test_one_long_record_moves_no_vote_of_others_where_positions_hang_on_the_longest_text(
    tmp_path: Path, rope: dict[str, Any]
) -> None:
    folder, draw = make_rope(tmp_path, rope), np.random.default_rng(0)
    records, longest = [words(20, draw) for _ in range(200)], words(60, draw)
    texts = [words(20, draw) for _ in range(40)]
    candidates = integer_vectors(SentenceEmbedder(folder, name="rope", device="cpu").embed(texts))

    def moved(unlimited: bool) -> float:
        with_it = votes(folder, [longest, *records], candidates, unlimited=unlimited)
        return float(np.linalg.norm(with_it - votes(folder, records, candidates, unlimited=unlimited)))

    assert moved(False) <= 1
    embedder = SentenceEmbedder(folder, name="rope", device="cpu")
    assert embedder.longest == FIRST - 1
    embedder_checks.require_text_invariance(embedder)
    if rope is DYNAMIC:  # whose factors stay in the model; LongRoPE's change within a batch, which has one width
        assert moved(True) > 1
        without_window(embedder)
        with pytest.raises(ModelError, match="change with the other texts"):
            embedder_checks.require_text_invariance(embedder)


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_the_tiny_embedder_passes(tmp_path: Path, device: str) -> None:
    embedder_checks.require_text_invariance(SentenceEmbedder(make_bert(tmp_path), name="tiny", device=device))


def test_a_pass_is_remembered_under_all_that_decides_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The twins: another model, thread, library, processor or setting, a file that says nothing, a failure."""
    tried: list[str] = []
    monkeypatch.setenv("UNDERSTUDY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(trials, "require_text_invariance", lambda embedder: tried.append(embedder.model_id))
    embedder = SentenceEmbedder(make_bert(tmp_path / "one"), name="tiny", device="cpu")

    def is_tried(which: Any = embedder) -> bool:
        before, said = len(tried), list[str]()
        trials.require_text_invariance_here(which, say=said.append)
        assert len(said) == len(tried) - before
        return bool(said)

    assert is_tried()
    assert not is_tried()
    assert not is_tried(SentenceEmbedder(tmp_path / "one", name="tiny", device="cpu"))
    (kept,) = (tmp_path / "cache" / "trials").iterdir()
    assert kept.stat().st_mode & 0o077 == 0 or os.name == "nt"
    assert is_tried(SentenceEmbedder(make_bert(tmp_path / "two", seed=1), name="tiny", device="cpu"))
    assert is_tried(Hashing())
    assert is_tried(Hashing()), "one of somebody else's is tried each time"
    for name, value in (("UNDERSTUDY_THREADS", "3"), ("MKL_CBWR", "COMPATIBLE")):
        with monkeypatch.context() as other:
            other.setenv(name, value)
            assert is_tried()
    with monkeypatch.context() as other:
        other.setattr(vectors, "_machine", lambda: ("another",))
        assert is_tried()
    with monkeypatch.context() as other:  # a driver that rounds otherwise
        embed = SentenceEmbedder.embed
        other.setattr(SentenceEmbedder, "embed", lambda self, texts: nudged(embed(self, texts), 0))
        assert is_tried()
    assert not is_tried()
    kept.write_text("")
    assert is_tried()

    def fails(_embedder: object) -> None:
        raise ModelError("It changes.", "Use another.")

    monkeypatch.setattr(trials, "require_text_invariance", fails)
    kept.unlink()
    with pytest.raises(ModelError):
        trials.require_text_invariance_here(embedder, say=str)
    assert not kept.exists()


def test_attention_that_sees_the_padding_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embedder = SentenceEmbedder(make_bert(tmp_path), name="tiny", device="cpu")
    forward = embedder._model.forward

    def switching(features: dict[str, Any]) -> dict[str, Any]:
        found = forward(features)
        found["sentence_embedding"] *= 1 + 1e-6 * features["attention_mask"].float().mean()
        found["sentence_embedding"][:, 0] *= 1 + 1e-6 * features["attention_mask"].float().mean()
        return found

    monkeypatch.setattr(embedder._model, "forward", switching)
    with pytest.raises(ModelError, match="change with the other texts"):
        embedder_checks.require_text_invariance(embedder)


# -- whom texts are given to ------------------------------------------------------------------------------------------


def test_an_embedder_elsewhere_needs_the_users_word_and_one_that_does_not_say_is_refused() -> None:
    class Elsewhere(Hashing):
        local = False

    class Silent:
        model_id, fingerprint = "fake:silent", "0" * 64

    embedder_checks.require_trusted(Hashing(), trust_endpoint=False)
    assert embedder_checks.trusted_with_texts(Hashing()) == ()
    with pytest.raises(ModelError, match="sends texts away") as caught:
        embedder_checks.require_trusted(Elsewhere(), trust_endpoint=False)
    assert "--trust-endpoint" in caught.value.cure
    embedder_checks.require_trusted(Elsewhere(), trust_endpoint=True)
    assert "fake:hash read the private texts" in embedder_checks.trusted_with_texts(Elsewhere())[0]
    with pytest.raises(ModelError, match="does not say whether texts stay"):
        embedder_checks.require_trusted(Silent(), trust_endpoint=True)  # type: ignore[arg-type]


class Embedding:
    model_id = "fake"
    fingerprint = "0" * 64

    def __init__(self, of_text: Callable[[str], Sequence[float]]) -> None:
        self._of_text = of_text

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        return np.array([self._of_text(text) for text in texts], dtype=np.float32).reshape(
            len(texts), -1 if texts else 3
        )


def test_an_embedder_that_answers_everything_is_taken_with_its_dimension() -> None:
    assert embedder_checks.require_embeds_all(Embedding(lambda text: [1.0, 0.0, 0.0])) == 3
    assert (
        embedder_checks.require_embeds_all(Embedding(lambda text: [1.0, 0.0, 0.0] if text.strip() else [0.0, 0.0, 0.0]))
        == 3
    )


@pytest.mark.parametrize(
    ("of_text", "problem"),
    [
        (lambda text: [1.0 / len(text), 0.0, 0.0], "fails on an odd public text .ZeroDivisionError"),
        (lambda text: [1.0] * (3 if len(text) < 99 else 4), "fails on an odd public text .ValueError"),
        (lambda text: [2.0, 0.0, 0.0], "does not return vectors of length 1"),
        (lambda text: [float("nan"), 0.0, 0.0], "does not return vectors of length 1"),
        (lambda text: [1.0], "does not answer with one vector per text"),
    ],
)
def test_an_embedder_that_does_not_is_refused(of_text: Callable[[str], Sequence[float]], problem: str) -> None:
    with pytest.raises(ModelError, match=problem):
        embedder_checks.require_embeds_all(Embedding(of_text))


def test_a_tokenizer_that_fails_on_an_odd_text_is_refused() -> None:
    class Model:
        model_id = "fake"

        def encode(self, text: str) -> list[int]:
            return [text.index(text[0])] if text else []

    whole: Any = Model()
    embedder_checks.require_encodes_all(whole)
    for odd in embedder_checks.ODD_TEXTS:

        class Broken(Model):
            def encode(self, text: str, odd: str = odd) -> list[int]:
                return [1 // (text != odd)]

        broken: Any = Broken()
        with pytest.raises(ModelError, match="fails on an odd public text"):
            embedder_checks.require_encodes_all(broken)


# -- the sentence embedder: unit vectors that do not depend on their neighbours ---------------------------------------

TEXTS = [" ".join("abcdefghijklmnopqrstuvwxyz"[n % 20 :][: n % 7 + 1] * (n % 4 + 1)) for n in range(60)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_bert(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def embedder(folder: Path) -> SentenceEmbedder:
    return SentenceEmbedder(folder, name="tiny", device="cpu")


def test_vectors_have_unit_length(embedder: SentenceEmbedder) -> None:
    vectors = embedder.embed([*TEXTS, "", "?"])
    assert vectors.dtype == np.float32
    assert vectors.shape == (62, 16)
    assert np.abs(np.linalg.norm(vectors.astype(np.float64), axis=1) - 1).max() < 1e-6
    assert embedder.embed([]).shape == (0, 16)


def test_a_text_alone_and_among_others_has_the_same_vector_bit_for_bit(
    embedder: SentenceEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = embedder.embed(TEXTS)
    assert np.array_equal(together, np.concatenate([embedder.embed([text]) for text in TEXTS]))
    monkeypatch.setattr("understudy.models.embedder._TEXTS_AT_ONCE", 7)  # that are tokenised together
    assert np.array_equal(embedder.embed(TEXTS), together)


def test_vectors_agree_with_those_of_sentence_transformers(embedder: SentenceEmbedder, folder: Path) -> None:
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    assert np.abs(embedder.embed(TEXTS) - theirs).max() < 1e-6


def test_long_texts_are_cut_at_the_models_own_length(embedder: SentenceEmbedder) -> None:
    long = embedder.embed(
        ["a b c d e f g h i j k l m n o p q r s t u v w x y z", "a b c d e f g h i j k l m n o p q r s t u v"]
    )
    assert np.array_equal(long[0], long[1])


def test_the_fingerprint_names_weights_and_tokenizer_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    first = SentenceEmbedder(folder, name="tiny", device="cpu")
    again = make_bert(tmp_path / "again")
    (again / "README.md").write_text("another model card")
    same = SentenceEmbedder(again, name="other name", device="cpu")
    assert same.fingerprint == first.fingerprint
    assert first.model_id == f"tiny@{first.fingerprint[:12]}"
    other = SentenceEmbedder(make_bert(tmp_path / "other", seed=1), name="tiny", device="cpu")
    assert other.fingerprint != first.fingerprint
    tokenizer = again / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + "\n")
    assert SentenceEmbedder(again, name="tiny", device="cpu").fingerprint != first.fingerprint


def test_every_text_has_a_column_of_padding_and_every_batch_whole_rows(embedder: SentenceEmbedder) -> None:
    """So attention never switches to the kernel for batches without padding."""
    full = " ".join("abcdefghijklmnopqrstuvwxyz" * 3)
    longest = 0
    for batch in embedder._batches([*TEXTS, "", full, *(full[:length] for length in range(1, 60))]):
        lengths = [len(each["input_ids"]) for each in batch.tokens]
        longest = max(longest, *lengths)
        assert max(lengths) < batch.width
        assert len(batch.tokens) % 8 == 0
    assert longest == embedder.longest == 24


def test_a_model_without_a_position_left_for_padding_is_cut_one_token_earlier(tmp_path: Path) -> None:
    folder = make_bert(tmp_path)
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 32, "do_lower_case": false}')
    embedder = SentenceEmbedder(folder, name="tiny", device="cpu")
    assert embedder.longest == 31
    assert embedder.embed(["a b c d e f g h i j k l m n o p q r s t u v w x y z a b c d e f g h i"]).shape == (1, 16)


@pytest.mark.parametrize(
    "kind", ["sentence_transformers.models.LSTM", "sentence_transformers.models.Router", "code.Mine"]
)
def test_modules_that_may_mix_texts_and_code_in_the_folder_are_refused_unimported(tmp_path: Path, kind: str) -> None:
    folder = make_bert(tmp_path)
    (folder / "code.py").write_text("raise SystemExit('it was run')")
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([*modules, {"idx": 3, "name": "3", "path": "", "type": kind}]))
    with pytest.raises(ModelError, match=f"module '{kind.rpartition('.')[2]}', which is custom code or may mix"):
        SentenceEmbedder(folder, name="mine", device="cpu")


def test_a_folder_without_a_model_and_layers_of_odd_widths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="contains no sentence embedder"):
        SentenceEmbedder(tmp_path, name="hf:./nothing")
    folder = make_bert(tmp_path)
    config = BertConfig.from_pretrained(folder)
    config.intermediate_size = 33
    BertModel(config).save_pretrained(folder)
    with pytest.raises(ModelError, match="width 33"):
        SentenceEmbedder(folder, name="odd", device="cpu")
