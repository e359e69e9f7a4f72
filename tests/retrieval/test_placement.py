"""No tensor is left behind: code that runs on a card is run on one that is made up, and mixes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from topk_kit import Vectors, encoded, full_sort, same_bytes, some_vectors
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from annotators import match_probability, registry
from mitl.datasets.scenes import generate, write_items
from mitl.records import CaptionItem, ImageItem
from mitl.retrieval import card_loading
from mitl.retrieval.card_sieve import Sieve
from mitl.retrieval.topk import top_k, top_k_both

CARD = torch.device("cuda:0")
COPIES = {torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default}
"""What may have its input on another device than its output."""
PACKED = {"aten::_pack_padded_sequence", "aten::_pad_packed_sequence", "aten::gru.data"}
"""Their second input, lengths, belongs on the processor; so do the lengths that they give."""


class MisplacedError(Exception):
    """An operation had tensors of both devices."""


class OnCard(Tensor):
    """A tensor that says it is on a card; its numbers are in ``here``, and every operation on it is made there.

    As on a real one, an operation takes no tensor of the processor beside it but a single number, and numpy cannot
    read it.
    """

    here: Tensor
    device = property(lambda self: CARD)

    @staticmethod
    def __new__(cls, here: Tensor) -> OnCard:
        shape = {"strides": here.stride(), "storage_offset": here.storage_offset(), "dtype": here.dtype}
        # Below Python it is "meta", the one other device that every torch has.
        return torch.Tensor._make_wrapper_subclass(cls, here.size(), device="meta", **shape)

    def __init__(self, here: Tensor) -> None:
        self.here = here

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        kwargs, packed = dict(kwargs or {}), function.name() in PACKED
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        left_behind = [one for one in given if one.dim() and not isinstance(one, OnCard)]
        if packed:
            left_behind = [one for one in left_behind if one is not args[1]]
        if left_behind and function not in COPIES:
            raise MisplacedError(f"{function} has {tuple(left_behind[0].shape)} on the processor")
        target = kwargs.pop("device", None)
        known = {id(one.here): one for one in given if isinstance(one, OnCard)}
        args, kwargs = tree_map(lambda one: one.here if isinstance(one, OnCard) else one, (args, kwargs))
        made = function(*args, **kwargs)
        if target is not None and torch.device(target).type == "cpu":
            return made.clone()  # never the card's own memory
        if function in COPIES and not isinstance(given[0], OnCard):
            return made

        def carried(one: Any) -> Any:
            if not isinstance(one, Tensor) or (packed and not one.is_floating_point()):
                return one
            with torch.inference_mode(False):  # views of parameters are not tensors of inference
                return known[id(one)] if id(one) in known else OnCard(one)

        return tree_map(carried, made)


class Order:
    """A stream of the card, or an event of one: everything is done at once."""

    def __init__(self, *args: object, **options: object) -> None: ...

    def record(self) -> None: ...

    def wait(self) -> None: ...

    def synchronize(self) -> None: ...


FACTORIES = ("arange", "as_tensor", "empty", "full", "linspace", "ones", "tensor", "zeros")


@pytest.fixture
def card(monkeypatch) -> Iterator[pytest.MonkeyPatch]:
    """torch says that it sees a card; what is sent or made there, on whichever thread, is ``OnCard``."""
    if torch.cuda.is_available():
        pytest.skip("there is a card; test_a_gpu_gives_the_same_bytes and `make gpu-check` use it")
    move = torch.Tensor.to

    def there(device: object) -> bool:
        return isinstance(device, str | torch.device) and torch.device(device).type == "cuda"

    def to(self: Tensor, *args: Any, **options: Any) -> Tensor:
        if not any(there(one) for one in (*args, options.get("device"))):
            return move(self, *args, **options)
        here = self.here if isinstance(self, OnCard) else self.detach().clone()
        args = tuple("cpu" if there(one) else one for one in args)
        options.pop("device", None)
        return OnCard(move(here, *args, **options))

    def made(function: Any) -> Any:
        def make(*args: Any, device: Any = None, pin_memory: bool = False, **options: Any) -> Tensor:
            if there(device):
                return OnCard(function(*args, **options))
            return function(*args, device=device, **options)

        return make

    with torch.device("meta"):
        torch.empty(0)  # has torch list what makes tensors, once a process, while these are its own functions
    monkeypatch.setattr(torch.Tensor, "to", to)
    for name in FACTORIES:
        monkeypatch.setattr(torch, name, made(getattr(torch, name)))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device=None: (1 << 30, 1 << 30))
    for name in ("Stream", "Event"):
        monkeypatch.setattr(torch.cuda, name, Order)
    monkeypatch.setattr(torch.cuda, "default_stream", Order)
    for name in ("stream", "device"):
        monkeypatch.setattr(torch.cuda, name, lambda *args: nullcontext())
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *args: None)
    # Neither the loops that Triton compiles nor pinned memory are here.
    monkeypatch.setattr("mitl.retrieval.card.sieve_for", Sieve)
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: SimpleNamespace(shared_memory_per_block_optin=0)
    )
    yield monkeypatch


def sides(products: int = 1) -> list[Any]:
    shape = (24,) if products == 1 else (products, 24)
    return [
        encoded(some_vectors(seed, (count, *shape)), name)
        for seed, count, name in ((1, 40, "image"), (2, 1024, "caption"))
    ]


@pytest.mark.parametrize("products", [1, 2])
def test_a_search_leaves_nothing_behind(card, products):
    """Both ways, by chunks and by columns; what comes back is right."""
    left, right = sides(products)

    there, back = top_k_both(Vectors(), left, right, 5, 5, backend="cuda")

    assert same_bytes(there, full_sort(left, right, 5))
    assert same_bytes(back, full_sort(right, left, 5))
    assert same_bytes(top_k(Vectors(), left, right, 5, backend="cuda"), there)


class LeavesFloors(Sieve):
    def sift(self, left, right, least, *args):
        return super().sift(left, right, least.cpu(), *args)


def test_a_search_that_leaves_floors_behind_is_caught(card):
    """On the processor, where the products are not."""
    card.setattr("mitl.retrieval.card.sieve_for", LeavesFloors)

    with pytest.raises(MisplacedError):
        top_k(Vectors(), *sides(), 5, backend="cuda")


def test_a_search_that_leaves_items_behind_is_caught(card):
    """The captions' vectors, which are the larger side."""
    move = card_loading.to_device

    def some(array, device, *args):
        return torch.from_numpy(np.array(array)) if len(array) > 1000 else move(array, device, *args)

    card.setattr(card_loading, "to_device", some)

    with pytest.raises(MisplacedError):
        top_k(Vectors(), *sides(), 5, backend="cuda")


