"""`mitl annotators check`, and what spoiled files, captions and pictures do to check, verify and propose."""

from __future__ import annotations

import json
import pickle
import zipfile
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import world_kit
from cli_kit import fails, mitl, ok, use_file_annotators

torch = pytest.importorskip("torch")
import weights_kit as kit  # noqa: E402 - needs torch

from annotators import registry  # noqa: E402
from annotators.catalog import NETWORKS  # noqa: E402
from annotators.inputs.vocabularies import RELEASED as LISTS  # noqa: E402


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch) -> Path:
    """Each test runs in an empty folder and under no setting of the machine."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def pvse(empty_folder) -> Path:
    """A small PVSE with K = 2 as its authors' script would save it."""
    return kit.write_flat(empty_folder / "small.pth", kit.small_pvse()[0])


def refused(*words: str | Path) -> tuple[str, str, dict]:
    """The finding and the last line of a check that does not fit, and what ``--json`` says of it."""
    plain, as_json = (mitl("annotators", *words, *more) for more in ((), ("--json",)))
    assert plain.status == as_json.status == 1
    found = as_json.json
    assert found["status"] == "error"
    assert found["error"] == as_json.error == plain.error
    return plain.out, plain.error, found["counts"]


def test_a_file_that_fits_is_described(pvse):
    """Layout, K, words, how many numbers and keys; exit status 0; the same as JSON."""
    vocabulary = kit.write_vocabulary(Path("words.txt"))

    outcome = ok("annotators", "check", "pvse", pvse)
    counts = ok("annotators", "check", "pvse", pvse, "--vocabulary", vocabulary, "--json").json["counts"]

    numbers = sum(t.numel() for t in kit.small_pvse()[0].state_dict().values() if t.is_floating_point())
    for word in (
        "PVSE, K = 2, 14 words",
        "torch zip, state dict",
        f"{numbers:,} in",
        "next: write weights = ",
    ):
        assert word in outcome.out
    assert (counts["network"], counts["fits"], counts["numbers"]) == ("pvse", True, numbers)
    assert counts["settings"]["k"] == 2 and counts["settings"]["words"] == 14
    assert counts["matched"] == len(kit.small_pvse()[0].state_dict())
    assert counts["missing"] == counts["unexpected"] == counts["misshapen"] == counts["problems"] == []
    assert counts["published"] is None  # nobody published anything of this one
    assert counts["vocabulary"].startswith("14 words, none of the released lists")


@pytest.mark.parametrize("network", kit.SMALL)
def test_each_network_knows_its_own_and_no_other(network, empty_folder):
    """A file of ours fits the network that it says; compared with any other it is named as what it is."""
    path = kit.write_small(empty_folder, network)

    counts = ok("annotators", "check", network, path, "--json").json["counts"]

    assert counts["fits"] is True and counts["matched"] > 10 and counts["published"] is None
    for other in kit.SMALL:
        if other != network:
            message = fails(1, "annotators", "check", other, path)
            assert path.name in message and network in message


def test_a_full_size_file_names_what_was_published():
    """A file of the released sizes is held beside the released recall."""
    module = kit.full_size("pvse")
    kit.write_flat(Path("coco_pvse.pth"), module)

    outcome = ok("annotators", "check", "pvse", "coco_pvse.pth")
    counts = ok("annotators", "check", "pvse", "coco_pvse.pth", "--json").json["counts"]

    assert "published for PVSE, K = 2 (coco_pvse.pth)" in outcome.out and "45.18" in outcome.out
    assert counts["numbers"] == 70_975_512
    assert counts["published_recall"]["5K"]["t2i"] == {"R@1": 32.42, "R@5": 62.97, "R@10": 74.96}


