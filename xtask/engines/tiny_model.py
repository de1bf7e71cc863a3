#!/usr/bin/env python3
"""Make a tiny language model with random weights, and its tokenizer, without any model hub.

It is a Llama with half a million parameters, so a server of it starts and answers on two CPU cores. The tokenizer
is byte-level BPE, trained on the source of Python's standard library, which every machine has. The output rows of the
special tokens are zero: greedy decoding never picks one, so replies are text and as long as asked for.

Usage: tiny_model.py OUT_FOLDER      (needs torch, transformers, tokenizers)
"""
import sys
import sysconfig
from itertools import islice
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["<unk>", "<s>", "</s>", "<pad>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>"]
VOCABULARY = 1024
POSITIONS = 4096
TEMPLATE = (
    "<s>{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def standard_library_lines():
    for module in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        yield from module.read_text(encoding="utf-8", errors="ignore").splitlines(keepends=True)


def tokenizer():
    bpe = Tokenizer(models.BPE(unk_token="<unk>"))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(islice(standard_library_lines(), 40_000), trainer)
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
        chat_template=TEMPLATE,
        model_max_length=POSITIONS,
    )


def model(tokens):
    # The CPU attention kernels take head sizes that are multiples of 32.
    config = LlamaConfig(
        vocab_size=len(tokens),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=POSITIONS,
        tie_word_embeddings=False,
        bos_token_id=tokens.bos_token_id,
        eos_token_id=tokens.eos_token_id,
        pad_token_id=tokens.pad_token_id,
    )
    torch.manual_seed(0)
    llama = LlamaForCausalLM(config).to(torch.bfloat16)
    with torch.no_grad():
        llama.lm_head.weight[: len(SPECIAL)] = 0
    return llama


def main():
    folder = sys.argv[1]
    tokens = tokenizer()
    llama = model(tokens)
    tokens.save_pretrained(folder)
    llama.save_pretrained(folder, safe_serialization=True)
    parameters = sum(p.numel() for p in llama.parameters())
    print(f"{folder}: {parameters} parameters, {len(tokens)} tokens")


if __name__ == "__main__":
    main()
