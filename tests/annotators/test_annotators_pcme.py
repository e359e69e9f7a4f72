"""PCME: its names, its Gaussians, the layouts of its weights, its samples and its three similarities."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from dual_encoder_kit import (
    TEXTS,
    WORD2IDX,
    WORDS,
    Reference,
    State,
    captions,
    made_by_rule,
    padded,
    pcme_shapes,
    pictures,
    pvse_shapes,
    write_ours,
    write_vocabulary,
)

from annotators import match_probability, registry
from annotators.base import Encoded
from annotators.inputs.vocabularies import Vocabulary
from annotators.match_probability import Odds, SampleSet, match_probabilities
from annotators.pcme import (
    ClosedFormPcme,
    MatchProbability,
    Pcme,
    SampledPcme,
    ShortlistedPcme,
    examine,
    load,
)
from annotators.sizes import PcmeConfig
from mitl.errors import AnnotatorError
from mitl.progress import no_progress
from mitl.records import AnnotatorKind, CaptionItem
from mitl.retrieval.topk import top_k

CONFIG = PcmeConfig(words=len(WORDS), word=10, embed=12, blocks=(2, 1), width=4, image_size=32)
VOCABULARY = Vocabulary(WORDS)
TOKENS = [VOCABULARY.encode(text).tolist() for text in TEXTS]
SHIFT, SCALE = 3.25, 2.5
FIRST_NOISE = [-0.565707266330719, 0.8286362886428833, -0.9249058365821838]
"""Of seed 0 and the image "a"; rankings of old and new versions agree as long as these stay."""


def state() -> State:
    """Small weights whose sigmas are near 0.1."""
    made = made_by_rule(pcme_shapes(CONFIG))
    made["img_enc.uncertain_net.fc.bias"] -= 2.3
    made["txt_enc.uncertain_net.fc.bias"] -= 2.3
    return made


def network() -> Pcme:
    made = Pcme(CONFIG)
    made.load_state_dict(state())
    return made.eval()


def criterion() -> State:
    return {"shift": torch.tensor([SHIFT]), "negative_scale": torch.tensor([SCALE])}


def released(path: Path, **changed: object) -> Path:
    """A checkpoint as the official training script writes it."""
    parts: dict[str, object] = {
        "model": state(),
        "criterion": criterion(),
        "optimizer": {"state": {0: {"step": 3, "exp_avg": torch.zeros(2)}}, "param_groups": [{"lr": 2e-4}]},
        "lr_scheduler": {"last_epoch": 30},
        "config": {"model": {"embed_dim": 12, "n_samples_inference": 7}},
        "word2idx": WORD2IDX,
        "metadata": {"best_score": 1.5, "scores": {"medr": np.float64(1.0), "meanr": np.float64(4.2)}},
    }
    torch.save({name: part for name, part in {**parts, **changed}.items() if part is not None}, path)
    return path


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    odds = {f"criterion.{name}": tensor for name, tensor in criterion().items()}
    return write_ours(tmp_path / "pcme.safetensors", "pcme", CONFIG, {**state(), **odds})


def annotator(path: Path, **settings: object):
    return registry.build("pcme", {"weights": str(path), "device": "cpu", "threads": 1, **settings})


def explicit(a: np.ndarray, b: np.ndarray, scale: float, shift: float) -> np.ndarray:
    """The probability as it is defined: differences of all pairs of samples, in float64."""
    d = np.sqrt(((a[:, None, :, None].astype(np.float64) - b[None, :, None]) ** 2).sum(-1) + 1e-6)
    odds = -scale * d + shift
    return (np.exp(odds) / (np.exp(odds) + np.exp(-odds))).mean((2, 3))


def test_full_size_has_the_released_names_and_shapes():
    """All 971 entries bear the released names, shapes and order; counters aside they hold 80,122,848 numbers."""
    with torch.device("meta"):
        found = {name: tuple(tensor.shape) for name, tensor in Pcme(PcmeConfig()).state_dict().items()}

    assert list(found.items()) == list(pcme_shapes(PcmeConfig()).items())
    assert len(found) == 971
    counted = (shape for name, shape in found.items() if not name.endswith("num_batches_tracked"))
    assert sum(int(np.prod(shape)) for shape in counted) == 80_122_848


def test_pictures_become_the_published_gaussians():
    """Mean (PIE, unit length) and log-sigma (attention and mean, linear) agree with a second implementation."""
    reference = Reference(state())
    pixels = torch.randn(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))

    with torch.no_grad():
        found = network().images(pixels)

    for row, picture in enumerate(pixels):
        cells = reference.cells(picture)
        pooled = cells.mean(0)
        mean = reference.pie("img_enc.pie_net", reference.linear("img_enc.fc", pooled), cells)[0]
        attended = reference.attend("img_enc.uncertain_net", cells)[0]
        log_sigma = reference.linear("img_enc.uncertain_net.fc", attended) + reference.linear(
            "img_enc.uncertain_net.fc2", pooled
        )
        assert (found["mean"][row] - mean / mean.norm()).abs().max() < 1e-6
        assert (found["log_sigma"][row] - log_sigma).abs().max() < 1e-6


def test_captions_become_the_published_gaussians():
    """Both recurrent networks are read at the last word; the second one's output is part of the log-sigma."""
    reference = Reference(state())

    with torch.no_grad():
        found = network().captions(*padded(TOKENS))

    for row, tokens in enumerate(TOKENS):
        words = reference.words(tokens)
        mean = reference.pie("txt_enc.pie_net", reference.gru("txt_enc.rnn", words), words)[0]
        attended = reference.attend("txt_enc.uncertain_net", words)[0]
        log_sigma = reference.linear("txt_enc.uncertain_net.fc", attended) + reference.gru(
            "txt_enc.uncertain_net.rnn", words
        )
        assert (found["mean"][row] - mean / mean.norm()).abs().max() < 1e-6
        assert (found["log_sigma"][row] - log_sigma).abs().max() < 1e-6


