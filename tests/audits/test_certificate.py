"""Certificates: what an audit's frames prove, what they do not, and what they refuse to certify."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from mitl.audits.bounds import SHARES, precision_lower, recall_lower
from mitl.audits.certificate import certify, look
from mitl.audits.evidence import Sample
from mitl.audits.pool import draw
from mitl.audits.workers import among_all, confirmed_at_least, refused_at_least
from mitl.errors import AuditError
from mitl.records import AuditPurpose, Label
from mitl.records.audits import HELD, AuditDesign, Stratum
from mitl.records.frames import LABELS, NONE, frame

YES, WEAK_YES, WEAK_NO, NO = range(len(LABELS))
RELEASED, LIKELY, REST = np.arange(500), np.arange(500, 1500), np.arange(1500, 12_000)
DESIGN = AuditDesign(
    AuditPurpose.RECALL,
    3,
    (
        Stratum("released", 500, 200, 0.1, 0.5),
        Stratum("likely", 1000, 250, 0.1, 0.05),
        Stratum("remainder", 10_500, 300, 0.1, 0.001),
    ),
)
MATCHES = np.concatenate([RELEASED[:-15], LIKELY[:50], REST[:10]])
HOLDS = frame(HELD, {"pair": RELEASED, "stratum": np.zeros(500)})
SAID = pd.DataFrame(
    {
        "pair": np.concatenate([RELEASED, LIKELY]),
        "label": np.repeat(np.array([YES, WEAK_YES, WEAK_NO, NO], np.int8), [250, 250, 400, 600]),
    }
)


def workers(*numbers):
    """Who gave each answer: so many of each worker."""
    return pd.Series(np.repeat([f"W{place}" for place in range(len(numbers))], numbers))


def answered(false_no=0.05, false_yes=0.03, seed=0, design=DESIGN):
    """The design's sample with the answers of workers who err at these rates."""
    rng = np.random.default_rng(seed)
    audited = draw(design, [RELEASED, LIKELY, REST], positives=RELEASED)
    match = np.isin(audited["pair"].to_numpy(), MATCHES)

    def labels():
        says_yes = rng.random(len(match)) < np.where(match, 1 - false_no, false_yes)
        return np.where(says_yes, YES, NO)

    first, second, third = labels(), labels(), labels()
    wants = (first == YES) | audited["recheck"].to_numpy()
    columns = {"first": first, "second": np.where(wants, second, NONE), "third": np.where(wants, third, NONE)}
    return audited.assign(**{name: column.astype(np.int8) for name, column in columns.items()})


AUDITED = answered()


def test_a_certificate_is_below_the_truth():
    """485 of 500 positives are right, 60 matches are missing; bounds of any rates are below those of measured ones."""
    certificate = certify(AUDITED, DESIGN, HOLDS, SAID)

    assert 0.2 < certificate.worst.recall < certificate.measured.recall < 485 / 545
    assert 0.7 < certificate.worst.precision < certificate.measured.precision < 485 / 500
    assert 60 < certificate.measured.missing < certificate.worst.missing
    assert certificate.measured.right < 485


def test_a_certificate_counts_what_was_seen():
    """Sizes, samples, positives and answers are those of the frames."""
    certificate = certify(AUDITED, DESIGN, HOLDS, SAID)

    confirmed = (AUDITED["first"] == YES) & ((AUDITED["second"] == YES) | (AUDITED["third"] == YES))
    strata = certificate.strata
    assert (certificate.pool, certificate.held) == (12_000, 500)
    assert [(s.size, s.held, s.audited, s.audited_held) for s in strata] == [
        (500, 500, 200, 200),
        (1000, 0, 250, 0),
        (10_500, 0, 300, 0),
    ]
    assert certificate.found == sum(s.confirmed for s in strata) == (confirmed & ~AUDITED["known"]).sum()
    assert certificate.answers == (AUDITED[["first", "second", "third"]] != NONE).to_numpy().sum()
    yeses = (AUDITED[["first", "second", "third"]] == YES).sum(axis=1)
    held, others = AUDITED["known"], ~AUDITED["known"]
    assert sum(s.confirmed_by_all for s in strata) == (others & (yeses == 3)).sum() > 0
    assert [(s.refused, s.refused_by_all) for s in strata] == [
        ((held & (yeses < 2)).sum(), (held & (yeses == 0)).sum()),
        (0, 0),
        (0, 0),
    ]
    assert strata[0].refused_by_all > 0
    accepted = (AUDITED["second"] == YES) | (AUDITED["third"] == YES)
    assert certificate.false_no.answers == (AUDITED["pair"].between(250, 499) & accepted).sum()
    assert certificate.false_yes.answers == (AUDITED["pair"].between(500, 899)).sum()


