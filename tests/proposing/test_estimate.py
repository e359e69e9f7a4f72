"""Estimates: costs that equal what torch counts, and plans that grow with the work and shrink with the rates."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cli_kit import fails, mitl, ok
from hypothesis import given, settings
from hypothesis import strategies as st

from annotators import costs
from annotators.catalog import NETWORKS
from annotators.sizes import ClipConfig, PcmeConfig, PvseConfig, ViltConfig, VsrnConfig
from mitl.retrieval.estimates import NAMED, AnnotatorPlan, Hardware, SearchWorkload, estimate, here, total
from mitl.stages.proposing import estimate as stage
from mitl.stages.proposing.estimate import duration, scaled

MACHINE = Hardware("toy", 1e12, 4e12, 1e11, 1e9, 500.0, "made up")


def counted(compute) -> int:
    """FLOP that torch counts."""
    torch = pytest.importorskip("torch")
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter, sdpa_kernel(SDPBackend.MATH):
        compute()
    return counter.get_total_flops()


def test_costs_of_pvse_are_those_that_torch_counts():
    """Residual network, pooling by attention, both directions of the GRU."""
    torch = pytest.importorskip("torch")
    from annotators.pvse import Pvse

    sizes = {"k": 2, "embed": 16, "word": 12, "blocks": (1, 2, 2, 1), "width": 8, "image_size": 64}
    network = Pvse(PvseConfig(words=50, **sizes)).eval()
    found = PvseConfig(**sizes).costs(13)

    assert found.image == counted(lambda: network.images(torch.randn(1, 3, 64, 64)))
    words, lengths = torch.zeros(1, 13, dtype=torch.long), torch.tensor([13])
    assert found.caption == counted(lambda: network.captions(words, lengths))


def test_costs_of_pcme_are_those_that_torch_counts():
    """A mean and a variance each, the text's with a GRU of its own."""
    torch = pytest.importorskip("torch")
    from annotators.pcme import Pcme

    sizes = {"embed": 16, "word": 12, "blocks": (1, 2, 2, 1), "width": 8, "image_size": 64}
    network = Pcme(PcmeConfig(words=50, **sizes)).eval()
    found = PcmeConfig(**sizes).costs(13)

    assert found.image == counted(lambda: network.images(torch.randn(1, 3, 64, 64)))
    words, lengths = torch.zeros(1, 13, dtype=torch.long), torch.tensor([13])
    assert found.caption == counted(lambda: network.captions(words, lengths))


def test_costs_of_vsrn_are_those_that_torch_counts():
    """Projection, graph and both GRUs; two checkpoints cost twice as much."""
    torch = pytest.importorskip("torch")
    from annotators.vsrn import Vsrn

    sizes = {"word_width": 12, "region_width": 24, "width": 16, "blocks": 2, "regions": 5}
    network = Vsrn(VsrnConfig(words=50, **sizes)).eval()
    found = VsrnConfig(**sizes).costs(13)

    assert found.image == counted(lambda: network.images(torch.randn(1, 5, 24)))
    words, lengths = torch.zeros(1, 13, dtype=torch.long), torch.tensor([13])
    assert found.caption == counted(lambda: network.captions(words, lengths))
    assert VsrnConfig(**sizes).costs().times(2).image == 2 * found.image


def test_costs_of_clip_are_those_that_torch_counts():
    """Both transformers with their patches and projections."""
    torch = pytest.importorskip("torch")
    from annotators.clip import Clip

    sizes = {"embed_dim": 16, "image_size": 64, "patch_size": 16, "vision_width": 32, "vision_layers": 3}
    sizes |= {"vision_mlp": 48, "text_width": 24, "text_layers": 2, "text_mlp": 40}
    config = ClipConfig(**sizes, vision_heads=2, text_heads=2, context_length=20, vocab_size=60)
    network = Clip(config).eval()
    found = config.costs(11)

    assert found.image == counted(lambda: network.images(torch.randn(1, 3, 64, 64)))
    assert found.caption == counted(lambda: network.captions(torch.arange(11)[None]))