def test_the_network_that_a_file_does_fit_is_named(pvse, monkeypatch):
    """PVSE's weights under PCME's name: what is missing, and whose they are; no third network is loaded for that."""
    asked, examine = [], registry.examine
    monkeypatch.setattr(registry, "examine", lambda *of: asked.append(of[0]) or examine(*of))
    out, error, counts = refused("check", "pcme", pvse)

    assert asked == ["pcme", "pvse"] * 2
    assert error.startswith(f"'{pvse}' does not fit 'pcme': ")
    assert error.endswith("; it fits 'pvse'")
    assert counts["fits"] is False and counts["fits_as"] == ["pvse"]
    assert any("uncertain_net" in key for key in counts["missing"])
    assert f"{len(counts['missing'])} missing: " in out and "more" in out


def test_a_name_of_mitl_toml_is_its_network(pvse):
    """An annotator that says network = "pvse" is checked as one; other names are answered with the five."""
    Path("mitl.toml").write_text('[annotators.second]\nnetwork = "pvse"\nweights = "small.pth"\n')

    counts = ok("annotators", "check", "second", pvse, "--json").json["counts"]

    assert counts["network"] == "pvse"
    assert "'third' is not a network whose weights can be checked; known: pvse, vsrn" in fails(
        1, "annotators", "check", "third", pvse
    )


def test_keys_are_accounted_for(pvse):
    """A key too few, one too many, one of another shape and one that is not finite are each told."""
    state = torch.load(pvse, weights_only=True)
    del state["img_enc.fc.bias"]
    state["extra.weight"] = torch.zeros(2)
    state["txt_enc.pie_net.fc.bias"] = torch.zeros(3)
    state["img_enc.fc.weight"][0, 0] = torch.nan
    torch.save(state, "odd.pth")

    out, error, counts = refused("check", "pvse", "odd.pth")

    assert counts["missing"] == ["img_enc.fc.bias"]
    assert counts["unexpected"] == ["extra.weight"]
    assert counts["misshapen"] == ["txt_enc.pie_net.fc.bias: (3,) where (8,) is expected"]
    assert "not finite; first: 'img_enc.fc.weight'" in counts["problems"][0]
    assert error == "'odd.pth' does not fit 'pvse': 1 missing: img_enc.fc.bias"
    assert "1 unexpected: extra.weight" in out and "1 misshapen" in out


def wrapped(state: dict, *parts: str) -> dict:
    """The names as DataParallel around these parts of a network writes them."""
    for part in parts:
        state = {name.replace(part, f"{part}module.", 1): tensor for name, tensor in state.items()}
    return state


def without_counters(state: dict) -> dict:
    """As torch before 0.4.1 wrote batch norms."""
    return {name: tensor for name, tensor in state.items() if not name.endswith("num_batches_tracked")}


HARMLESS = {
    "no counters": without_counters,
    "a wrapped backbone": lambda state: wrapped(state, "img_enc.cnn."),
    "wrapped within what is wrapped": lambda state: wrapped(
        {f"module.{name}": tensor for name, tensor in state.items()}, "img_enc.cnn.", "txt_enc.", "layer2."
    ),
    "ImageNet's classifier": lambda state: {
        **state,
        "img_enc.cnn.fc.weight": torch.ones(1000, 8),
        "img_enc.cnn.fc.bias": torch.ones(1000),
    },
}


@pytest.mark.parametrize("network", ["pvse", "pcme"])
@pytest.mark.parametrize("layout", HARMLESS)
def test_layouts_that_change_nothing_are_read(network, layout, empty_folder):
    """No counters, DataParallel at any level, a head that is taken off: the same weights, and each is told."""
    from annotators import pcme, pvse

    module = kit.SMALL[network][0]()[0]
    state = module.state_dict()
    torch.save({"model": HARMLESS[layout](state)}, "other.pth")

    counts = ok("annotators", "check", network, "other.pth", "--json").json["counts"]
    read = {"pvse": pvse, "pcme": pcme}[network].load(Path("other.pth")).network.state_dict()

    counters = {name for name in state if name.endswith("num_batches_tracked")}
    assert counts["fits"] is True
    assert set(counts["absent"]) == (counters if layout == "no counters" else set())
    assert set(counts["ignored"]) == (
        {"img_enc.cnn.fc.weight", "img_enc.cnn.fc.bias"} if layout == "ImageNet's classifier" else set()
    )
    assert all(torch.equal(read[name], tensor) for name, tensor in state.items() if name not in counters)
    said = ok("annotators", "check", network, "other.pth").out
    assert ("absent (a batch norm's count of training steps" in said) == (layout == "no counters")
    assert ("2 not needed (ImageNet's classifier" in said) == (layout == "ImageNet's classifier")


