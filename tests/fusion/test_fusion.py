"""Cross-fitting, features and calibration on made-up evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fusion_kit import answers, evidence
from hypothesis import given, settings
from hypothesis import strategies as st

from mitl.core.arrays import pack_ids, places, unpack_ids
from mitl.errors import MetricError
from mitl.fusion import fusing, models
from mitl.fusion.answered import Said, answered_features, cells, folds
from mitl.fusion.evidence import FusionEvidence, ranking_features
from mitl.fusion.fusing import fuse
from mitl.fusion.likeness import text_features
from mitl.fusion.models import Isotonic, Platt, area
from mitl.fusion.parts import KeptParts

pytest.importorskip("sklearn", reason="the extra mitl[fusion] is not installed")

COUNT = 3


@pytest.fixture(scope="module")
def made() -> FusionEvidence:
    return evidence()


@pytest.fixture(scope="module")
def fused(made):
    return fuse(made, seed=0, count=COUNT)


@pytest.fixture
def logistic_alone(monkeypatch):
    """The quickest model, where it does not matter which."""
    monkeypatch.setattr(fusing, "BASES", {"logistic": models.BASES["logistic"]})


def test_every_ranked_pair_has_a_probability(made, fused):
    """Answered or not, each once, in order, from 0 to 1."""
    assert fused.fused["pair"].tolist() == made.pairs.tolist()
    assert fused.fused["probability"].between(0, 1).all()
    assert sum(fused.models.values()) == COUNT


def test_the_probabilities_tell_matches_from_the_rest(made, fused):
    """Better than either annotator's similarity alone."""
    at = places(made.pairs, made.answers["pair"].to_numpy())
    names, features = ranking_features(made)
    truth = made.answers["yes"] > 0
    images = made.images[at]
    alone = [
        area(features[at, place], truth, images).value
        for place, name in enumerate(names)
        if name.endswith(".similarity")
    ]

    assert area(fused.fused["probability"].to_numpy()[at], truth, images).value > max(alone)


def test_a_fold_s_answers_say_nothing_of_its_own_probabilities(made, fused):
    """Whatever models are chosen, and by whatever calibration."""
    _turn_round(made, fused, 0, COUNT)


@pytest.mark.parametrize(
    "changed", ["ranked", "answers", "image_of", "texts", "pictures", "words", "setting"]
)
def test_parts_of_other_evidence_are_not_taken(made, tmp_path, changed):
    """Whatever has changed, and however little."""
    if changed == "setting":
        assert KeptParts.of(tmp_path, made, 0).folder != KeptParts.of(tmp_path, made, 1).folder
        return
    one = getattr(made, changed)
    if changed == "ranked":
        other = one.assign(similarity=one["similarity"] * 2)
    elif changed == "answers":
        other = one.assign(yes=one["no"], no=one["yes"])
    elif changed == "image_of":
        other = one[::-1]
    elif changed == "words":
        other = (*one, ("more",))
    else:
        other = tuple(replace(vectors, rows=-vectors.rows) for vectors in one)

    assert KeptParts.of(tmp_path, made).folder == KeptParts.of(tmp_path, replace(made)).folder
    assert (
        KeptParts.of(tmp_path, made).folder
        != KeptParts.of(tmp_path, replace(made, **{changed: other})).folder
    )


def test_a_spoiled_part_is_made_again(tmp_path):
    """Cut short, or of other bytes."""
    parts = KeptParts(tmp_path)
    whole = parts.kept("one", lambda: {"odds": np.arange(9.0)})
    path = tmp_path / "one.npz"
    for spoiled in (b"", path.read_bytes()[:-30], path.read_bytes().replace(b"\x08@", b"\x09@")):
        path.write_bytes(spoiled)
        again = parts.kept("one", lambda: {"odds": np.arange(9.0)})
        assert again["odds"].tolist() == whole["odds"].tolist()