def test_the_order_of_rows_does_not_matter():
    """Releases are rebuilt from files in any order."""
    shuffled = [table.sample(frac=1, random_state=1) for table in (AUDITED, HOLDS, SAID)]

    assert (
        certify(shuffled[0], DESIGN, shuffled[1], shuffled[2]).as_json()
        == certify(AUDITED, DESIGN, HOLDS, SAID).as_json()
    )


def test_a_certificate_is_plain_json_and_words():
    """Nothing is lost on the way to a file, and every line is one line."""
    certificate = certify(AUDITED, DESIGN, HOLDS, SAID, workers=workers(*[5] * 30), chao=(480.0, 600.5))

    stored = certificate.as_json()

    assert json.loads(json.dumps(stored)) == stored
    assert stored["recall_at_most"] == pytest.approx(500 / 600.5)
    assert stored["measured"]["recall"] == certificate.measured.recall
    lines = certificate.lines()
    assert any("by Chao's estimate recall is at most 0.8327" in line for line in lines)
    assert sum(line.startswith("assumed") for line in lines) == 5
    assert not any("\n" in line for line in lines)


def test_positives_that_no_annotator_found_are_part_of_the_recall_too():
    """Of 500 positives annotators found 480 and by Chao's estimate lack 10: that is no proof against the other 20."""
    certificate = certify(AUDITED, DESIGN, HOLDS, SAID, chao=(480.0, 490.0))

    assert certificate.at_most == 1


def test_what_is_at_most_is_rounded_up_and_what_is_at_least_down():
    """In words as in numbers, a bound that is read is still one."""
    certificate = certify(AUDITED, DESIGN, HOLDS, SAID)
    rate = replace(certificate.false_no, upper=0.12301)
    bound = replace(certificate.measured, recall=0.43219)

    lines = replace(certificate, false_no=rate, measured=bound, confidence=0.99999975).lines()

    assert any("false noes: at most 0.124," in line for line in lines)
    assert any(line.startswith("with 0.99999975 confidence recall is at least 0.4321:") for line in lines)


def test_better_workers_prove_more():
    """With the same sample, the bounds fall as workers err more."""
    bounds = [certify(answered(rate, rate), DESIGN, HOLDS, SAID).measured.recall for rate in (0.0, 0.1, 0.25)]

    assert bounds == sorted(bounds, reverse=True)


def test_positives_that_only_the_audit_found_are_missing_ones():
    """The release that took them in has the same recall bound, as long as it does not hold them here."""
    certificate = certify(AUDITED, DESIGN, HOLDS, SAID)

    assert certificate.found > 0
    assert certificate.measured.missing >= certificate.found


def test_a_later_release_is_certified_by_the_same_audit():
    """It holds 40 of the likely matches more; whether they were known at the draw does not matter."""
    more = frame(HELD, {"pair": np.arange(540), "stratum": np.repeat([0, 1], [500, 40])})

    certificate = certify(AUDITED, DESIGN, more, SAID)

    assert [s.held for s in certificate.strata] == [500, 40, 0]
    assert certificate.measured.missing < certify(AUDITED, DESIGN, HOLDS, SAID).measured.missing


def test_small_groups_tell_no_rate():
    """Without pairs called weak_no a is one half; without weak_yes all positives of the release tell b."""
    said = SAID.assign(label=np.where(SAID["label"] <= WEAK_YES, YES, NO).astype(np.int8))

    certificate = certify(AUDITED, DESIGN, HOLDS, said)

    assert (certificate.false_yes.answers, certificate.false_yes.upper) == (0, 0.5)
    assert 150 < certificate.false_no.answers <= 200
    assert certificate.false_no.group == "positives of the release that one of two further workers accepts"