def test_costs_of_vilt_are_those_that_torch_counts():
    """Patches once an image; a pair without what each item brings along, and a last layer for one token."""
    torch = pytest.importorskip("torch")
    from annotators.vilt import Vilt
    from annotators.vilt_core import ViltCore

    sizes = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 40}
    sizes |= {"image_size": 48, "patch_size": 16, "max_position_embeddings": 20}
    core = ViltCore(Vilt(ViltConfig(vocab_size=60, **sizes)).eval())
    found = ViltConfig(**sizes).costs(11)
    pixels, place = torch.randn(1, 3, 48, 64), torch.tensor([0])
    with torch.no_grad():
        image, caption = core.images(pixels), core.captions(torch.arange(11)[None])
        entered = core.entered(image), core.entered(caption)

    assert found.image == counted(lambda: core.images(pixels))
    assert found.pair == counted(lambda: core.joint(*entered, place, place))


@pytest.mark.parametrize(
    ("flop", "giga"),
    [
        (costs.resnet(), 23.0),
        (ClipConfig().costs().image, 8.8),
        (costs.transformer(145 + 16, 768, 12, 3072) + costs.linear(3072, 768, 144), 29.0),
        (costs.transformer(229 + 40, 768, 12, 3072) + costs.linear(3072, 768, 228), 49.4),
        (PcmeConfig().costs().pair, 1e-4),
    ],
)
def test_the_released_sizes_cost_what_is_known_of_them(flop, giga):
    """ResNet-152 and ViT-B/32 at 224 pixels, ViLT's pair in full for its smallest and largest pictures."""
    assert flop / 1e9 == pytest.approx(giga, rel=0.01)


def workloads():
    sizes = st.integers(1, 10**7)
    return st.tuples(sizes, sizes, st.floats(0, 1), st.floats(0, 1)).map(
        lambda t: SearchWorkload(t[0], t[1], int(t[0] * t[2]), int(t[1] * t[3]))
    )


def plans():
    return st.builds(
        AnnotatorPlan,
        st.sampled_from([entry.config().costs() for entry in NETWORKS.values()]),
        st.booleans(),
        st.none() | st.integers(1, 1000),
    )


@settings(deadline=None)
@given(plan=plans(), work=workloads(), more=st.integers(1, 1000))
def test_more_work_never_takes_less(plan, work, more):
    """In operations, bytes, pairs, time and money, whichever count grows; some item of each side does not search."""
    work = replace(work, images=work.images + more, captions=work.captions + more)
    before = estimate(plan, work, MACHINE, cents_per_hour=300)

    for larger in (
        replace(work, images=work.images + 1),
        replace(work, captions=work.captions + more),
        replace(work, image_queries=work.image_queries + more - 1),
        replace(work, caption_queries=work.caption_queries + more - 1),
    ):
        after = estimate(plan, larger, MACHINE, cents_per_hour=300)
        for name in ("encode_flop", "compare_flop", "pairs", "kept_bytes", "read_bytes", "seconds", "cents"):
            assert getattr(after, name) >= getattr(before, name), name


@settings(deadline=None)
@given(plan=plans(), work=workloads(), factor=st.floats(1.0, 100.0))
def test_faster_hardware_is_never_slower(plan, work, factor):
    """Whichever rate rises."""
    before = estimate(plan, work, MACHINE)
    for rate in ("float32", "low", "memory", "disk", "pictures"):
        faster = replace(MACHINE, **{rate: getattr(MACHINE, rate) * factor})
        assert estimate(plan, work, faster).seconds <= before.seconds