def test_a_call_at_work_keeps_its_parts_from_others(tmp_path):
    """One that ends meanwhile, on other evidence or the same, takes away only what nobody holds."""
    ours, theirs, left = (KeptParts(tmp_path / f"{name}.parts") for name in ("ours", "theirs", "left"))
    left.kept("one", lambda: {"odds": np.zeros(1)})
    with ours.held():
        ours.kept("one", lambda: {"odds": np.zeros(1)})
        with theirs.held():
            theirs.kept("one", lambda: {"odds": np.zeros(1)})
        for other in (theirs, ours):
            other.remove()
        assert [path.name for path in tmp_path.iterdir()] == ["ours.parts"]
    ours.remove()

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("seed", "count"), [(1, 3), (2, 4)])
@pytest.mark.thorough(but=("1-3",))
def test_no_fold_judges_itself(logistic_alone, seed, count):
    """In other worlds, with other numbers of folds."""
    made = evidence(seed)
    fused = fuse(made, seed=seed, count=count)
    for fold in range(count):
        _turn_round(made, fused, fold, count, seed)


def _turn_round(made, fused, fold, count, seed=0):
    """Turn every answer of a fold round: its probabilities stay to the bit, and others move."""
    images, captions = unpack_ids(made.answers["pair"].to_numpy())
    of = folds(images, made.group_of(captions), seed, count)
    turned = made.answers.copy()
    turned.loc[of == fold, ["yes", "no"]] = turned.loc[of == fold, ["no", "yes"]].to_numpy()
    again = fuse(replace(made, answers=turned), seed=seed, count=count).fused
    own = (fused.fused["fold"] == fold).to_numpy()

    assert np.array_equal(again["probability"][own], fused.fused["probability"][own])
    assert not np.array_equal(again["probability"][~own], fused.fused["probability"][~own])


def test_the_same_evidence_gives_the_same_bits(logistic_alone, made):
    """Whatever threads did the work, and whoever is told of its parts: six pairs of folds, and four folds."""
    done = []
    told = fuse(made, seed=0, parts=KeptParts(advance=done.append)).fused
    assert told.equals(fuse(made, seed=0).fused)
    assert sum(done) == 10


@settings(max_examples=50, derandomize=True)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=30), st.integers(0, 9))
def test_pairs_of_the_same_two_groups_share_a_fold(rows, seed):
    """Both ways round, and whichever other pairs there are."""
    left, right = np.array(rows, np.int64).T
    together = folds(left, right, seed, 4)

    assert folds(right, left, seed, 4).tolist() == together.tolist()
    assert folds(left[:1], right[:1], seed, 4)[0] == together[0]
    assert cells(left, right).tolist() == cells(right, left).tolist()


def test_answers_of_the_own_cell_and_of_the_fold_are_not_heard(made):
    """With one answer alone, on another caption of the same group, or in the fold, features stay at their rest."""
    pair = made.pairs[0]
    image, caption = (int(one[0]) for one in unpack_ids(made.pairs[:1]))
    group = int(made.group_of(np.array([caption]))[0])
    sibling = next(one for one in made.own.of_image(group).tolist() if one != caption)
    stranger = next(one for one in made.captions.tolist() if int(made.group_of(np.array([one]))[0]) != group)
    heard = {}
    for name, said_of, fold in (("cell", sibling, 1), ("fold", stranger, 0), ("other", stranger, 1)):
        one = replace(made, answers=answers(pack_ids(np.array([image]), np.array([said_of])), [1.0], [0.0]))
        said = Said.of(one, np.array([fold], np.int16))
        none = np.zeros(len(one.pairs), np.int16)
        found = answered_features(one, said, none, np.empty(0, np.int64), 2)
        yes = found.names.index("said.image.v.yes")
        heard[name] = found.own[0, yes]

    assert made.pairs[0] == pair
    assert heard["cell"] == heard["fold"] == -1
    assert heard["other"] > -1


def test_a_caption_is_not_compared_with_itself(made):
    """The pair of an image with its own caption meets the image's other captions only."""
    names, features = text_features(made)
    most = features[:, names.index("v.own_most")]
    own = made.images == made.groups

    assert own.any()
    assert (most[own] < 1 - 1e-6).all()