def test_vsrn_without_counters_or_wrapped_gives_the_same_embeddings(empty_folder):
    """The released list of two dicts, as an older torch or a second card would have written it."""
    import vsrn_kit

    from annotators import vsrn

    states = vsrn_kit.states()
    regions = torch.rand(2, 36, 10, generator=torch.Generator().manual_seed(0))
    seen = []
    for name, model in (
        ("plain", states),
        ("bare", [without_counters(state) for state in states]),
        ("wrapped", [{f"module.{name}": tensor for name, tensor in state.items()} for state in states]),
    ):
        with torch.inference_mode():
            seen.append(vsrn.load(vsrn_kit.saved(Path(name), model)).network.images(regions)["embedding"])

    assert torch.equal(seen[0], seen[1])
    assert torch.equal(seen[0], seen[2])
    assert len(vsrn.examine(Path("bare")).absent) == 4


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("img_enc.cnn.fc2.weight", (3, 3)),
        ("img_enc.fc.module.extra", (3,)),
        ("img_enc.cnn.bn7.num_batches_tracked", ()),
        ("cnn.fc.weight", (3, 3)),
        ("mlm_score.bias", (3,)),
        ("img_enc.module.fc.weight", (8, 64)),
    ],
)
def test_whatever_else_is_left_over_is_refused(name, shape, pvse):
    """Only the heads that are known of a network may stay; a name that stands there twice is not a wrapping."""
    state = torch.load(pvse)
    torch.save({**state, name: torch.ones(shape)}, "more.pth")

    counts = refused("check", "pvse", "more.pth")[2]

    assert counts["unexpected"] == [name.replace("module.", "") if "extra" in name else name]


def test_statistics_of_a_batch_norm_are_no_counters(pvse):
    """A running mean is needed; only the count of steps is not."""
    state = torch.load(pvse)
    del state["img_enc.cnn.bn1.running_mean"]
    torch.save(state, "lacking.pth")

    assert refused("check", "pvse", "lacking.pth")[2]["missing"] == ["img_enc.cnn.bn1.running_mean"]


def test_no_network_calls_a_part_module():
    """So that taking ``module.`` off can never hit a name of the network's own."""
    for make, _ in kit.SMALL.values():
        assert not any("module" in name.split(".") for name in make()[0].state_dict())


def test_the_vocabulary_must_have_as_many_words_as_the_weights(pvse):
    """A list of another size is a refusal; one of the right size that nobody released is a warning."""
    short = kit.write_vocabulary(Path("short.txt"), kit.WORDS[:-1])
    same = kit.write_vocabulary(Path("same.txt"))

    _, error, counts = refused("check", "pvse", pvse, "--vocabulary", short)
    warned = mitl("annotators", "check", "pvse", pvse, "--vocabulary", same)

    assert error.endswith(
        "the vocabulary 'short.txt' has 13 words, none of the released lists, but the weights were trained with "
        "14 words"
    )
    assert len(counts["problems"]) == 1
    assert warned.status == 0
    assert "'same.txt' is none of the released vocabularies" in warned.err