@settings(deadline=None)
@given(plan=plans(), work=workloads(), machines=st.integers(1, 64))
def test_machines_share_time_and_cost_the_same(plan, work, machines):
    """Money is machine hours; without a price there is none."""
    one = estimate(plan, work, MACHINE, cents_per_hour=350)
    several = estimate(plan, work, MACHINE, machines=machines, cents_per_hour=350)

    assert several.seconds == pytest.approx(one.seconds / machines)
    assert several.cents == pytest.approx(one.cents)
    assert one.cents == pytest.approx(one.seconds / 3600 * 350)
    assert estimate(plan, work, MACHINE).cents is None


def test_an_estimate_can_be_checked_on_paper():
    """10 images, 20 captions, 5 + 4 queries: 5 x 20 + 4 x 10 pairs, of which 20 are met in both directions."""
    vectors = costs.Costs(image=1e9, caption=1e8, pair=1e6, image_bytes=100, caption_bytes=10)
    pairs = replace(vectors, pair_bytes=12, vectors=False)
    work = SearchWorkload(10, 20, 5, 4)
    rankings = 9 * 25 * 16

    found, scored = (
        estimate(AnnotatorPlan(vectors), work, MACHINE),
        estimate(AnnotatorPlan(pairs, True), work, MACHINE),
    )

    assert (found.pairs, scored.pairs) == (140, 120)
    assert found.encode_flop == 10 * 1e9 + 20 * 1e8
    assert found.kept_bytes == 1000 + 200 + rankings
    assert scored.kept_bytes == found.kept_bytes + 120 * 12
    assert found.read_bytes == 10 * 160_000 + found.kept_bytes
    once = found.read_bytes / 1e9 + 10 / 500
    assert found.seconds == pytest.approx(once + 12e9 / 0.5e12 + 140e6 / 3.2e12)
    again = scored.read_bytes / 1e9 + 10 / 500
    assert scored.seconds == pytest.approx(again + (12e9 + 120e6) / 2e12)


def test_a_shortlist_scores_so_many_pairs_a_query_and_no_pair_twice():
    """Fewer where the gallery is smaller, and never more than there are."""
    plan = AnnotatorPlan(ViltConfig().costs(), shortlist=8)

    assert estimate(plan, SearchWorkload(100, 500, 10, 20), MACHINE).pairs == 8 * 30
    assert estimate(plan, SearchWorkload(5, 500, 5, 0), MACHINE).pairs == 5 * 8
    assert estimate(plan, SearchWorkload(3, 4, 3, 4), MACHINE).pairs == 12


def test_all_queries_of_both_sides_are_one_pass():
    """123,287 x 616,767 pairs are compared once; with one caption fewer searching, both directions are."""
    work = SearchWorkload(123_287, 616_767, 123_287, 616_767)

    assert estimate(AnnotatorPlan(ClipConfig().costs()), work, MACHINE).pairs == 123_287 * 616_767
    fewer = replace(work, caption_queries=616_766)
    assert estimate(AnnotatorPlan(ClipConfig().costs()), fewer, MACHINE).pairs > 1.9 * 123_287 * 616_767


def test_a_total_adds_up():
    """Money only where every part has a price."""
    work = SearchWorkload(10, 20, 10, 20)
    parts = {
        name: estimate(AnnotatorPlan(entry.config().costs()), work, MACHINE, cents_per_hour=100)
        for name, entry in NETWORKS.items()
    }

    assert total(parts).flop == pytest.approx(sum(part.flop for part in parts.values()))
    assert total(parts).cents == pytest.approx(sum(part.cents for part in parts.values()))
    assert (
        total({**parts, "free": estimate(AnnotatorPlan(ClipConfig().costs()), work, MACHINE)}).cents is None
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (999, "999 B"), (999.9, "1 kB"), (1234, "1.23 kB"), (2.8e21, "2.8 ZB"), (5e27, "5,000 YB")],
)
def test_numbers_are_scaled_by_thousands(value, text):
    """With three digits."""
    assert scaled(value, "B") == text


