"""Tiny dual encoders of random weights, written as a user's model folder looks."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    CLIPConfig,
    CLIPImageProcessorPil,
    CLIPModel,
    CLIPProcessor,
    CLIPTokenizer,
    PreTrainedTokenizerFast,
    SiglipConfig,
    SiglipImageProcessorPil,
    SiglipModel,
)

SIZE, WIDTH, LENGTH = 32, 16, 16
"""Of a picture's side, of the networks, of the longest text."""
_SIDE = {"hidden_size": WIDTH, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
_IMAGES = {**_SIDE, "image_size": SIZE, "patch_size": 16}


def write_clip(folder: Path, seed: int = 0, length: int = LENGTH) -> Path:
    """A CLIP whose 514 tokens are CLIP's 256 byte letters, alone and at a word's end, and its two specials."""
    letters = _byte_letters()
    tokens = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    text = {**_SIDE, "vocab_size": len(tokens), "max_position_embeddings": length, "bos_token_id": 512}
    config = CLIPConfig(
        text_config={**text, "eos_token_id": 513, "pad_token_id": 513},
        vision_config=_IMAGES,
        projection_dim=8,
    )
    tokenizer = CLIPTokenizer(
        vocab={token: place for place, token in enumerate(tokens)}, merges=[], model_max_length=length
    )
    images = CLIPImageProcessorPil(size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE})
    torch.manual_seed(seed)
    CLIPModel(config).save_pretrained(folder)
    CLIPProcessor(images, tokenizer).save_pretrained(folder)
    return folder


def write_siglip(folder: Path) -> Path:
    """A SigLIP over whole words; its text side wants every text padded to full length."""
    words = ["<pad>", "</s>", "<unk>", "a", "red", "blue", "dot", "square"]
    plain = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    plain.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=plain,
        pad_token="<pad>",
        eos_token="</s>",
        unk_token="<unk>",
        model_max_length=LENGTH,
        model_input_names=["input_ids"],
    )
    text = {**_SIDE, "vocab_size": len(words), "max_position_embeddings": LENGTH, "projection_size": WIDTH}
    torch.manual_seed(0)
    SiglipModel(SiglipConfig(text_config=text, vision_config=_IMAGES)).save_pretrained(folder)
    SiglipImageProcessorPil(size={"height": SIZE, "width": SIZE}).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _byte_letters() -> list[str]:
    """The letter that stands for each byte, as in GPT-2: printable ones for themselves, then others from 256."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    letter = {byte: chr(byte) for byte in shown} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}
    return [letter[byte] for byte in range(256)]