def test_padding_and_neighbours_change_nothing():
    """A caption alone and among others, padded with anything, has one Gaussian."""
    pcme, order = network(), [4, 0, 6, 2, 5, 1, 3]

    with torch.no_grad():
        alone = [pcme.captions(*padded([text])) for text in TOKENS]
        together = pcme.captions(*padded([TOKENS[i] for i in order], pad=5, more=9))

    for name in ("mean", "log_sigma"):
        expected = torch.cat([alone[i][name] for i in order])
        assert (together[name] - expected).abs().max() < 1e-6


def test_every_parameter_learns():
    """Gradients of the match probability reach all parameters, the scale and the shift too."""
    pcme, odds = Pcme(CONFIG).train(), MatchProbability()
    images, texts = pcme.images(torch.randn(2, 3, 32, 32)), pcme.captions(*padded(TOKENS[:2]))
    left, right = (
        side["mean"][:, None] + side["log_sigma"].exp()[:, None] * torch.randn(2, 3, 12)
        for side in (images, texts)
    )

    odds(left, right).sum().backward()

    learning = [*pcme.parameters(), *odds.parameters()]
    assert all(parameter.grad is not None for parameter in learning)


def test_the_trainable_probability_is_the_fast_one():
    """What a network is trained with is what it ranks with."""
    rng = np.random.default_rng(0)
    left, right = (rng.normal(0, 0.4, (n, 7, 12)).astype(np.float32) for n in (3, 4))
    odds = MatchProbability()
    odds.load_state_dict(criterion())

    with torch.no_grad():
        found = odds(torch.from_numpy(left), torch.from_numpy(right)).numpy()

    assert found == pytest.approx(
        match_probabilities(SampleSet.of(left), SampleSet.of(right), Odds(SHIFT, SCALE)), abs=1e-6
    )


@pytest.mark.parametrize("prefix", ["", "module."])
def test_the_official_checkpoint_loads_with_odds_and_words(tmp_path: Path, prefix: str):
    """Weights, criterion and word2idx are taken out of the training dictionary."""
    path = released(tmp_path / "pcme.pth", model={prefix + name: t for name, t in state().items()})

    trained, examination = load(path), examine(path)

    assert all(torch.equal(t, state()[name]) for name, t in trained.network.state_dict().items())
    assert trained.odds is not None
    assert (trained.odds.shift, trained.odds.negative_scale) == (SHIFT, SCALE)
    assert trained.vocabulary == VOCABULARY
    assert examination.fits
    assert examination.what == "PCME, 13 words"
    assert examination.settings["shift"] == SHIFT
    assert examination.settings["word2idx"] is True


