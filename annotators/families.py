"""Any image-text dual encoder that ``transformers`` knows (CLIP, SigLIP, ALIGN, ...), by hub name or local folder.

Each family's own processor prepares pixels and tokens; it differs from the authors' code in details (CLIP's crop is
one pixel off on some shapes). For the figures published of CLIP ViT-B/32 use the annotator ``clip``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import torch
import transformers
from torch import Tensor

from annotators.base import Encoded, file_sha256, fingerprint, unit_rows
from annotators.devices import Running
from annotators.encoding import Inputs, NetworkAnnotator
from annotators.inputs.pixels import read_rgb
from annotators.options import Options
from mitl.errors import AnnotatorError
from mitl.records import CaptionItem, ImageItem

VERSION = 1
"""Raised when the same model and item give another embedding."""
BATCH, THREADS = 32, 2

_PADDED = ("siglip", "siglip2")
"""Families whose text side was trained on texts in lower case, padded to full length, without a mask; the tokeniser
that SigLIP 2's files name leaves capitals, which it has never seen (Tschannen et al., SigLIP 2, 2025, section 2)."""
_WEIGHTS = ("*.safetensors", "pytorch_model*.bin")
_TEXTS = ("*.json", "*.txt", "*.model")
_NEEDED = "a dual encoder such as CLIP, SigLIP or ALIGN is needed"
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """A loaded model in evaluation mode with what prepares its inputs."""

    model: transformers.PreTrainedModel
    image_processor: Any
    tokenizer: Any
    mark: str
    """The fingerprint."""


class TransformersAnnotator(NetworkAnnotator):
    """Similarity is the cosine of an image's and a text's embedding."""

    def __init__(self, name: str, parts: Parts, running: Running, *, truncate: bool) -> None:
        super().__init__(name, parts.mark, running)
        model = parts.model
        self._model = model.to(running.device)  # type: ignore[arg-type]  # its stub takes the method for a function
        self._image_processor, self._tokenizer = parts.image_processor, parts.tokenizer
        # Tokens of the longest text, special ones included.
        config = getattr(model.config, "text_config", model.config)
        self._longest = int(
            min(parts.tokenizer.model_max_length, getattr(config, "max_position_embeddings", 1 << 30))
        )
        self._padded = model.config.model_type in _PADDED
        self._cut: dict[str, Any] = {"truncation": truncate}
        if self._padded:
            self._cut["padding"] = "max_length"
        if self._padded or truncate:
            self._cut["max_length"] = self._longest

    def _kept(self, encoded: Encoded, items: Sequence[ImageItem] | Sequence[CaptionItem]) -> Encoded:
        """(N, D) float32 unit rows."""
        return Encoded(encoded.modality, encoded.ids, {"embedding": unit_rows(encoded.arrays["embedding"])})

    def read_image(self, item: ImageItem) -> Inputs:
        """``pixel_values`` and what else its image processor gives."""
        prepared = self._image_processor(images=read_rgb(item), return_tensors="np")
        return _taken(prepared, self._model.get_image_features)

    def read_caption(self, item: CaptionItem) -> Inputs:
        """Its tokeniser's numbers; AnnotatorError where they are more than the model reads."""
        text = item.text.lower() if self._padded else item.text
        prepared = self._tokenizer(text, return_tensors="np", **self._cut)
        length = prepared["input_ids"].shape[1]
        if length > self._longest:
            raise AnnotatorError(
                f"caption {item.external_id!r} has {length} tokens, but {self.name!r} reads {self._longest} at most; "
                "shorten it, leave it out, or set truncate = true"
            )
        return _taken(prepared, self._model.get_text_features)

    def _encode_images(self, inputs: dict[str, Tensor]) -> Mapping[str, Tensor]:
        return {"embedding": self._projected(self._model.get_image_features(**inputs))}

    def _encode_captions(self, inputs: dict[str, Tensor]) -> Mapping[str, Tensor]:
        return {"embedding": self._projected(self._model.get_text_features(**inputs))}

    def _projected(self, features: Any) -> Tensor:
        """The vectors in the common space: transformers 5 wraps them, older models of its own return them bare."""
        vectors = features if isinstance(features, Tensor) else getattr(features, "pooler_output", None)
        if not isinstance(vectors, Tensor) or vectors.ndim != 2:
            raise AnnotatorError(
                f"annotator {self.name!r} is a {type(self._model).__name__}, which does not give one vector an item; "
                f"{_NEEDED}"
            )
        return vectors