def test_words_that_the_weights_bring_must_be_the_vocabularys(pvse):
    """A checkpoint with word2idx and a vocabulary in another order contradict each other."""
    words = {word: place for place, word in enumerate(kit.WORDS)}
    kit.write_flat(Path("with-words.pth"), kit.small_pvse()[0], {"word2idx": words})
    other = kit.write_vocabulary(Path("other.txt"), (*kit.WORDS[:4], *kit.WORDS[:3:-1]))

    _, error, _ = refused("check", "pvse", "with-words.pth", "--vocabulary", other)

    assert error.endswith("the vocabulary 'other.txt' has other words than the weights file's own word2idx")


def test_a_network_without_words_takes_no_vocabulary():
    """CLIP has merges, not a vocabulary of words."""
    kit.write_ours(Path("clip.safetensors"), "clip", *kit.small_clip(), bpe_merges="")
    vocabulary = kit.write_vocabulary(Path("words.txt"))

    assert "leave --vocabulary out" in fails(
        1, "annotators", "check", "clip", "clip.safetensors", "--vocabulary", vocabulary
    )


class Payload:
    """What an attacker puts into a pickle."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self):
        return Path.touch, (self.place,)


def spoil(kind: str, pvse: Path, mark: Path) -> Path:
    """A file that is not a weights file of PVSE, in one of many ways."""
    path = pvse.with_name(f"{kind}.pth")
    if kind == "truncated":
        path.write_bytes(pvse.read_bytes()[:-5000])
    elif kind == "truncated-safetensors":
        path = kit.write_ours(path.with_suffix(".safetensors"), "pvse", *kit.small_pvse())
        path.write_bytes(path.read_bytes()[:-100])
    elif kind == "payload":
        path.write_bytes(pickle.dumps({"model": Payload(mark)}))
    elif kind == "payload-in-zip":
        with zipfile.ZipFile(pvse) as source, zipfile.ZipFile(path, "w") as target:
            for name in source.namelist():
                content = source.read(name)
                if name.endswith("data.pkl"):
                    content = pickle.dumps({"model": Payload(mark)}, protocol=2)
                target.writestr(name, content)
    elif kind == "web-page":
        path.write_text("<!DOCTYPE html><title>Sign in</title>")
    elif kind == "empty":
        path.touch()
    elif kind == "folder":
        path.mkdir()
    return path


SPOILED = (
    "truncated",
    "truncated-safetensors",
    "payload",
    "payload-in-zip",
    "web-page",
    "empty",
    "folder",
    "missing",
)


@pytest.mark.parametrize("kind", SPOILED)
def test_a_spoiled_file_is_one_line_and_runs_nothing(kind, pvse, empty_folder):
    """Cut off, a payload, a web page, nothing at all: the file is named and nothing in it is run."""
    mark = empty_folder / "it-ran"
    path = spoil(kind, pvse, mark)

    message = fails(1, "annotators", "check", "pvse", path)

    assert path.name in message
    assert not mark.exists()


@pytest.fixture
def project(empty_folder) -> Path:
    """A project on a small world with pictures, in the current folder."""
    world_kit.copied_once(
        "small world",
        lambda new: ok("init", "--dataset", "scenes", "--n-images", "12", "--project", new),
        empty_folder,
    )
    return empty_folder


def configure(name: str, **settings: object) -> None:
    """Add an annotator to the project's settings."""
    lines = [f"{key} = {json.dumps(value)}" for key, value in settings.items()]
    with Path("mitl.toml").open("a") as file:
        file.write(f"\n[annotators.{name}]\n" + "\n".join(lines) + "\n")


def nothing_is_left() -> bool:
    """Whether neither a ranking nor a run was stored."""
    stored = ok("status", "--json").json["counts"]["pairs"]
    return not list(Path("runs").rglob("*.parquet")) and stored == 0


QUERIES = ("--image-queries", "3", "--caption-queries", "3", "--depth", "6")