@pytest.mark.parametrize(
    ("part", "option", "value"),
    [
        ("model", "embed_dim", 1024),
        ("model", "word_dim", 300),
        ("model", "cnn_type", "resnet152"),
        ("model", "img_attention", False),
        ("model", "txt_probemb", False),
        ("model", "n_samples_inference", 0),
        ("dataloader", "crop_size", 256),
    ],
)
def test_a_config_of_another_computation_is_refused(tmp_path: Path, part: str, option: str, value: object):
    """The configuration in a file must be that of what is computed; the line says which entry is not."""
    path = released(tmp_path / "pcme.pth", config={part: {option: value}})

    assert f"it was trained with {option} = {value!r}, " in examine(path).problems[0]
    with pytest.raises(AnnotatorError, match=f"trained with {option} = "):
        load(path)


def test_as_many_samples_are_drawn_as_in_training(tmp_path: Path):
    """Unless the setting says otherwise; the comparison of validation in the file (matmul) is no matter."""
    config = {"model": {"n_samples_inference": 3, "eval_method": "matmul", "no_sigma_ln": True}}
    path = released(tmp_path / "pcme.pth", config=config)
    captions = [CaptionItem(1, "1", 1, "a dog")]

    drawn = [
        annotator(path, **settings).encode_captions(captions).arrays["samples"].shape[1]
        for settings in ({}, {"samples": 5})
    ]

    assert drawn == [3, 5]


def test_our_own_layout_holds_the_odds_beside_the_weights(ours: Path):
    """A file of ours needs no other file."""
    trained = load(ours)

    assert trained.network.config == CONFIG
    assert trained.odds is not None
    assert (trained.odds.shift, trained.odds.negative_scale) == (SHIFT, SCALE)
    assert trained.vocabulary == VOCABULARY
    assert examine(ours).matched == len(state()) + 2


def test_a_bare_state_dict_asks_for_the_odds(tmp_path: Path):
    """Without the criterion the learned odds are unknown: they must be given, nothing is assumed."""
    path, words = tmp_path / "bare.pth", write_vocabulary(tmp_path / "words.json")
    torch.save(state(), path)

    found = examine(path)
    assert found.fits
    assert found.what == "PCME, 13 words, without the criterion (set 'shift' and 'negative_scale')"
    with pytest.raises(AnnotatorError, match=r"needs the setting 'negative_scale'.*without its criterion"):
        annotator(path, vocabulary=str(words), shift=15)
    with pytest.raises(AnnotatorError, match="'shift' of annotator 'pcme' is 'wide'"):
        annotator(path, vocabulary=str(words), shift="wide", negative_scale=15)
    built = annotator(path, vocabulary=str(words), shift=15, negative_scale=14.5)
    assert (built.odds.shift, built.odds.negative_scale) == (15, 14.5)
    with pytest.raises(AnnotatorError, match="needs the setting 'vocabulary'"):
        annotator(path, shift=15, negative_scale=15)


@pytest.mark.parametrize(
    "broken",
    [
        *({"shift": torch.tensor([1.0])}, {**criterion(), "shift": torch.tensor([torch.nan])}),
        *({**criterion(), "shift": 10**6000}, {}, [1.0, 2.0]),
    ],
)
def test_a_broken_criterion_is_refused(tmp_path: Path, broken: object):
    """A criterion without both finite numbers is a fault of the file, not a reason to guess."""
    path = released(tmp_path / "pcme.pth", criterion=broken)

    with pytest.raises(AnnotatorError, match="criterion holds no finite number"):
        load(path)
    assert not examine(path).fits


def test_pvse_s_weights_are_not_taken_for_pcme_s(tmp_path: Path):
    """The other network lacks the uncertainty blocks, and the line says so."""
    path = tmp_path / "pvse.pth"
    torch.save(made_by_rule(pvse_shapes(CONFIG, 1)), path)

    with pytest.raises(AnnotatorError, match=r"does not fit pcme: .* lacks 'img_enc\.uncertain_net"):
        load(path)


def test_weights_that_are_not_finite_are_refused(tmp_path: Path):
    """NaN is found when the file is opened, not after hours of encoding."""
    spoilt = state()
    spoilt["txt_enc.embed.weight"][3, 3] = torch.nan

    with pytest.raises(AnnotatorError, match=r"not finite; first: 'txt_enc\.embed\.weight'"):
        load(released(tmp_path / "pcme.pth", model=spoilt))