def build(options: Options) -> TransformersAnnotator:
    """From ``transformers`` (a hub name or a folder), ``revision``, ``truncate``, ``device``, ``threads``, ``batch``.

    A folder needs no network. A name is looked up in the user's cache and then on the hub (HF_HUB_OFFLINE=1: in
    the cache alone). Code that lies beside a model is never run.

    Raises:
        AnnotatorError: no such model, none that embeds images and texts, weights that do not fill it.
    """
    truncate = options.flag("truncate", False)
    running = Running.of(options, batch=BATCH, threads=THREADS)
    folder = _folder(options)
    with _quiet():
        model = _model(options, folder)
        image_processor = _part(options, transformers.AutoImageProcessor, folder, backend="pil")
        tokenizer = _part(options, transformers.AutoTokenizer, folder)
    mark = fingerprint(
        files=_hashes(folder),
        transformers=transformers.__version__,
        truncate=truncate,
        version=[VERSION, "lower case"] if model.config.model_type in _PADDED else VERSION,
    )
    parts = Parts(model, image_processor, tokenizer, mark)
    return TransformersAnnotator(options.annotator, parts, running, truncate=truncate)


def _folder(options: Options) -> Path:
    """Where the model's files lie, fetched first where they have to be."""
    value = options.text("transformers")
    path = options.folder / Path(value).expanduser()
    if path.is_dir():
        if "revision" in options.values:
            raise AnnotatorError(
                f"'revision' of annotator {options.annotator!r} is one of the hub's, but 'transformers' names the "
                f"folder {str(path)!r}; leave 'revision' out"
            )
        return path
    if not _HUB_NAME.fullmatch(value) or value.startswith("."):
        raise AnnotatorError(
            f"'transformers' of annotator {options.annotator!r} names {str(path)!r}, which is not a folder; "
            "give a folder that save_pretrained wrote, or a hub name such as 'openai/clip-vit-base-patch16'"
        )
    revision = options.text("revision") if "revision" in options.values else None
    return _snapshot(options.annotator, value, revision)


def _snapshot(annotator: str, name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    try:
        for weights in _WEIGHTS:  # a pickle is fetched only where there is nothing else
            folder = Path(snapshot_download(name, revision=revision, allow_patterns=[*_TEXTS, weights]))
            if any(folder.glob(weights)):
                return folder
    except (OSError, ValueError, httpx.HTTPError) as error:
        raise AnnotatorError(
            f"annotator {annotator!r} needs the model {name!r}, which is neither a folder nor in the cache, and the "
            f"hub did not give it ({_first_line(error)}); connect, or give a folder with its files"
        ) from error
    raise AnnotatorError(f"{name!r} on the hub holds no weights; known: {', '.join(_WEIGHTS)}")


def _model(options: Options, folder: Path) -> transformers.PreTrainedModel:
    model, info = _part(
        options, transformers.AutoModel, folder, dtype=torch.float32, output_loading_info=True
    )
    if not all(callable(getattr(model, f"get_{side}_features", None)) for side in ("image", "text")):
        raise AnnotatorError(
            f"{str(folder)!r} holds a {type(model).__name__}, which does not embed images and texts apart; {_NEEDED}"
        )
    wanting = sorted({*map(str, info["missing_keys"]), *map(str, info["mismatched_keys"])})
    if wanting:
        # transformers would go on with random numbers in their place.
        raise AnnotatorError(
            f"the weights in {str(folder)!r} do not fill a {type(model).__name__}: {len(wanting)} keys are missing "
            f"or misshapen, first {wanting[0]!r}; get the files again"
        )
    return model.eval()  # type: ignore[no-any-return]


def _part(options: Options, auto: Any, folder: Path, **how: Any) -> Any:
    """The model, image processor or tokenizer that a folder describes."""
    try:
        return auto.from_pretrained(folder, local_files_only=True, trust_remote_code=False, **how)
    except Exception as error:  # whatever a malformed folder makes transformers stumble over
        raise AnnotatorError(
            f"annotator {options.annotator!r} cannot use {str(folder)!r}: {auto.__name__} of transformers says: "
            f"{_first_line(error)}"
        ) from error


def _taken(prepared: Mapping[str, Any], features: Any) -> Inputs:
    """What the model takes of what its processor made, without the batch axis."""
    parameters = inspect.signature(features).parameters
    return {name: np.asarray(value)[0] for name, value in prepared.items() if name in parameters}


def _hashes(folder: Path) -> dict[str, str]:
    """SHA-256 of all files that decide an embedding, by name."""
    weights = next((pattern for pattern in _WEIGHTS if any(folder.glob(pattern))), "")
    patterns = [*_TEXTS, weights] if weights else _TEXTS
    return {path.name: file_sha256(path) for pattern in patterns for path in sorted(folder.glob(pattern))}


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers' own reports and bars off the terminal."""
    log: Any = transformers.utils.logging
    level, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bars:
            log.enable_progress_bar()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:300].rstrip(".")