@pytest.mark.parametrize("kind", SPOILED)
@pytest.mark.parametrize("command", ["propose", "verify"])
def test_propose_and_verify_refuse_a_spoiled_file(command, kind, pvse, project):
    """The same line, and nothing half-written."""
    mark = project / "it-ran"
    path = spoil(kind, pvse, mark)
    configure("pvse", weights=path.name, vocabulary=str(kit.write_vocabulary(Path("words.txt"))))
    words = (
        ("propose", "--annotator", "pvse", *QUERIES)
        if command == "propose"
        else ("annotators", "verify", "pvse")
    )

    message = fails(1, *words)

    assert path.name in message
    assert not mark.exists()
    assert nothing_is_left()


def test_two_checkpoints_of_one_network_stand_side_by_side(project):
    """network = "pvse" under names of one's own: both propose, each under its own fingerprint."""
    for k in (1, 2):
        kit.write_flat(Path(f"k{k}.pth"), kit.small_pvse(k, words=14)[0])
    vocabulary = str(kit.write_vocabulary(Path("words.txt")))
    for k in (1, 2):
        configure(f"pvse-k{k}", network="pvse", weights=f"k{k}.pth", vocabulary=vocabulary)

    counts = ok("propose", "--annotator", "pvse-k1", "--annotator", "pvse-k2", *QUERIES, "--json").json[
        "counts"
    ]

    assert set(counts["annotators"]) == {"pvse-k1", "pvse-k2"}
    assert counts["rankings_computed"] == 4


@pytest.mark.parametrize("network", kit.SMALL)
def test_weights_of_another_network_are_refused(network, project):
    """Another network's state dict under this one's name: which file, and that it does not fit."""
    other = "vsrn" if network == "pvse" else "pvse"
    kit.write_flat(Path("other.pth"), kit.SMALL[other][0]()[0])
    configure(network, weights="other.pth")

    message = fails(1, "propose", "--annotator", network, *QUERIES)

    assert "other.pth" in message and f"does not fit {network}" in message
    assert nothing_is_left()


def test_propose_uses_what_verify_encoded(project):
    """Encodings are kept by item, so that a verification costs the following run nothing."""
    configure("pvse", weights=kit.write_small(project, "pvse").name)

    recall = ok("annotators", "verify", "pvse", "--json").json["counts"]["recall"]["all"]
    counts = ok("propose", "--annotator", "pvse", *QUERIES, "--json").json["counts"]

    assert 0 <= recall["i2t"]["R@1"] <= recall["i2t"]["R@10"] <= 100
    assert (counts["images_encoded"], counts["captions_encoded"]) == (0, 0)


def test_a_vocabulary_of_the_wrong_size_is_refused(pvse, project):
    """The weights' rows and the list's words are both told."""
    configure("pvse", weights=str(pvse), vocabulary=str(kit.write_vocabulary(Path("w.txt"), kit.WORDS[:-2])))

    message = fails(1, "propose", "--annotator", "pvse", *QUERIES)

    assert "trained with 14 words, but the vocabulary has 12 words" in message
    assert nothing_is_left()