def test_the_vocabulary_must_be_the_checkpoint_s(tmp_path: Path):
    """The words in the file need no setting; others of the same number or another number are refused."""
    path = released(tmp_path / "pcme.pth")
    turned = write_vocabulary(tmp_path / "turned.json", [*WORDS[:5], "cat", "dog", *WORDS[7:]])
    longer = write_vocabulary(tmp_path / "longer.json", [*WORDS, "zebra"])
    bare = released(tmp_path / "bare.pth", word2idx=None)

    assert annotator(path).fingerprint
    for wrong, line in ((turned, "leave 'vocabulary' out"), (longer, "vocabulary has 14 words")):
        with pytest.raises(AnnotatorError, match=line):
            annotator(path, vocabulary=str(wrong))
    with pytest.raises(AnnotatorError, match="needs the setting 'vocabulary'"):
        annotator(bare)
    assert annotator(bare, vocabulary=str(write_vocabulary(tmp_path / "same.json"))).fingerprint


def test_samples_are_the_official_formula():
    """mu + exp(log_sigma) eps for given noise, not normalised again."""
    rng = np.random.default_rng(0)
    mean, log_sigma = (rng.normal(size=(4, 12)).astype(np.float32) for _ in range(2))
    eps = rng.normal(size=(4, 7, 12)).astype(np.float32)

    found = match_probability.samples(mean, log_sigma, eps)

    mu, s, e = (torch.from_numpy(part) for part in (mean, log_sigma, eps))
    official = e.mul(torch.exp(s.unsqueeze(1))).add_(mu.unsqueeze(1))
    assert np.array_equal(found, official.numpy())


def test_noise_belongs_to_the_item():
    """It depends on the seed, the side and the item's own id; it is standard normal; its first numbers stay."""
    whole = match_probability.noise(0, "image", ["a", "b", "ü"], 7, 1024)

    assert np.array_equal(match_probability.noise(0, "image", ["ü", "b"], 7, 1024), whole[[2, 1]])
    for other in (
        match_probability.noise(1, "image", ["a"], 7, 1024),
        match_probability.noise(0, "caption", ["a"], 7, 1024),
    ):
        assert not np.allclose(other, whole[:1])
    assert abs(whole.mean()) < 0.02
    assert abs(whole.std() - 1) < 0.02
    assert whole[0, 0, :3].tolist() == pytest.approx(FIRST_NOISE, abs=1e-6)


def test_samples_do_not_change_with_batch_order_or_company(tmp_path: Path, ours: Path):
    """The same items in other batches, another order or a subset have the same samples."""
    items, texts = pictures(tmp_path), captions()
    whole = annotator(ours, batch=4)
    images, told = whole.encode_images(items), whole.encode_captions(texts)

    for batch in (1, 3):
        other = annotator(ours, batch=batch)
        few, some = other.encode_images(items[3:1:-1]), other.encode_captions(texts[::-2])
        assert np.abs(few.arrays["samples"] - images.arrays["samples"][3:1:-1]).max() < 1e-6
        assert np.abs(some.arrays["samples"] - told.arrays["samples"][::-2]).max() < 1e-6
    again = annotator(ours, batch=4, seed=1).encode_captions(texts)
    assert not np.allclose(again.arrays["samples"], told.arrays["samples"])


@pytest.mark.parametrize("settings", [{}, {"samples": 3, "seed": 5}])
def test_sampled_similarity_is_the_published_probability(
    tmp_path: Path, ours: Path, settings: dict[str, int]
):
    """Encoded samples are mean + sigma noise, and their probability is that of explicit differences, both ways."""
    pcme = annotator(ours, **settings)
    items, texts = pictures(tmp_path), captions()
    images, told = pcme.encode_images(items), pcme.encode_captions(texts)
    count = settings.get("samples", 7)

    with torch.no_grad():
        gaussians = [network().captions(*padded([tokens])) for tokens in TOKENS]
    mean, log_sigma = (torch.cat([g[name] for g in gaussians]).numpy() for name in ("mean", "log_sigma"))
    eps = match_probability.noise(
        settings.get("seed", 0), "caption", [item.external_id for item in texts], count, 12
    )

    assert isinstance(pcme, SampledPcme)
    assert pcme.kind is AnnotatorKind.PROBABILITY
    assert told.arrays["samples"].shape == (len(texts), count, 12)
    assert told.arrays["samples"] == pytest.approx(mean[:, None] + np.exp(log_sigma)[:, None] * eps, abs=1e-6)
    expected = explicit(images.arrays["samples"], told.arrays["samples"], SCALE, SHIFT)
    assert pcme.similarities(images, told) == pytest.approx(expected, abs=1e-6)
    back = pcme.similarities(told, images).T
    assert back == pytest.approx(expected, abs=1e-6)
    assert expected.std() > 0.01


