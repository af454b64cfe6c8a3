"""Tiny models with random weights, made where they are needed: a Llama chat model and a BERT sentence embedder."""

from __future__ import annotations

import json
from pathlib import Path

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from understudy.models import writer

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WINDOW = 256


def make_llama(
    folder: Path, *, seed: int = 0, eos: int = 2, template: str | None = CHATML, window: int = WINDOW
) -> Path:
    """A byte-level Llama of two layers whose greedy answers wander."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *letters]
    tokenizer = Tokenizer(models.BPE(vocab={name: number for number, name in enumerate(names)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(names[:3])
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token=names[eos] if eos < 3 else names[2]
    )
    fast.chat_template = template
    fast.save_pretrained(folder)
    torch.manual_seed(seed)
    config = transformers.LlamaConfig(
        vocab_size=len(names),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=window,
        initializer_range=0.6,
        bos_token_id=1,
        eos_token_id=eos,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    return folder


def random_adapters(folder: Path) -> dict[str, torch.Tensor]:
    """The writer's, random, for the model of :func:`make_llama`."""
    layers = transformers.AutoModelForCausalLM.from_pretrained(folder).model.layers
    torch.manual_seed(3)
    made = {}
    for number, layer in enumerate(layers):
        for name in writer.LINEAR:
            gives, reads = layer.get_submodule(name).weight.shape
            made[f"{number}.{name}.down"] = torch.randn(writer.RANK, reads) / 8
            made[f"{number}.{name}.up"] = torch.randn(gives, writer.RANK) / 8
    return made


def make_bert(folder: Path, *, seed: int = 0) -> Path:
    """A sentence embedder of 16 dimensions that reads letters, mean pooling, 24 tokens at most."""
    folder.mkdir(parents=True, exist_ok=True)
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz", *map("##{}".format, "abcdefghijklm")]
    names += [f"##{letter}" for letter in "nopqrstuvwxyz"]
    tokenizer = Tokenizer(models.WordPiece({name: number for number, name in enumerate(names)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    torch.manual_seed(seed)
    config = transformers.BertConfig(
        vocab_size=len(names),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=32,
        initializer_range=0.5,
    )
    transformers.BertModel(config).save_pretrained(folder)
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (path, kind) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 24, "do_lower_case": false}')
    (folder / "1_Pooling").mkdir(exist_ok=True)
    pooling = {"word_embedding_dimension": 16, "pooling_mode_mean_tokens": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder
