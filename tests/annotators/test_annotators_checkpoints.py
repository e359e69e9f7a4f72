"""Weights files of every layout, damaged ones, and ones that try to run something."""

from __future__ import annotations

import argparse
import builtins
import collections
import functools
import io
import operator
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from python_2_kit import PYTHON_2
from safetensors.torch import save_file
from suite_kit import examples
from torch import nn

from annotators.checkpoints.checkpoint import (
    Checkpoint,
    compare,
    contradictions,
    load_strictly,
    read_checkpoint,
)
from annotators.checkpoints.pickles import Inert, NamedThing, unpickle
from mitl.errors import AnnotatorError

STATE = {
    "fc.weight": torch.arange(12, dtype=torch.float32).view(3, 4),
    "fc.bias": torch.tensor([0.5, -1.0, 2.0], dtype=torch.float16),
    "bn.num_batches_tracked": torch.tensor(7),
    "mask": torch.tensor([True, False]),
    "low": torch.tensor([1.5, 2.5], dtype=torch.bfloat16),
    "turned": torch.arange(6.0).view(2, 3).T,
    "part": torch.arange(10.0)[3:7],
    "none": torch.empty(0, 4),
}


def saved(folder: Path, obj: object, *, zipped: bool = True, name: str = "weights.pth") -> Path:
    path = folder / name
    torch.save(obj, path, _use_new_zipfile_serialization=zipped)
    return path


def equal(found: Any, expected: dict[str, torch.Tensor]) -> bool:
    return list(found) == list(expected) and all(
        found[name].dtype == tensor.dtype and torch.equal(found[name], tensor)
        for name, tensor in expected.items()
    )


# Layouts


@pytest.mark.parametrize("zipped", [True, False])
def test_a_flat_state_dict_comes_back_as_it_was_saved(tmp_path: Path, zipped: bool):
    """Every dtype, views, strides, scalars and empty tensors are read as torch reads them."""
    checkpoint = read_checkpoint(saved(tmp_path, STATE, zipped=zipped))

    assert equal(checkpoint.tensors, STATE)
    assert checkpoint.layout == ("torch zip, state dict" if zipped else "legacy torch file, state dict")


@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_that_share_their_numbers_are_both_read(tmp_path: Path, zipped: bool):
    """Two views of one storage are two tensors."""
    whole = torch.arange(20.0)
    shared = {"whole": whole, "again": whole, "row": whole.view(4, 5)[2]}

    assert equal(read_checkpoint(saved(tmp_path, shared, zipped=zipped)).tensors, shared)


def test_data_parallel_prefixes_and_wrappers_are_taken_off(tmp_path: Path):
    """``module.`` goes, and what lies beside the weights is kept as plain values."""
    file = {
        "model": {f"module.{name}": tensor for name, tensor in STATE.items()},
        "criterion": {"shift": torch.tensor([15.0])},
        "word2idx": {"<pad>": 0, "a": 1},
        "config": {"model": {"embed_dim": 1024}},
        "metadata": {"rsum": np.float64(431.5), "medr": np.float32(1.5), "n": np.int64(3)},
        "args": argparse.Namespace(crop_size=224, legacy=True),
        "epoch": 12,
    }

    checkpoint = read_checkpoint(saved(tmp_path, file))

    assert equal(checkpoint.tensors, STATE)
    assert checkpoint.layout == "torch zip, dict with 'model', state dict"
    assert checkpoint.values["word2idx"] == {"<pad>": 0, "a": 1}
    assert checkpoint.values["metadata"] == {"rsum": 431.5, "medr": 1.5, "n": 3}
    assert checkpoint.values["args"] == {"crop_size": 224, "legacy": True}
    assert torch.equal(checkpoint.values["criterion"]["shift"], torch.tensor([15.0]))