@settings(deadline=None)
@given(st.floats(1.0, 1e30))
def test_scaled_numbers_stay_below_a_thousand(value):
    """But for those that no prefix is left for."""
    number, _ = scaled(value, "B").split()

    assert float(number.replace(",", "")) < 1000 or value > 999e21


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "under 1 s"),
        (12.4, "12 s"),
        (60, "1 min"),
        (3599.7, "60 min"),
        (7260, "2 h 1 min"),
        (41 * 86400 + 7300, "41 d 2 h"),
    ],
)
def test_times_have_their_two_largest_units(seconds, text):
    """Rounded."""
    assert duration(seconds) == text


@pytest.mark.thorough
def test_this_machine_is_measured_without_writing(tmp_path, monkeypatch):
    """All rates are positive and finite; the disk's is assumed where there is nothing to read."""
    monkeypatch.chdir(tmp_path)
    found = here(seconds=0.001)

    rates = [found.float32, found.low, found.memory, found.disk, found.pictures]
    assert all(0 < rate < math.inf for rate in rates)
    assert found.low >= found.float32
    assert found.source.startswith("measured now")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def quick_probe(monkeypatch, tmp_path):
    """In an empty folder, with rates that take no time to find."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(stage, "here", lambda files: replace(MACHINE, name="here"))
    return tmp_path


COCO = ("--estimate-images", "123287", "--estimate-captions", "616767")


def test_an_estimate_needs_no_project_and_leaves_none(quick_probe):
    """The five networks on all of COCO, here and on a card; nothing is written."""
    found = ok("propose", "--estimate", *COCO, "--price-per-hour", "3.60", "--json").json

    counts = found["counts"]
    assert (counts["images"], counts["caption_queries"]) == (123_287, 616_767)
    assert set(counts["estimates"]) == {"here", "h200"}
    for part in counts["estimates"].values():
        assert set(part["annotators"]) == set(NETWORKS)
        assert part["total"]["seconds"] == pytest.approx(
            sum(p["seconds"] for p in part["annotators"].values())
        )
        assert part["total"]["cents"] == pytest.approx(part["total"]["seconds"] / 10, rel=0.001, abs=3)
        bf16, short = part["alternatives"].values()
        assert short["pairs"] < bf16["pairs"] / 40
    assert list(quick_probe.iterdir()) == []


def test_an_estimate_says_where_its_rates_are_from(quick_probe):
    """Peaks by their maker, and the share of them that is reached."""
    out = ok("propose", "--estimate", *COCO, "--hardware", "h200", "--annotator", "clip").out

    assert "h200 (NVIDIA, H200 SXM): 67 TFLOP/s float32, 989 TFLOP/s low precision" in out
    assert "reached by networks 30%, by search 30%" in out
    assert "a plan from rates, not a promise" in out


def test_an_estimate_counts_the_projects_items_and_queries(quick_probe):
    """Without counts of its own; and nothing is stored."""
    ok("init", "--dataset", "scenes", "--n-images", "40")
    before = {path: path.stat().st_mtime_ns for path in quick_probe.rglob("*")}

    counts = ok("propose", "--estimate", "--annotator", "clip", "--image-queries", "7", "--json").json[
        "counts"
    ]

    assert (counts["images"], counts["captions"], counts["image_queries"]) == (40, 200, 7)
    assert counts["estimates"]["here"]["annotators"]["clip"]["pairs"] == 7 * 200 + 200 * 40
    assert {path: path.stat().st_mtime_ns for path in quick_probe.rglob("*")} == before


def test_settings_of_an_annotator_count(quick_probe):
    """Two checkpoints of VSRN, ViLT in bfloat16 on a shortlist."""
    (quick_probe / "mitl.toml").write_text(
        '[annotators.vsrn]\nweights = ["a.pth", "b.pth"]\n'
        '[annotators.vilt]\nprecision = "bfloat16"\nshortlist = 100\nshortlist_from = ["clip"]\n'
    )
    asked = (
        "propose",
        "--estimate",
        *COCO,
        "--hardware",
        "h100",
        "--annotator",
        "vsrn",
        "--annotator",
        "vilt",
    )

    part = ok(*asked, "--json").json["counts"]["estimates"]["h100"]

    assert part["annotators"]["vilt"]["pairs"] == 100 * (123_287 + 616_767)
    assert part["annotators"]["vsrn"]["encode_flop"] == 2 * (
        123_287 * VsrnConfig().costs().image + 616_767 * VsrnConfig().costs().caption
    )
    assert part["alternatives"] == {}


def test_a_shortlist_is_made_by_those_that_are_asked_beside_it(quick_probe):
    """As in ranking: the other annotators of the command, not those of mitl.toml."""
    (quick_probe / "mitl.toml").write_text("[annotators.vilt]\nshortlist = 100\n")
    asked = ("propose", "--estimate", *COCO, "--hardware", "h100", "--annotator", "vilt", "--annotator")

    part = ok(*asked, "clip", "--annotator", "pvse", "--json").json["counts"]["estimates"]["h100"]

    assert part["annotators"]["vilt"]["pairs"] == 2 * 100 * (123_287 + 616_767)


def test_options_that_would_do_nothing_are_refused(quick_probe):
    """Estimating takes none of ranking's, ranking none of estimating's."""
    assert "--hardware is for --estimate" in fails(2, "propose", "--hardware", "h200")
    assert "--depth changes nothing in an estimate" in fails(2, "propose", "--estimate", "--depth", "3")
    assert "--ray-address is for --engine ray" in fails(2, "propose", "--ray-address", "auto")


def test_pivots_and_files_can_be_estimated(quick_probe):
    """A pivot reads no picture, sentences cost more than words, and what is in files costs its comparison alone."""
    ids = np.arange(40)
    for side in ("images", "captions"):
        np.savez(f"{side}.npz", ids=ids, embedding=np.ones((40, 2, 8), np.float32))
    ok("init", "--dataset", "scenes", "--n-images", "40")
    with Path("mitl.toml").open("a") as settings:
        settings.write(
            '[annotators.stored]\nembeddings = {images = "images.npz", captions = "captions.npz"}\n'
            '[annotators.ranked]\nrankings = {i2t = "i2t.parquet"}\n'
            '[annotators.pivot-x-minilm]\ncaptions = "machine.csv"\n'
            '[annotators.words]\ncaptions = "machine.csv"\ncaptioner = "x"\ntext_model = "tfidf"\n'
        )
    names = ("stored", "ranked", "pivot-x-minilm", "words")

    asked = [word for name in names for word in ("--annotator", name)]
    found = ok("propose", "--estimate", *asked, "--hardware", "t4", "--json").json

    parts = found["counts"]["estimates"]["t4"]["annotators"]
    assert found["warnings"] == []
    assert parts["stored"]["encode_flop"] == 0 < parts["stored"]["compare_flop"]
    assert parts["stored"]["compare_flop"] == parts["stored"]["pairs"] * 2 * 8 * 4
    assert parts["ranked"]["encode_flop"] == parts["ranked"]["compare_flop"] == 0
    assert parts["pivot-x-minilm"]["encode_flop"] > 100 * parts["words"]["encode_flop"] > 0
    assert parts["words"]["read_bytes"] < 160_000


def test_unknown_hardware_and_annotators_are_one_clear_line(quick_probe):
    """With what is known."""
    message = fails(2, "propose", "--estimate", *COCO, "--hardware", "abacus")
    assert message == f"no hardware called 'abacus'; known: here, {', '.join(NAMED)}"
    message = fails(1, "propose", "--estimate", *COCO, "--annotator", "mine")
    assert message.startswith("costs are known of the networks pvse, vsrn, pcme, vilt, clip")
    outcome = mitl("propose", "--estimate", *COCO, "--annotator", "mine", "--annotator", "clip")
    assert outcome.err == "warning: nothing is known of the costs of annotator 'mine', so it is left out\n"
