"""Scripted workers' characters: how they err, in what shares, and that they do so again alike."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from cli_kit import ok
from hypothesis import given
from hypothesis import strategies as st

from mitl.crowd.populations import CHARACTERS, PRESETS, PlayedHit, answer_hit, parse_population
from mitl.crowd.truth import default_truth, truth_source
from mitl.datasets.scenes.truth import Truth
from mitl.errors import UsageError
from mitl.records import Concept, Label, Outcome, Shortcoming
from mitl.settings import load

WRONG_COLOR = Truth(Label.WEAK_YES, (Shortcoming.DESCRIBED_WRONGLY,), (Concept.COLOR,))


def answers(character: str, truths, *, rationale=False, seed=0, worker="w1", hit="h1"):
    return answer_hit(PlayedHit(CHARACTERS[character], seed, worker, hit), truths, rationale=rationale)


def test_confusion_rows_are_distributions():
    """Every character answers something for every truth."""
    for character in CHARACTERS.values():
        assert [len(row) for row in character.confusion] == [4] * 4
        assert [sum(row) for row in character.confusion] == pytest.approx([1.0] * 4)


@pytest.mark.parametrize("name", sorted(CHARACTERS))
@pytest.mark.parametrize("truth", list(Label))
def test_answers_follow_the_confusion_matrix(name, truth):
    """Over 8,000 pairs each share lies within 0.02 of its row, some four standard deviations."""
    truths = {place: Truth(truth) for place in range(1, 8001)}
    given_labels = Counter(answer.label for answer in answers(name, truths))

    shares = [given_labels[label] / 8000 for label in Label]

    assert shares == pytest.approx(CHARACTERS[name].confusion[truth.code - 1], abs=0.02)


def test_answers_depend_on_seed_worker_and_hit_alone():
    """A resumed simulation repeats itself, whatever came before; another seed, worker or HIT differs."""
    truths = {place: Truth(Label.WEAK_NO) for place in range(1, 21)}
    backwards = dict(reversed(truths.items()))
    first = answers("hasty", truths)

    assert answers("hasty", backwards) == first
    assert [answer.place for answer in first] == list(range(1, 21))
    assert first != answers("hasty", truths, seed=1)
    assert first != answers("hasty", truths, worker="w2")
    assert first != answers("hasty", truths, hit="h2")


def test_labels_do_not_depend_on_the_wording():
    """Asking for reasons changes times, not answers, so that wordings can be compared."""
    truths = dict.fromkeys(range(1, 21), WRONG_COLOR)
    plain, reasoned = answers("careful", truths), answers("careful", truths, rationale=True)

    assert [answer.label for answer in plain] == [answer.label for answer in reasoned]
    assert all(not answer.shortcomings and not answer.concepts for answer in plain)


@given(st.sampled_from(sorted(CHARACTERS)), st.integers(0, 1000))
def test_reasons_are_given_as_the_page_asks_for_them(name, seed):
    """Half answers have a shortcoming, wrong descriptions a concept, other answers neither."""
    truths = dict.fromkeys(range(1, 21), WRONG_COLOR)
    for answer in answers(name, truths, rationale=True, seed=seed):
        assert answer.outcome is Outcome.ANSWERED and answer.active_ms >= 200
        assert bool(answer.shortcomings) == (answer.label in (Label.WEAK_YES, Label.WEAK_NO))
        assert bool(answer.concepts) == (Shortcoming.DESCRIBED_WRONGLY in answer.shortcomings)


def test_careful_workers_mostly_give_the_true_reason():
    """Nine in ten or so; random ones one in four."""
    truths = dict.fromkeys(range(1, 2001), WRONG_COLOR)

    def true_share(name: str) -> float:
        half = [a for a in answers(name, truths, rationale=True) if a.shortcomings]
        return sum(a.shortcomings == WRONG_COLOR.shortcomings for a in half) / len(half)

    assert true_share("careful") > 0.85
    assert true_share("random") < 0.35


def test_careful_workers_take_longer():
    """Median active times follow the character."""
    truths = {place: Truth(Label.YES) for place in range(1, 1001)}
    medians = {name: sorted(answer.active_ms for answer in answers(name, truths))[500] for name in CHARACTERS}

    assert medians["careful"] > medians["hasty"] > medians["yes-sayer"] > medians["random"]
    assert medians["careful"] == pytest.approx(9000, rel=0.1)


@pytest.mark.parametrize(
    ("spec", "shares"),
    [
        ("careful", {"careful": 1.0}),
        ("careful:0.8,random:0.2", {"careful": 0.8, "random": 0.2}),
        (" careful : 4 , random : 1 ", {"careful": 0.8, "random": 0.2}),
        ("mixed", {"careful": 0.6, "hasty": 0.2, "yes-sayer": 0.1, "random": 0.1}),
    ],
)
def test_a_population_is_written_as_names_with_shares(spec, shares):
    """Shares are relative; a name alone is everybody."""
    assert dict(parse_population(spec).shares) == pytest.approx(shares)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            "carefull",
            "no worker character called 'carefull'; known: careful, hasty, yes-sayer, random, one-number, "
            "straight-liner, drifter, or mixed or mixed-raters alone",
        ),
        ("careful:1,mixed:1", "drifter, or mixed or mixed-raters alone"),
        ("", "no worker character called ''"),
        ("careful:1,", "no worker character called ''"),
        ("careful:0.5,careful:0.5", "stands twice"),
        ("careful,random", "'careful' has no share"),
        ("careful:0", "must be a positive number"),
        ("careful:-1,random:2", "must be a positive number"),
        ("careful:nan", "must be a positive number"),
        ("careful:inf", "must be a positive number"),
        ("careful:1e308,random:1e308", "must be a positive number up to 1e9"),
        ("careful:", "must be a positive number"),
    ],
)
def test_a_faulty_population_is_wrong_usage(spec, message):
    """One line with what would be right."""
    with pytest.raises(UsageError, match=message):
        parse_population(spec)


def test_presets_are_populations():
    """Each preset names known characters."""
    for spec in PRESETS.values():
        assert {name for name, _ in parse_population(spec).shares} <= set(CHARACTERS)


@given(
    st.dictionaries(st.sampled_from(sorted(CHARACTERS)), st.integers(1, 9), min_size=1), st.integers(0, 60)
)
def test_workers_are_shared_out_as_the_population_says(weights, count):
    """Each character gets its share of the workers, to within one."""
    population = parse_population(",".join(f"{name}:{weight}" for name, weight in weights.items()))

    drawn = population.characters(count, seed=3)

    assert len(drawn) == count
    for name, share in population.shares:
        assert abs(drawn.count(name) - share * count) < 1
    assert drawn == population.characters(count, seed=3)


@pytest.mark.parametrize(("image", "caption", "known"), [(179765, 38, "official"), (7, 8, "original")])
def test_captions_of_ones_own_in_cocos_layout_are_true_of_their_images(
    image, caption, known, tmp_path, monkeypatch
):
    """Workers who knew the official sets alone would fail every control; where these list it, they do know them."""
    pytest.importorskip("eccv_caption")
    monkeypatch.chdir(tmp_path)
    content = {
        "images": [{"id": image, "file_name": f"{image:012d}.jpg"}],
        "annotations": [{"id": caption, "image_id": image, "caption": "a dog"}],
    }
    (tmp_path / "captions.json").write_text(json.dumps(content))
    ok("init", "--dataset", "coco", "--captions", "captions.json")
    settings = load(tmp_path, environ={})

    assert default_truth(settings) == known
    assert truth_source(settings, known)(str(image), str(caption)).label is Label.YES
    if known == "original":
        with pytest.raises(UsageError, match="give --truth original or release:DIR"):
            truth_source(settings, "official")