@pytest.mark.parametrize("wrapped", [True, False])
def test_two_dicts_in_a_list_get_their_place_as_prefix(tmp_path: Path, wrapped: bool):
    """VSRN keeps two ordered dicts under 'model', the old PVSE keeps two in a bare list."""
    pair = [
        collections.OrderedDict(STATE),
        collections.OrderedDict({"module.embed.weight": torch.ones(2, 3)}),
    ]

    checkpoint = read_checkpoint(saved(tmp_path, {"model": pair, "Eiters": 3} if wrapped else pair))

    assert list(checkpoint.tensors) == [*(f"0.{name}" for name in STATE), "1.embed.weight"]
    assert "list of two dicts" in checkpoint.layout


def test_a_file_of_python_2_is_read(tmp_path: Path):
    """Legacy layout, byte strings, a Namespace: what torch 0.4 under Python 2.7 wrote."""
    path = tmp_path / "model_coco_1.pth.tar"
    pair = [collections.OrderedDict({"fc.weight": STATE["fc.weight"]}), collections.OrderedDict(STATE)]
    file = {"model": pair, "opt": argparse.Namespace(data_name="coco_precomp", note="café" * 80)}
    torch.save(file, path, pickle_module=PYTHON_2, _use_new_zipfile_serialization=False)

    checkpoint = read_checkpoint(path)

    assert torch.equal(checkpoint.tensors["0.fc.weight"], STATE["fc.weight"])
    assert checkpoint.values["opt"] == {"data_name": "coco_precomp", "note": "café" * 80}


def test_safetensors_keep_their_metadata(tmp_path: Path):
    """The strings of the header are the values."""
    path = tmp_path / "w.safetensors"
    tensors = {name: tensor.contiguous() for name, tensor in STATE.items()}
    save_file(tensors, path, {"format": "mitl-annotator-1", "config": "{}"})

    checkpoint = read_checkpoint(path)

    assert checkpoint.layout == "safetensors"
    assert checkpoint.values == {"format": "mitl-annotator-1", "config": "{}"}
    assert all(torch.equal(checkpoint.tensors[name], STATE[name]) for name in STATE)


class Leaf(nn.Module):
    """Half-precision weights, a buffer, and a tensor that is neither."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3, 4).half())
        self.register_buffer("scale", torch.tensor([2.0]))
        self.mask = torch.ones(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, 3) -> (B, 4)."""
        return x @ self.weight.float() * self.scale + self.mask.sum()


class Tree(nn.Module):
    """Modules within modules."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf = Leaf()
        self.rows = nn.ModuleList([nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))])
        self.logit_scale = nn.Parameter(torch.tensor(2.66))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(B, 3) -> (B, 4)."""
        return self.rows[0](self.leaf(x)) * self.logit_scale


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("how", ["traced", "scripted"])
def test_a_torchscript_archive_gives_its_state_dict_without_its_code(tmp_path: Path, how: str):
    """Names, dtypes and numbers equal those of torch.jit.load; a mask that is not a buffer is not a weight."""
    path, module = tmp_path / "ViT-B-32.pt", Tree().eval()
    made = torch.jit.trace(module, torch.randn(2, 3)) if how == "traced" else torch.jit.script(module)
    torch.jit.save(made, path)

    checkpoint = read_checkpoint(path)

    assert checkpoint.layout == "TorchScript archive"
    assert equal(checkpoint.tensors, dict(torch.jit.load(path).state_dict()))


def test_modules_that_are_named_again_and_again_end_in_one_line(tmp_path: Path):
    """Forty modules, each of which names the next one twice, would be a million million members."""
    module = b"c__torch__\nM\n)\x81}%bb"
    twice = [b"(X\x01\x00\x00\x00ah%bX\x01\x00\x00\x00bh%bu" % (bytes([n]), bytes([n])) for n in range(40)]
    steps = [module % step + b"q" + bytes([n]) for n, step in enumerate([b"", *twice])]
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        archive.writestr("m/data.pkl", b"\x80\x02" + b"0".join(steps) + b".")
        archive.writestr("m/constants.pkl", b"\x80\x02).")

    with pytest.raises(AnnotatorError, match="holds itself, or too many others"):
        read_checkpoint(tmp_path / "m.pt")


