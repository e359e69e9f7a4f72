"""Tiny dual encoders of random weights, written as a user's model folder looks."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    ClapConfig,
    ClapFeatureExtractor,
    ClapModel,
    ClapProcessor,
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


def write_clap(folder: Path) -> Path:
    """A CLAP that hears a second at 48 kHz and reads a few words."""
    config = ClapConfig(
        text_config={**_SIDE, "vocab_size": 8, "max_position_embeddings": 64, "pad_token_id": 0},
        audio_config={
            "spec_size": 64, "num_mel_bins": 16, "patch_size": 4, "patch_stride": [4, 4], "window_size": 2,
            "hidden_size": 16, "patch_embeds_hidden_size": 8, "depths": [1, 1], "num_attention_heads": [2, 2],
            "num_hidden_layers": 2, "projection_dim": 8, "aff_block_r": 2,
        },
        projection_dim=8,
    )  # fmt: skip
    features = ClapFeatureExtractor(
        feature_size=16, max_length_s=1, fft_window_size=256, truncation="rand_trunc"
    )
    torch.manual_seed(0)
    ClapModel(config).save_pretrained(folder)
    ClapProcessor(features, _few_words()).save_pretrained(folder)
    return folder


def write_sentences(folder: Path) -> Path:
    """A sentence-transformers model of one vector a word."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    torch.manual_seed(0)
    SentenceTransformer(modules=[StaticEmbedding(_few_words(), embedding_dim=8)], device="cpu").save(
        str(folder)
    )
    return folder


def _few_words() -> PreTrainedTokenizerFast:
    """A tokenizer of words, six of which it knows."""
    words = ["<pad>", "<unk>", "caption", "one", "two", "are", "What", "described"]
    plain = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", unk_token="<unk>")