def test_a_picture_that_does_not_decode_is_named(pvse, project):
    """The damaged file is named; what other annotators finished stays, and mending it is enough to go on."""
    use_file_annotators(project)
    configure("pvse", weights=str(pvse), vocabulary=str(kit.write_vocabulary(Path("words.txt"))))
    picture = sorted(project.rglob("*.png"))[5]
    whole = picture.read_bytes()
    world_kit.spoil(picture, whole[: len(whole) // 2])
    words = ("propose", "--annotator", "near", "--annotator", "pvse", *QUERIES)

    message = fails(1, *words)
    kept = {path.name for path in Path("runs").rglob("*.parquet")}
    picture.write_bytes(whole)
    counts = ok(*words, "--json").json["counts"]

    assert picture.name in message
    assert kept == {"near.i2t.parquet", "near.t2i.parquet"}
    # Another picture makes another run, of both annotators and both directions.
    assert counts["rankings_computed"] == 4


def test_a_caption_of_300_words_is_read_or_named(pvse, empty_folder):
    """PVSE reads any length; CLIP names the caption unless it may cut it."""
    init_with_a_long_caption(empty_folder)
    vocabulary = str(kit.write_vocabulary(Path("words.txt")))
    kit.write_ours(Path("clip.safetensors"), "clip", *kit.small_clip(), bpe_merges="")
    configure("pvse", weights=str(pvse), vocabulary=vocabulary)
    configure("clip", weights="clip.safetensors")
    configure("cut", network="clip", weights="clip.safetensors", truncate=True)
    few = ("--top-k", "1", "--depth", "1")

    assert ok("propose", "--annotator", "pvse", *few, "--json").json["counts"]["rankings_computed"] == 2
    message = fails(1, "propose", "--annotator", "clip", *few)
    assert "caption 'c2' has " in message and "truncate = true" in message
    assert ok("propose", "--annotator", "cut", *few, "--json").json["counts"]["rankings_computed"] == 2


def init_with_a_long_caption(folder: Path) -> None:
    from PIL import Image

    for name in ("a", "b"):
        Image.new("RGB", (80, 70), "red").save(folder / f"{name}.png")
    rows = [
        "image_id,caption_id,caption,file",
        "a,c1,a red square,a.png",
        f"b,c2,{' '.join(['red'] * 300)},b.png",
    ]
    Path("pairs.csv").write_text("\n".join(rows) + "\n")
    ok("init", "--dataset", "table", "--captions", "pairs.csv", "--images", folder)


@pytest.mark.parametrize(
    "words", [("propose", "--annotator", "near", *QUERIES), ("annotators", "verify", "near")]
)
@pytest.mark.parametrize(("value", "told"), [(np.nan, "not finite"), (0, "all zeros")])
def test_useless_embeddings_are_named(value, told, words, project):
    """The file, how many rows and the first id; nothing is ranked."""
    use_file_annotators(project)
    with np.load("near-images.npz") as found:
        ids, vectors = found["ids"], found["embedding"].copy()
    vectors[3] = value
    np.savez("near-images.npz", ids=ids, embedding=vectors)

    message = fails(1, *words)

    assert "near-images.npz" in message and f"are {told}; first: '{ids[3]}'" in message
    assert nothing_is_left()


def test_nan_that_a_network_gives_is_named(pvse, project):
    """Weights that are finite can still overflow: the first item without a finite embedding is named."""
    state = torch.load(pvse, weights_only=True)
    state["img_enc.cnn.bn1.running_var"][:] = -1.0
    torch.save(state, "overflow.pth")
    configure("pvse", weights="overflow.pth", vocabulary=str(kit.write_vocabulary(Path("words.txt"))))

    message = fails(1, "propose", "--annotator", "pvse", *QUERIES)

    assert "no finite numbers for image" in message
    assert nothing_is_left()


def test_the_list_tells_a_newcomer_what_to_download():
    """`mitl annotators` names every network's files and settings, as a table and as JSON."""
    outcome, found = ok("annotators"), ok("annotators", "--json").json["counts"]

    listed = {line["name"]: line for line in found["annotators"]}
    for network, released in NETWORKS.items():
        assert released.weights in outcome.out
        assert any(released.weights in line for line in listed[network]["download"])
    assert found["known"] == len(found["annotators"])
    assert found["ready"] == sum(line["ready"] for line in found["annotators"])


def test_options_stand_after_the_subcommand(pvse):
    """`mitl annotators --json check` would lose the option: wrong usage."""
    assert "options stand after the subcommand" in fails(2, "annotators", "--quiet", "check", "pvse", pvse)


def test_every_released_vocabulary_is_known_by_its_order():
    """The two released lists are told apart by their fingerprints, not by their sizes."""
    assert {len(mark) for mark in LISTS} == {64} and len(LISTS) == 2
    assert all(callable(import_module(f"annotators.{network}").examine) for network in NETWORKS)