def test_values_of_unknown_classes_stay_inert(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A Lightning checkpoint's siblings are written down with state and items, and their module is not imported."""
    package = tmp_path / "lightning_like.py"
    package.write_text(
        "class Callback:\n    def __init__(self): self.best = 3\n"
        "class Frozen(dict):\n    pass\n"
        "def scheduler(a): return Callback()\n"
        "class Lazy:\n    def __reduce__(self): return scheduler, (3,), {'last': 1}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import lightning_like as author  # type: ignore[import-not-found]

    file = {
        "state_dict": STATE,
        "callbacks": {author.Callback: author.Callback()},
        "hyper_parameters": author.Frozen(seed=1),
        "lr_schedulers": [author.Lazy()],
    }
    path = saved(tmp_path, file, name="vilt.ckpt")
    del sys.modules["lightning_like"]
    package.write_text("raise SystemExit('imported')\n")

    checkpoint = read_checkpoint(path)

    assert equal(checkpoint.tensors, STATE)
    ((key, callback),) = checkpoint.values["callbacks"].items()
    assert isinstance(key, NamedThing)
    assert (callback.what.path, callback.state) == ("lightning_like.Callback", {"best": 3})
    assert checkpoint.values["hyper_parameters"].items == [("seed", 1)]
    assert repr(checkpoint.values["lr_schedulers"]) == "[<lightning_like.scheduler, not made>]"
    assert "lightning_like" not in sys.modules


# Attacks


class Runs:
    """Pickles as a call."""

    def __init__(self, function: Any, *arguments: Any, state: Any = None) -> None:
        self.call = (function, arguments) if state is None else (function, arguments, state)

    def __reduce__(self) -> Any:
        return self.call

    def __call__(self) -> None:
        """A call whose result is called: the pickler wants something callable."""


def payloads(sentinel: Path) -> dict[str, Any]:
    """Ways to make ``sentinel``, each of which works under Python's own unpickler."""
    write, shell = f"open({str(sentinel)!r}, 'w').close()", f"touch {sentinel}"
    inner = io.BytesIO()
    torch.save(Runs(os.system, shell), inner)
    return {
        "os.system": Runs(os.system, shell),
        "eval": Runs(eval, write),
        "exec": Runs(builtins.exec, write),
        "open": Runs(open, str(sentinel), "w"),
        "popen": Runs(subprocess.Popen, ["touch", str(sentinel)]),
        "nested torch.load": Runs(
            functools.partial(torch.load, weights_only=False), Runs(io.BytesIO, inner.getvalue())
        ),
        "nested pickle": Runs(pickle.loads, pickle.dumps(Runs(os.system, shell))),
        "storage bytes": Runs(torch.storage._load_from_bytes, inner.getvalue()),
        "partial": Runs(Runs(functools.partial, os.system, shell)),
        "getattr": Runs(Runs(getattr, Runs(__import__, "os"), "system"), shell),
        "methodcaller": Runs(Runs(operator.methodcaller, "system", shell), Runs(__import__, "os")),
        "path": Runs(Path.touch, sentinel),
        "apply": Runs(list, Runs(map, eval, [write])),
        "torch.save": Runs(torch.save, 1, str(sentinel)),
        "numpy": Runs(np.save, str(sentinel), 1),
    }


PLACES = {
    "everything": lambda evil: evil,
    "a weight": lambda evil: {**STATE, "fc.weight": evil},
    "a sibling": lambda evil: {"state_dict": STATE, "callbacks": [evil]},
    "a key": lambda evil: {"model": STATE, "opt": {(1, "k"): evil}},
    "the state of a table": lambda evil: {"model": STATE, "opt": argparse.Namespace(a=evil)},
    "an argument of a tensor": lambda evil: {
        "x": Runs(torch._utils._rebuild_tensor_v2, evil, 0, (1,), (1,), False, {})
    },
}


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("place", list(PLACES))
@pytest.mark.parametrize("name", list(payloads(Path("x"))))
def test_a_payload_is_never_run(tmp_path: Path, name: str, place: str, zipped: bool):
    """Whatever it calls and wherever it sits, nothing runs and one clear line says so."""
    sentinel = tmp_path / "ran"
    evil = payloads(sentinel)[name]
    path = saved(tmp_path, PLACES[place](evil), zipped=zipped)

    with pytest.raises(AnnotatorError) as caught:
        read_checkpoint(path)

    assert not sentinel.exists()
    assert "\n" not in str(caught.value)
    assert "weights.pth" in str(caught.value)


@pytest.mark.parametrize("name", ["os.system", "eval", "exec", "nested pickle", "partial", "getattr"])
def test_the_payloads_of_these_tests_do_run_elsewhere(tmp_path: Path, name: str):
    """The same objects make their file under Python's own unpickler, so the test above shows something."""
    sentinel = tmp_path / "ran"
    raw = pickle.dumps(payloads(sentinel)[name], 2)

    pickle.loads(raw)

    assert sentinel.exists()


HAND_MADE = {
    "INST": b"(S'touch %s'\nios\nsystem\n.",
    "OBJ": b"(cos\nsystem\nS'touch %s'\no.",
    "REDUCE in protocol 0": b"cos\nsystem\n(S'touch %s'\ntR.",
    "NEWOBJ": b"\x80\x02csubprocess\nPopen\n]X\x05\x00\x00\x00touchaX%b%sa\x85\x81.",
    "STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93X%b%b\x85R.",
    "a dotted name": b"\x80\x04\x8c\x08builtins\x8c\x15__import__.__call__.a\x93\x8c\x02os\x85R.",
    "EXT1": b"\x80\x02\x82\x01.",
    "persistent id": b"Pos.system\n.",
    "the memo": b"\x80\x02cos\nsystem\nq\x00h\x00h\x00h\x00\x85R.",
    "a state for a function": b"\x80\x02cos\nsystem\n}X\x08\x00\x00\x00__code__X\x01\x00\x00\x00asb.",
    "a call of a text": b"\x80\x02X\x02\x00\x00\x00os)R.",
    "a call of a call": b"\x80\x02cauthor\nmake\n)R)R.",
    "items for a class": b"\x80\x02cos\nenviron\nX\x01\x00\x00\x00aX\x01\x00\x00\x00bs.",
    "a reconstructor": b"ccopy_reg\n_reconstructor\n(cos\nsystem\nc__builtin__\nobject\nNtR.",
    "a buffer from outside": b"\x80\x05\x97.",
}


@pytest.mark.parametrize("name", list(HAND_MADE))
def test_instructions_written_by_hand_are_refused(tmp_path: Path, name: str):
    """Every instruction that can call, build or refer is refused where it means more than plain values."""
    sentinel = tmp_path / "ran"
    raw = HAND_MADE[name].replace(b"%s", str(sentinel).encode())

    with pytest.raises(AnnotatorError, match="hand"):
        unpickle(io.BytesIO(raw), Path("hand"))

    assert not sentinel.exists()


def test_a_state_cannot_reach_our_own_code():
    """BUILD on an object of an unknown class records the state, dunder names and all, and sets nothing."""
    raw = b"\x80\x02cauthor\nThing\n)\x81}(X\x09\x00\x00\x00__class__X\x01\x00\x00\x00aX\x04\x00\x00\x00whatK\x01ub."

    found = unpickle(io.BytesIO(raw), Path("hand"))

    assert type(found) is Inert
    assert found.state == {"__class__": "a", "what": 1}
    assert found.what.path == "author.Thing"


BOMBS = {
    "a place in the memo": b"\x80\x02Nr\xff\xff\xff\xff.",
    "a byte array": b"\x80\x05\x96\xff\xff\xff\xff\xff\x00\x00\x00.",
    "bytes": b"\x80\x04\x8e\xff\xff\xff\xff\xff\x00\x00\x00.",
    "a key of nested pairs": b"\x80\x02}K\x01K\x02\x86" + b"2\x86" * 60 + b"K\x01s.",
    "a member of nested pairs": b"\x80\x04\x8f(K\x01K\x02\x86" + b"2\x86" * 60 + b"\x90.",
    "lists within lists": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
}


@pytest.mark.parametrize("name", list(BOMBS))
def test_a_small_pickle_takes_neither_memory_nor_time(name: str):
    """Sizes that a file only claims, keys that take for ever to hash and deep lists end in a value or in one line."""
    try:
        unpickle(io.BytesIO(BOMBS[name]), Path("bomb"))
    except AnnotatorError as error:
        assert "cut off or damaged" in str(error)


def test_a_value_that_no_message_could_print_is_shortened(tmp_path: Path):
    """An option that is a list of itself twice, sixty times over, or a number of 20,000 digits, is named in short."""
    twice: list[Any] = []
    for _ in range(60):
        twice = [twice, twice]
    file = {"model": STATE, "args": {"embed_size": twice, "num_embeds": 10**20_000, "note": [1, 2]}}
    args = read_checkpoint(saved(tmp_path, file)).values["args"]

    lines = contradictions(args, {"embed_size": 8, "num_embeds": 1, "note": [1]})

    assert [line.split(", but")[0] for line in lines] == [
        "it was trained with embed_size = [[[...], [...]], [[...], [...]]]",
        "it was trained with num_embeds = a number of 66,439 bits",
        "it was trained with note = [1, 2]",
    ]
    with pytest.raises(AnnotatorError, match="a key that is a number of 66,439 bits"):
        read_checkpoint(saved(tmp_path, {**STATE, 10**20_000: 1}))


PIECES = [
    *(b"cos\nsystem\n", b"ccollections\nOrderedDict\n", b"cnumpy\ndtype\n", b"cargparse\nNamespace\n"),
    *(b"cauthor\nThing\n", b"ctorch\nSize\n", b"(iauthor\nThing\n", b"c_codecs\nencode\n"),
    *(b"cnumpy.core.multiarray\nscalar\n", b"ccopy_reg\n_reconstructor\n"),
    *(b"X\x02\x00\x00\x00id", b"X\x02\x00\x00\x00f8", b"K\x01", b"N", b"}", b"]", b")", b"\x8f"),
    *(b"(", b"t", b"l", b"d", b"o", b"e", b"u", b"\x90", b"\x91", b"1"),
    *(b"R", b"\x81", b"\x92", b"b", b"s", b"a", b"Q", b"\x85", b"\x86"),
    *(b"q\x00", b"h\x00", b"\x94", b"0", b"2"),
]
"""Instructions of the stack machine: names, values, marks with what closes them, calls, the memo."""


@settings(
    max_examples=examples(150, 400),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.lists(
        st.sampled_from(PIECES),
        max_size=25,
    )
)
def test_any_program_ends_in_a_value_or_in_one_line(steps: list[bytes]):
    """Random programs of the stack machine give plain values or an AnnotatorError, nothing else."""
    try:
        unpickle(io.BytesIO(b"\x80\x02" + b"".join(steps) + b"."), Path("random"))
    except AnnotatorError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_flipped_byte_gives_weights_or_one_line(tmp_path: Path, zipped: bool):
    """Damage anywhere in the pickles is never a traceback."""
    good = saved(tmp_path, {"model": STATE, "opt": argparse.Namespace(a=1)}, zipped=zipped).read_bytes()
    path, rng = tmp_path / "bad.pth", np.random.default_rng(3)
    for _ in range(150):
        bad = bytearray(good)
        for place in rng.integers(0, min(len(good), 2500), 2):
            bad[place] = rng.integers(256)
        path.write_bytes(bad)
        try:
            assert isinstance(read_checkpoint(path), Checkpoint)
        except AnnotatorError as error:
            assert "\n" not in str(error)


# Damaged and foreign files


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.99])
def test_a_file_that_is_cut_off_gives_one_line(tmp_path: Path, zipped: bool, share: float):
    """An interrupted download is named as such."""
    path = saved(tmp_path, {"model": {"w": torch.randn(200, 200)}}, zipped=zipped)
    raw = path.read_bytes()
    path.write_bytes(raw[: int(len(raw) * share)])

    with pytest.raises(AnnotatorError, match="fetch"):
        read_checkpoint(path)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_module_s_archive_with_spoiled_bytes_gives_one_line(tmp_path: Path):
    """Whatever they hit: what is packed, what is not, or the index."""
    path = tmp_path / "ViT-B-32.pt"
    torch.jit.script(torch.nn.Linear(3, 4)).save(path)
    raw, told = path.read_bytes(), 0
    for at in range(0, len(raw), 29):
        path.write_bytes(raw[:at] + bytes(byte ^ 0xFF for byte in raw[at : at + 3]) + raw[at + 3 :])
        try:
            read_checkpoint(path)
        except AnnotatorError as error:
            assert "\n" not in str(error)
            told += 1

    assert told > 10