def test_a_pair_beyond_a_ranking_lies_beyond_its_last(made):
    """Its place is that after the last, and its gap the last one's."""
    names, features = ranking_features(made)
    place = features[:, names.index("one.i2t.place")]
    gap = features[:, names.index("one.i2t.gap")]
    beyond = np.isclose(place, 1 / 13)

    assert beyond.any() and (~beyond).any()
    for image in np.unique(made.images[beyond])[:5]:
        of = made.images == image
        assert gap[of & beyond] == pytest.approx(gap[of].max())


def test_no_answers_one_kind_and_too_few_are_each_one_line(made):
    """What is missing, and what to do."""
    empty = replace(made, answers=made.answers.iloc[:0])
    yes = made.answers[made.answers["yes"] > 0]
    few = made.answers[(made.answers["yes"] > 0) | (np.arange(len(made.answers)) < 12)]

    with pytest.raises(MetricError, match=r"no ranked pair has a usable answer yet.*mitl harvest"):
        fuse(empty, seed=0)
    with pytest.raises(MetricError, match=r"nobody called any of \d+ answered pairs no match"):
        fuse(replace(made, answers=yes), seed=0)
    with pytest.raises(
        MetricError, match=r"people called \d+ of \d+ answered pairs no match, and 4 folds need 26"
    ):
        fuse(replace(made, answers=few), seed=0)


def test_matches_of_a_few_images_alone_are_one_line(made, logistic_alone):
    """Where all of them are in one fold, nothing is left to learn them from outside it."""
    yes = folds(made.images, made.groups, 0) == 0

    with pytest.raises(MetricError, match="ask about pairs of more images"):
        fuse(replace(made, answers=answers(made.pairs, yes, ~yes)), seed=0)


def test_a_constant_score_tells_nothing_apart(made):
    """One clear line where each annotator says the same of all."""
    flat = replace(made, ranked=made.ranked.assign(similarity=0.5))

    with pytest.raises(MetricError, match="one and the same similarity"):
        fuse(flat, seed=0)


def test_trees_take_a_pair_s_answers_as_that_many_pairs():
    """To the bit, so that no weight makes a library work through each quantile by itself."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(400, 3)).astype(np.float32)
    yes, no = rng.integers(0, 3, (2, 400)).astype(np.float64)
    answers = [(features.repeat(said.astype(int), axis=0), said.sum()) for said in (yes, no)]
    apart = models.Examples(
        np.concatenate([rows for rows, _ in answers]),
        *(np.repeat(said, [int(count) for _, count in answers]) for said in ([1.0, 0.0], [0.0, 1.0])),
    )

    together = models.predict(models.fit("boosted", models.Examples(features, yes, no)), features)

    assert np.array_equal(together, models.predict(models.fit("boosted", apart), features))


@pytest.mark.parametrize("fit", [Platt.fit, Isotonic.fit], ids=["platt", "isotonic"])
def test_calibrations_rise_and_are_never_certain(fit):
    """Also where the kinds are wholly apart, a probability of 0 or 1 would be more than the answers say."""
    scores = np.linspace(-5, 5, 200)
    yes = (scores > 0).astype(float)
    curve = fit(scores, yes, 1 - yes)(np.linspace(-9, 9, 500))

    assert (np.diff(curve) >= 0).all()
    assert 0 < curve.min() < curve.max() < 1


@pytest.mark.parametrize("fit", [Platt.fit, Isotonic.fit], ids=["platt", "isotonic"])
def test_calibrations_find_the_share_that_is_true(fit):
    """Scores that are twice too sure become the shares that were drawn."""
    rng = np.random.default_rng(0)
    logit = rng.normal(size=20_000)
    share = 1 / (1 + np.exp(-logit))
    yes = (rng.random(20_000) < share).astype(float)
    found = fit(2 * logit, yes, 1 - yes)(2 * logit)

    assert np.abs(found - share).mean() < 0.02
