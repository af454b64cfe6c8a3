"""The built-in models themselves, where they are in the cache (``make models``)."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from understudy.models.builtin import BUILTIN, CHAT, EMBEDDER, builtin_path, is_pulled
from understudy.models.catalog import load_chat, load_embedder
from understudy.models.types import ChatRequest, Completion, Message

pytestmark = [
    pytest.mark.models,
    pytest.mark.skipif(not all(map(is_pulled, BUILTIN)), reason="needs: understudy models pull builtin"),
]


def test_every_file_in_the_cache_has_the_hash_of_its_manifest() -> None:
    assert all(is_pulled(model, hashes=True) for model in BUILTIN)
    for model in BUILTIN:
        assert "Apache License" in (builtin_path(model) / "LICENSE").read_text()


def test_similar_sentences_have_the_published_cosines() -> None:
    vectors = load_embedder("builtin").embed(
        ["That is a happy person", "That is a happy dog", "That is a very happy person", "Today is a sunny day"]
    )
    assert vectors.shape == (4, 384)
    assert np.allclose((vectors @ vectors.T)[0], [1, 0.695, 0.943, 0.257], atol=2e-3)


def test_a_terms_vector_does_not_depend_on_its_neighbours() -> None:
    embedder = load_embedder("builtin")
    terms = ["heart", "myocardial infarction", "the patient was seen in clinic", "a " * 400, "knee", "x-ray"]
    together = embedder.embed(terms)
    assert np.array_equal(together, np.concatenate([embedder.embed([term]) for term in terms]))


def test_the_embedder_has_its_published_configuration() -> None:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(builtin_path(EMBEDDER)), device="cpu")
    assert model.max_seq_length == 256
    assert [type(module).__name__ for module in model] == ["Transformer", "Pooling", "Normalize"]


def test_the_chat_template_is_chatml_with_the_default_system_message() -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(builtin_path(CHAT))
    turns = [{"role": "user", "content": "Hi"}]
    assert tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer("in 1984")["input_ids"][-4:] == [tokenizer.convert_tokens_to_ids(digit) for digit in "1984"]


def test_the_chat_model_answers_plain_questions_in_english() -> None:
    async def collect() -> dict[int, Completion]:
        questions = ["What is the capital of France?", "Name the colours of a traffic light."]
        requests = [ChatRequest((Message("user", text),), max_tokens=48, temperature=0.0) for text in questions]
        return {index: completion async for index, completion in load_chat("builtin").complete(requests)}

    found = asyncio.run(collect())
    assert "Paris" in found[0].text
    assert "red" in found[1].text.lower()
    assert found[0].finish_reason == "stop"