def test_safetensors_that_are_cut_off_give_one_line(tmp_path: Path):
    """The header promises more than there is."""
    path = tmp_path / "w.safetensors"
    save_file({"w": torch.randn(50, 50)}, path)
    path.write_bytes(path.read_bytes()[:-100])

    with pytest.raises(AnnotatorError, match="cut off or damaged"):
        read_checkpoint(path)


def zip_of(members: dict[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return raw.getvalue()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"<!DOCTYPE html><html>Google Drive - Virus scan warning", "web page"),
        (b"  \n<HTML><head>", "web page"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n", "git lfs pull"),
        (zip_of({"pretrain_model/coco/model_coco_1.pth.tar": b"x"}), "unpack it"),
        (zip_of({}), "not one of torch"),
        (zip_of({"x" * 60_000: b""}), r"it holds x{60}\)"),
        (zip_of({"a/data.pkl": b"N."}), "holds a NoneType, not weights"),
        (zip_of({"a/data.pkl": b"}."}), "an empty dict"),
        (b"\x1f\x8b\x08rest", "packed archive"),
        (pickle.dumps({"a": 1}, 2), "a pickle, but not one of torch"),
        (pickle.dumps(np.ones(3), 4), "a pickle, but not one of torch"),
        (b"\x93NUMPY\x01\x00", "no weights file that is known here"),
        (b"just words", "no weights file that is known here"),
    ],
)
def test_what_is_no_weights_file_is_named(tmp_path: Path, content: bytes, message: str):
    """One line says what the file is instead."""
    path = tmp_path / "coco_pvse.pth"
    path.write_bytes(content)

    with pytest.raises(AnnotatorError, match=message) as caught:
        read_checkpoint(path)

    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path):
    """Neither is a traceback."""
    with pytest.raises(AnnotatorError, match="no weights file"):
        read_checkpoint(tmp_path / "none.pth")
    with pytest.raises(AnnotatorError, match="is a folder"):
        read_checkpoint(tmp_path)


def test_a_whole_pickled_module_is_no_weights_file(tmp_path: Path):
    """torch.save(model) keeps code's names, which are not followed."""
    with pytest.raises(
        AnnotatorError, match=r"holds an object of '.*Leaf', not weights; save its state_dict"
    ):
        read_checkpoint(saved(tmp_path, Leaf()))


def test_a_value_among_wrapped_weights_is_refused(tmp_path: Path):
    """Weights are tensors and nothing else."""
    with pytest.raises(AnnotatorError, match=r"holds a float under 'b' among its weights"):
        read_checkpoint(saved(tmp_path, {"model": {"a": torch.ones(1), "b": 1.5}}))


@pytest.mark.parametrize(
    ("offset", "size", "stride"),
    [(0, (5,), (1,)), (3, (2,), (1,)), (0, (2, 2), (9, 1)), (0, (-1,), (1,)), (0, (2,), (-1,))],
)
def test_a_tensor_cannot_reach_outside_its_numbers(tmp_path: Path, offset: int, size: Any, stride: Any):
    """Offset, size and stride in the pickle are checked against the storage."""
    storage = torch.arange(4.0)._typed_storage()
    evil = Runs(
        torch._utils._rebuild_tensor_v2, storage, offset, size, stride, False, collections.OrderedDict()
    )

    with pytest.raises(AnnotatorError, match="cut off or damaged"):
        read_checkpoint(saved(tmp_path, {"x": evil}))


# Comparing and loading


def tiny() -> nn.Module:
    return nn.Sequential(collections.OrderedDict(fc=nn.Linear(4, 3), bn=nn.BatchNorm1d(3)))


def shapes(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}


def test_an_examination_accounts_for_every_key(tmp_path: Path):
    """Matched, missing, unexpected, misshapen and ignored keys are told apart."""
    state = tiny().state_dict()
    state["fc.weight"] = torch.ones(3, 5)
    state["extra"] = state["position_ids"] = torch.ones(1)
    del state["bn.bias"]

    found = compare(
        "pvse",
        read_checkpoint(saved(tmp_path, {"model": state})),
        shapes(tiny()),
        what="PVSE",
        ignored={"position_ids": "a buffer of old files", "not there": "never"},
    )

    assert found.matched == 5
    assert found.missing == ("bn.bias",)
    assert found.unexpected == ("extra",)
    assert found.misshapen == ("fc.weight: (3, 5) where (3, 4) is expected",)
    assert found.ignored == {"position_ids": "a buffer of old files"}
    assert not found.fits
    with pytest.raises(
        AnnotatorError, match=r"does not fit pvse: 5 of 7 keys match; it lacks 'bn.bias', and 2 faults more"
    ):
        load_strictly(tiny(), state, found)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_a_problem(tmp_path: Path, number: float):
    """One such number spoils the file, and its tensor is named."""
    state = tiny().state_dict()
    state["fc.bias"][1] = number

    found = compare("pvse", read_checkpoint(saved(tmp_path, state)), shapes(tiny()), what="PVSE")

    assert found.problems == ("1 tensors hold numbers that are not finite; first: 'fc.bias'",)
    assert not found.fits


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float32])
@pytest.mark.parametrize("empty", [True, False])
def test_weights_of_any_precision_are_loaded_as_float32(tmp_path: Path, dtype: torch.dtype, empty: bool):
    """Into a module with memory of its own or one on the meta device; counters stay whole numbers."""
    source = tiny()
    state = {k: v.to(dtype) if v.is_floating_point() else v for k, v in source.state_dict().items()}
    checkpoint = read_checkpoint(saved(tmp_path, state))
    with torch.device("meta" if empty else "cpu"):
        module = tiny()

    load_strictly(module, checkpoint.tensors, compare("x", checkpoint, shapes(source), what="X"))

    found = module.state_dict()
    assert found["fc.weight"].dtype == torch.float32
    assert found["bn.num_batches_tracked"].dtype == torch.int64
    assert all(torch.equal(found[name], state[name].to(found[name].dtype)) for name in state)


