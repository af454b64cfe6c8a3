"""The sentence embedder: unit vectors that do not depend on their neighbours."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from local_fixtures import make_bert
from transformers import BertConfig, BertModel

from understudy.base.errors import ModelError
from understudy.models.embedder import SentenceEmbedder

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
def test_modules_that_may_mix_texts_and_code_in_the_folder_are_refused_before_they_are_imported(
    tmp_path: Path, kind: str
) -> None:
    folder = make_bert(tmp_path)
    (folder / "code.py").write_text("raise SystemExit('it was run')")
    modules = json.loads((folder / "modules.json").read_text())
    (folder / "modules.json").write_text(json.dumps([*modules, {"idx": 3, "name": "3", "path": "", "type": kind}]))
    with pytest.raises(ModelError, match=f"module '{kind.rpartition('.')[2]}', which is code of its own or may mix"):
        SentenceEmbedder(folder, name="mine", device="cpu")


def test_a_folder_without_a_model_and_layers_of_odd_widths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no sentence embedder"):
        SentenceEmbedder(tmp_path, name="hf:./nothing")
    folder = make_bert(tmp_path)
    config = BertConfig.from_pretrained(folder)
    config.intermediate_size = 33
    BertModel(config).save_pretrained(folder)
    with pytest.raises(ModelError, match="width 33"):
        SentenceEmbedder(folder, name="odd", device="cpu")