def test_overturned_noes_raise_a_doubt():
    """Missing matches that most workers refuse at first, and two others accept, are harder than the release's."""
    hard = AUDITED.copy()
    rows = hard.index[hard["recheck"] & ~hard["known"]]
    assert len(rows) > 30
    hard.loc[rows, "first"] = np.int8(NO)
    hard.loc[rows, ["second", "third"]] = np.int8(YES)

    easy, doubted = (certify(table, DESIGN, HOLDS, SAID) for table in (AUDITED, hard))

    assert not easy.doubt and doubted.doubt
    assert doubted.recheck.overturned == doubted.recheck.accepted == len(rows)
    assert any("WARNING: two further workers overturned more first noes" in line for line in doubted.lines())


def test_looks_hold_on_the_longest_answered_prefix():
    """An answer that is lacking at place 400 ends what is read there; looks of nothing prove nothing."""
    lacking = AUDITED.copy()
    lacking.loc[lacking["place"] == 400, "first"] = np.int8(NONE)

    whole, cut = look(AUDITED, DESIGN, HOLDS, SAID), look(lacking, DESIGN, HOLDS, SAID)
    nothing = look(AUDITED, DESIGN, HOLDS, SAID, upto_place=0)

    assert (whole.place, cut.place, nothing.place) == (750, 399, 0)
    assert cut == look(AUDITED, DESIGN, HOLDS, SAID, upto_place=399)
    assert 0 < cut.worst_recall < cut.recall < whole.recall < 485 / 545
    assert nothing.recall == nothing.precision == 0
    evidence = Sample.of(AUDITED, HOLDS, SAID).evidence(DESIGN, np.array([500, 0, 0]), 399)
    at_any_time = {"method": "betting", "anytime": True}
    assert cut.recall == recall_lower(evidence, 1 - DESIGN.confidence, **at_any_time).lower
    assert cut.precision == precision_lower(evidence, 1 - DESIGN.confidence, **at_any_time).lower


def test_stakes_are_those_of_the_whole_sample_at_every_look():
    """Whoever bets more on a stratum after seeing its answers bets with other people's money."""
    sample = Sample.of(AUDITED, HOLDS, SAID)
    looks = [sample.evidence(DESIGN, np.array([500, 0, 0]), first) for first in (40, 750)]

    for one in looks:
        assert one.outside.planned.tolist() == [0, 250, 300]
        assert one.within.planned.tolist() == [200, 0, 0]


def test_an_incomplete_audit_says_how_many_answers_are_open():
    """Two pairs without any, of which one is rechecked whatever the first says, and one that lacks its third."""
    table = AUDITED.copy()
    table.loc[table.index[:2], ["first", "second", "third"]] = np.int8(NONE)
    known = table.index[2:][table["known"][2:]][0]
    table.loc[known, "third"] = np.int8(NONE)

    with pytest.raises(AuditError, match=r"the audit lacks 5 answers on 3 of its 750 pairs"):
        certify(table, DESIGN, HOLDS, SAID)


@pytest.mark.parametrize(("numbers", "share"), [((62, 20, 18), "62.0"), ((1001, 999), "50.1")])
def test_one_worker_cannot_certify_alone(numbers, share):
    """More than half of the answers is too much of one opinion, and reads as more."""
    told = rf"one worker gave {share} % of the audit's answers.*before you audit another pool"
    with pytest.raises(AuditError, match=told):
        certify(AUDITED, DESIGN, HOLDS, SAID, workers=workers(*numbers))


@pytest.mark.parametrize(("number", "warned"), [(19, True), (20, False)])
def test_few_workers_are_warned_of(number, warned):
    """Three different ones of a small crowd agree more seldom than three of a large one."""
    certificate = certify(AUDITED, DESIGN, HOLDS, SAID, workers=workers(*[5] * number))

    assert certificate.workers == number
    assert any("WARNING: 19 workers answered" in line for line in certificate.lines()) == warned