def test_the_closed_form_takes_means_and_variances(tmp_path: Path, ours: Path):
    """It is the probability at the expected squared distance, and is named as another similarity."""
    pcme = annotator(ours, similarity="closed_form")
    images, told = pcme.encode_images(pictures(tmp_path)), pcme.encode_captions(captions())

    with torch.no_grad():
        gaussians = [network().captions(*padded([tokens])) for tokens in TOKENS]
    spread = np.array([(2 * g["log_sigma"]).exp().sum().item() for g in gaussians])

    assert isinstance(pcme, ClosedFormPcme)
    assert told.arrays["spread"] == pytest.approx(spread, rel=1e-5)
    a, b = images.arrays, told.arrays
    squared = ((a["mean"][:, None].astype(np.float64) - b["mean"]) ** 2).sum(-1)
    squared += a["spread"][:, None].astype(np.float64) + b["spread"]
    expected = 1 / (1 + np.exp(-2 * (SHIFT - SCALE * np.sqrt(squared + 1e-6))))
    assert pcme.similarities(images, told) == pytest.approx(expected, abs=1e-6)
    assert np.array_equal(pcme.similarities(told, images).T, pcme.similarities(images, told))
    assert pcme.fingerprint != annotator(ours).fingerprint


def encoded(modality: str, count: int, seed: int, centre: int = 0) -> Encoded:
    """Made-up samples around few places, so that some are near."""
    rng = np.random.default_rng(seed)
    places = np.random.default_rng(centre).normal(size=(20, 12))
    mean = places[rng.integers(0, 20, count)] + 0.2 * rng.normal(size=(count, 12))
    mean /= np.linalg.norm(mean, axis=1, keepdims=True)
    drawn = mean[:, None] + 0.05 * np.exp(rng.normal(size=(count, 1, 1))) * rng.normal(size=(count, 7, 12))
    found = SampleSet.of(drawn.astype(np.float32))
    arrays = {"samples": found.samples, "squares": found.squares, "mean": found.mean}
    return Encoded(modality, np.arange(count, dtype=np.int64) * 3 + 1, arrays)


def test_the_shortlist_finds_the_exact_ranking_and_says_how_well(ours: Path):
    """With a list long enough for its measured recall, the rankings are the exact ones."""
    pcme = annotator(ours, search="shortlist", shortlist=20)
    queries, gallery = encoded("caption", 30, 1), encoded("image", 300, 2)

    found = pcme.top_k(queries, gallery, 5, block_bytes=1 << 20, progress=no_progress)

    exact = pcme.similarities(queries, gallery)
    order = np.lexsort((np.broadcast_to(np.arange(300), exact.shape), -exact))[:, :5]
    assert isinstance(pcme, ShortlistedPcme)
    assert pcme.measured is not None
    assert pcme.measured.recall >= 0.999
    assert "of the exact top 5 of 30 queries" in str(pcme.measured)
    assert np.array_equal(found.query_ids, queries.ids)
    assert found.similarities == pytest.approx(np.take_along_axis(exact, order, 1), abs=1e-6)
    clear = np.abs(np.diff(np.sort(-exact, axis=1)[:, :6])) > 1e-5
    assert np.array_equal(found.item_ids[clear], gallery.ids[order][clear])


def test_both_searches_are_reached_through_one_signature(ours: Path):
    """``top_k`` ranks by blocks of probabilities, or lets the shortlist search by itself: the same rankings."""
    queries, gallery = encoded("caption", 12, 1), encoded("image", 200, 2)
    ways = annotator(ours), annotator(ours, search="shortlist", shortlist=80)

    exact, listed = (top_k(way, queries, gallery, 5, block_bytes=1 << 20) for way in ways)

    assert ways[1].measured is not None
    assert exact.similarities == pytest.approx(listed.similarities, abs=1e-6)
    clear = (-np.diff(exact.similarities, axis=1) > 1e-5).all(1)
    assert clear.any()
    assert np.array_equal(exact.item_ids[clear], listed.item_ids[clear])