def probabilities(device: torch.device | None) -> np.ndarray:
    rng = np.random.default_rng(0)
    left, right = (rng.normal(size=(count, 2, 16)).astype(np.float32) / 4 for count in (3, 5))
    right[2, 1] = left[1, 0]  # these coincide, and are subtracted
    sides = [match_probability.SampleSet.of(side) for side in (left, right)]
    return match_probability.match_probabilities(*sides, match_probability.Odds(5, 15), device=device)


def test_pcmes_probabilities_leave_nothing_behind(card):
    """Nor where samples coincide."""
    assert np.abs(probabilities(CARD) - probabilities(None)).max() < 1e-6


@pytest.mark.parametrize("forgotten", range(4))
def test_pcmes_probabilities_that_leave_something_behind_are_caught(card, forgotten):
    """Each side's samples and squared lengths in turn."""
    calls, moved = iter(range(4)), match_probability.to_device

    def forget(array, device):
        return torch.from_numpy(np.array(array)) if next(calls) == forgotten else moved(array, device)

    card.setattr(match_probability, "to_device", forget)

    with pytest.raises(MisplacedError):
        probabilities(CARD)


NAMES = ("clip", "pcme", "pvse", "vilt", "vsrn")


@pytest.fixture(scope="module")
def items(tmp_path_factory) -> tuple[list[ImageItem], list[CaptionItem]]:
    """A small world's pictures and captions."""
    return write_items(generate(3, seed=5, split="check"), tmp_path_factory.mktemp("world"))


def outcome(name: str, device: str, items: Any) -> list[np.ndarray]:
    annotator = registry.build(f"{name}-mini", {"device": device, "batch": 8})
    images, captions = annotator.encode_images(items[0]), annotator.encode_captions(items[1])
    encodings = [array for side in (images, captions) for array in side.arrays.values()]
    return [*encodings, annotator.similarities(images, captions)]


@pytest.mark.parametrize("name", NAMES)
def test_networks_leave_nothing_behind(card, name, items):
    """Pictures and captions through each small twin, and their similarities, as on the processor."""
    for one, other in zip(outcome(name, "cuda", items), outcome(name, "cpu", items), strict=True):
        assert one.shape == other.shape
        assert np.allclose(one, other, atol=1e-4)


LEFT = [
    ("clip", "vision_model.embeddings.position_ids"),
    ("clip", "text_projection.weight"),
    ("pcme", "img_enc.cnn.bn1.running_mean"),
    ("pcme", "txt_enc.rnn.weight_hh_l0_reverse"),
    ("pvse", "img_enc.pie_net.fc.bias"),
    ("pvse", "txt_enc.embed.weight"),
    ("vilt", "vilt.embeddings.patch_embeddings.projection.weight"),
    ("vilt", "vilt.embeddings.text_embeddings.word_embeddings.weight"),
    ("vsrn", "img_enc.img_rnn.bias_hh_l0"),
    ("vsrn", "txt_enc.embed.weight"),
]


@pytest.mark.parametrize(("name", "left"), LEFT)
def test_a_networks_tensor_that_is_left_behind_is_caught(card, name, left, items):
    """A weight or a buffer, of the pictures' side and of the captions'."""
    move = torch.nn.Module.to

    def to(module: torch.nn.Module, *args: Any) -> torch.nn.Module:
        moved = move(module, *args)
        owner, _, own = left.rpartition(".")
        place = moved.get_submodule(owner)
        kept = place._parameters if own in place._parameters else place._buffers
        kept[own] = getattr(place, own).here
        if isinstance(place, torch.nn.RNNBase):
            place._init_flat_weights()
        return moved

    card.setattr(torch.nn.Module, "to", to)

    with pytest.raises(MisplacedError):
        outcome(name, "cuda", items)


@pytest.mark.parametrize("name", ["pcme", "vsrn"])
def test_what_a_network_makes_on_the_wrong_device_is_caught(card, name, items):
    """Numbers of places that forget where the states are."""
    make = torch.arange
    card.setattr(torch, "arange", lambda *args, device=None, **options: make(*args, **options))

    with pytest.raises(MisplacedError):
        outcome(name, "cuda", items)