def test_the_risk_is_dealt_once():
    """Each part of a bound has its share, and the shares of a bound are the whole risk."""
    evidence = Sample.of(AUDITED, HOLDS, SAID).evidence(DESIGN, np.array([500, 0, 0]), len(AUDITED))
    risk = 0.05
    false_no = among_all(evidence.false_no.upper(risk * SHARES["false_no"]))
    half = risk * SHARES["thinning"] / 2

    def wrong(part):
        """Of precision at so much of the risk, of which 2 : 3 : 1 is for the rate, the refused and who is refused."""
        false_yes = evidence.false_yes.upper(part / 3)
        return evidence.within.most(refused_at_least(false_yes), part / 2, part / 6, "design")

    recall = recall_lower(evidence, risk)

    assert recall.missing == evidence.outside.most(
        confirmed_at_least(false_no), risk * SHARES["missing"], half, "design"
    )
    assert recall.precision.wrong == wrong(risk * (0.10 + 0.15) + half)
    assert precision_lower(evidence, risk).wrong == wrong(risk)


def test_no_risk_is_spent_on_rates_that_nothing_can_tell():
    """Where no drawn pair can tell a rate, the bound with measured rates is the one for any rates, and no lower."""
    few = DESIGN.strata[0].size - 6
    design = changed(DESIGN, 0, size=6, sample=6)
    design = replace(design, strata=(*design.strata[:2], replace(design.strata[2], size=10_500 + few)))
    audited = AUDITED[(AUDITED["stratum"] > 0) | (AUDITED.groupby("stratum").cumcount() < 6)]
    held = audited.loc[audited["stratum"] == 0, "pair"].to_numpy()
    audited = audited.assign(
        place=np.arange(len(audited)) + 1,
        inclusion=np.array([one.inclusion for one in design.strata])[audited["stratum"]],
    )
    holds = frame(HELD, {"pair": held, "stratum": np.zeros(6)})
    unsaid = SAID[SAID["pair"] < 0]

    certificate = certify(audited, design, holds, unsaid)

    assert certificate.false_no.upper == certificate.false_yes.upper == 0.5
    assert certificate.measured == certificate.worst


def changed(design, place, **fields):
    strata = list(design.strata)
    strata[place] = replace(strata[place], **fields)
    return replace(design, strata=tuple(strata))


@pytest.mark.parametrize(
    ("design", "table", "holds", "message"),
    [
        (
            DESIGN,
            AUDITED[AUDITED["stratum"] != 2],
            HOLDS,
            "stratum 'remainder' of 10,500 pairs has no audited pair",
        ),
        (DESIGN, AUDITED[:-1], HOLDS, "was to have .* audited pairs and has .*: the sample was changed"),
        (DESIGN, AUDITED.assign(pair=1), HOLDS, "a pair of the audit stands twice"),
        (DESIGN, AUDITED.assign(place=1), HOLDS, "a pair of the audit stands twice"),
        (DESIGN, AUDITED.assign(inclusion=0.5), HOLDS, "inclusion probabilities of the audit are not those"),
        (
            changed(DESIGN, 0, size=400),
            AUDITED.assign(inclusion=AUDITED["inclusion"].where(AUDITED["stratum"] != 0, 0.5)),
            HOLDS,
            "holds 500 positives in stratum 'released' of 400 pairs",
        ),
        (DESIGN, AUDITED, HOLDS.assign(stratum=np.int16(7)), "stands in stratum 7, but the audit has 3"),
        (DESIGN, AUDITED, HOLDS.assign(stratum=np.int16(-1)), "stands in stratum -1, but the audit has 3"),
        (DESIGN, AUDITED, HOLDS[:0], "the release holds no positive in the pool"),
    ],
)
def test_what_cannot_be_certified_is_one_line(design, table, holds, message):
    """Each says what was found and what to do."""
    with pytest.raises(AuditError, match=message) as error:
        certify(table, design, holds, SAID)

    assert "\n" not in str(error.value)


def test_the_labels_are_in_the_order_of_the_scale():
    """What this file counts on."""
    assert LABELS == (Label.YES, Label.WEAK_YES, Label.WEAK_NO, Label.NO)
