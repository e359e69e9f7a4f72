"""Recall that was published for the released weights on COCO's test split, to hold a set-up against.

Figures are percent, R@1, R@5 and R@10. ``5K`` ranks all 5,000 images and 25,000 captions, ``1K`` is the mean over
five consecutive blocks of 1,000 images in the order of ``coco_test_ids``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from mitl.records import Direction

KS = (1, 5, 10)

Recalls = tuple[float | None, float | None, float | None]
"""R@1, R@5 and R@10 in percent; None where nothing was published."""
ByDirection = Mapping[Direction, Recalls]

_I2T, _T2I = Direction.I2T, Direction.T2I
_TABLES = "ECCV Caption, Tables D.2 and D.3"


@dataclass(frozen=True, slots=True)
class Published:
    """What was published for one checkpoint (for VSRN: for two, averaged)."""

    row: str
    network: str
    what: str
    tolerance: float
    """In points of percent: how far a right set-up may be off."""
    five_k: ByDirection
    source: str
    one_k: ByDirection = field(default_factory=dict)
    one_k_source: str = ""

    def protocols(self) -> dict[str, ByDirection]:
        """The figures by protocol, those that there are."""
        by_protocol = {"5K": self.five_k, "1K": self.one_k}
        return {name: figures for name, figures in by_protocol.items() if figures}

    def recalls(self) -> dict[str, dict[str, dict[str, float | None]]]:
        """Protocol → direction → R@K → percent."""
        return {
            protocol: {
                direction.value: {f"R@{k}": value for k, value in zip(KS, values, strict=True)}
                for direction, values in by_direction.items()
            }
            for protocol, by_direction in self.protocols().items()
        }


PUBLISHED = {
    published.row: published
    for published in (
        Published(
            "pvse-k1",
            "pvse",
            "PVSE, K = 1 (coco_pvse_k1.pth)",
            0.1,
            {_I2T: (41.72, 72.96, 82.90), _T2I: (30.64, 61.37, 73.62)},
            "README of yalesong/pvse",
            {_I2T: (66.72, 91.00, 96.22), _T2I: (53.49, 85.14, 92.70)},
            "README of yalesong/pvse",
        ),
        Published(
            "pvse-k2",
            "pvse",
            "PVSE, K = 2 (coco_pvse.pth)",
            0.1,
            {_I2T: (45.18, 74.28, 84.46), _T2I: (32.42, 62.97, 74.96)},
            "README of yalesong/pvse",
            {_I2T: (69.24, 91.62, 96.64), _T2I: (55.21, 86.50, 93.73)},
            "README of yalesong/pvse",
        ),
        Published(
            "vsrn",
            "vsrn",
            "VSRN, similarities of two checkpoints averaged (model_coco_1.pth.tar, model_coco_2.pth.tar)",
            0.3,
            {_I2T: (53.02, 81.12, 89.42), _T2I: (40.46, 70.58, 81.10)},
            _TABLES,
            {_I2T: (76.20, 94.76, 97.86), _T2I: (62.77, 89.71, 94.62)},
            _TABLES,
        ),
        Published(
            "pcme",
            "pcme",
            "PCME (pcme_coco.pth)",
            0.5,
            {_I2T: (44.26, 73.52, 83.44), _T2I: (31.80, 62.17, 74.59)},
            _TABLES,
            {_I2T: (68.8, None, None), _T2I: (54.6, None, None)},
            "README of naver-ai/pcme",
        ),
        Published(
            "pcme-cutmix",
            "pcme",
            "PCME on a backbone trained with CutMix, ECCV Caption's annotator (pcme_cutmix_coco.pth)",
            0.5,
            {_I2T: (45.04, 75.12, 84.66), _T2I: (33.97, 63.77, 75.85)},
            _TABLES,
            {_I2T: (68.3, None, None), _T2I: (56.7, None, None)},
            "README of naver-ai/pcme",
        ),
        Published(
            "vilt",
            "vilt",
            "ViLT, tuned for retrieval on COCO (vilt_irtr_coco.ckpt)",
            0.3,
            {_I2T: (61.62, 86.32, 92.70), _T2I: (42.99, 72.84, 83.07)},
            "EVAL.md of dandelin/ViLT",
        ),
        Published(
            "clip",
            "clip",
            "CLIP ViT-B/32 (ViT-B-32.pt)",
            0.1,
            {_I2T: (50.12, 75.00, 83.52), _T2I: (30.44, 55.94, 66.87)},
            "retrieval results of mlfoundations/open_clip, ViT-B-32 openai",
        ),
    )
}
"""By the name that ``mitl annotators verify --published`` takes."""


_SIZES: Mapping[str, Mapping[str, object]] = {
    "pvse": {"words": 11_755, "embed": 1024},
    "vsrn": {"words": 10_006, "width": 2048, "flickr": False},
    "pcme": {"words": 11_755, "embed": 1024},
    "vilt": {"hidden_size": 768, "num_hidden_layers": 12, "image_size": 384, "vocab_size": 30_522},
    "clip": {"vision_width": 768, "patch_size": 32, "image_size": 224, "vision_layers": 12},
}
"""What an examination reads off the released files; others are not what was published."""


def default_row(
    network: str,
    read: Mapping[str, object] | None = None,
    *,
    checkpoints: int | None = None,
    file_name: str = "",
) -> Published | None:
    """What was published for a checkpoint of this network; None where nothing was.

    Args:
        network: pvse, vsrn, pcme, vilt or clip.
        read: the settings of its examination; what is not in it is taken to be as released.
        checkpoints: how many are averaged (VSRN); only two were published.
        file_name: of the weights; tells PCME's two released files apart.
    """
    stated = read or {}
    if any(stated.get(key, right) != right for key, right in _SIZES.get(network, {}).items()):
        return None
    row: str | None = network
    if network == "pvse":
        row = {1: "pvse-k1", 2: "pvse-k2"}.get(cast(int, stated.get("k", 2)))
    elif network == "vsrn" and checkpoints not in (None, 2):
        row = None
    elif network == "pcme" and not file_name.startswith("pcme_coco"):
        row = "pcme-cutmix"
    return PUBLISHED.get(row or "")


def rows_of(network: str) -> list[Published]:
    """What was published for a network's released files."""
    return [published for published in PUBLISHED.values() if published.network == network]