@pytest.mark.parametrize("number", [0.5, float("nan")])
def test_weights_of_eight_bits_are_examined_and_loaded(tmp_path: Path, number: float):
    """Safetensors files hold such floats, with which torch computes nothing."""
    source = tiny()
    source.state_dict()["fc.bias"][1] = number
    narrow = torch.float8_e4m3fn
    state = {k: v.to(narrow) if v.is_floating_point() else v for k, v in source.state_dict().items()}
    save_file(state, tmp_path / "weights.safetensors")
    checkpoint, module = read_checkpoint(tmp_path / "weights.safetensors"), tiny()

    found = compare("x", checkpoint, shapes(source), what="X")

    assert found.fits == (number == 0.5)
    if found.fits:
        load_strictly(module, checkpoint.tensors, found)
        assert all(torch.equal(now, state[name].to(now.dtype)) for name, now in module.state_dict().items())
    else:
        assert found.problems == ("1 tensors hold numbers that are not finite; first: 'fc.bias'",)


def test_loading_refuses_what_the_examination_did_not_see(tmp_path: Path):
    """Names that a network's own mapping lost or made up are caught as well."""
    checkpoint = read_checkpoint(saved(tmp_path, tiny().state_dict()))
    found = compare("x", checkpoint, shapes(tiny()), what="X")
    fewer = {name: tensor for name, tensor in checkpoint.tensors.items() if name != "fc.bias"}

    with pytest.raises(AnnotatorError, match=r"lacks 'fc.bias' \(6 of 7 keys match\)"):
        load_strictly(tiny(), fewer, found)
    with pytest.raises(AnnotatorError, match="'more' is left over"):
        load_strictly(tiny(), {**checkpoint.tensors, "more": torch.ones(1)}, found)