def test_equal_probabilities_go_to_the_smaller_id(ours: Path):
    """Copies in the gallery come in the order of their ids."""
    pcme = annotator(ours, search="shortlist", shortlist=10)
    gallery = encoded("image", 40, 2).rows(np.repeat(np.arange(10), 4))
    gallery = Encoded("image", np.arange(40), gallery.arrays)

    found = pcme.top_k(encoded("caption", 6, 1), gallery, 4, block_bytes=1 << 20, progress=no_progress)

    assert all(row.tolist() == list(range(row[0], row[0] + 4)) for row in found.item_ids)


def test_samples_that_are_not_finite_are_one_line(ours: Path):
    """The shortlist names the first item that cannot be compared."""
    pcme = annotator(ours, search="shortlist")
    gallery = encoded("image", 9, 2)
    gallery.arrays["squares"][4] = np.nan

    with pytest.raises(AnnotatorError, match="Gaussian of image 13 is too wide"):
        pcme.top_k(encoded("caption", 6, 1), gallery, 4, block_bytes=1 << 20, progress=no_progress)


def test_a_sigma_beyond_float32_is_one_line(tmp_path: Path):
    """Finite weights may still give a Gaussian that no sample can be drawn from."""
    wide = state()
    wide["txt_enc.uncertain_net.fc.bias"] += 1000
    path = released(tmp_path / "pcme.pth", model=wide)

    for similarity in ("sampled", "closed_form"):
        with pytest.raises(AnnotatorError, match="Gaussian of caption 'caption 0' is too wide"):
            annotator(path, similarity=similarity).encode_captions(captions())


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"similarity": "mean"}, "'similarity' of annotator 'pcme' is 'mean'"),
        ({"search": "fast"}, "'search' of annotator 'pcme' is 'fast'"),
        ({"similarity": "closed_form", "seed": 1}, "'seed' .* means nothing with similarity = 'closed_form'"),
        ({"similarity": "closed_form", "search": "exact"}, "'search' .* means nothing"),
        ({"shortlist": 50}, "'shortlist' .* means nothing with search = 'exact'"),
        ({"samples": 0}, "'samples' of annotator 'pcme' is 0"),
        ({"sample": 7}, "no setting 'sample'"),
        ({"shift": float("inf")}, "'shift' of annotator 'pcme' is inf"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(ours: Path, settings: dict[str, object], line: str):
    """Nothing is parsed and ignored."""
    with pytest.raises(AnnotatorError, match=line):
        annotator(ours, **settings)


def test_the_fingerprint_knows_what_changes_results(ours: Path):
    """Seed, samples, odds and search change it; batch and threads do not."""
    mark = annotator(ours).fingerprint

    assert annotator(ours, batch=5, threads=2, samples=7, search="exact").fingerprint == mark
    others = [
        {"seed": 1},
        {"samples": 5},
        {"shift": 1},
        {"search": "shortlist"},
        {"similarity": "closed_form"},
    ]
    assert len({mark, *(annotator(ours, **other).fingerprint for other in others)}) == 6


def test_encodings_outlive_another_search(ours: Path):
    """Odds and search do not change what is encoded; samples, seed and similarity do."""
    mark = annotator(ours).encoding_fingerprint
    same = [{"shift": 1}, {"search": "shortlist"}, {"search": "shortlist", "shortlist": 7}]
    others = [{"seed": 1}, {"samples": 5}, {"similarity": "closed_form"}]

    assert {annotator(ours, **settings).encoding_fingerprint for settings in same} == {mark}
    assert mark not in {annotator(ours, **settings).encoding_fingerprint for settings in others}


def test_a_setting_goes_before_the_learned_odds(ours: Path):
    """One of the two may be replaced alone."""
    built = annotator(ours, shift=4)

    assert (built.odds.shift, built.odds.negative_scale) == (4, SCALE)


def test_it_is_built_by_name(ours: Path):
    """The registry builds it from its settings."""
    built = registry.build("pcme", {"weights": str(ours)})

    assert built.name == "pcme"
    assert built.kind is AnnotatorKind.PROBABILITY
