"""Rounds that ask again what is in doubt: end to end on a small generated world, with kills, audits and bad input."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest
from cli_kit import fails, mitl, ok
from fused_kit import quickest  # noqa: F401 - in the whole module
from world_kit import SANDBOX, make_world, run_propose, run_publish

from mitl.core.arrays import pack_pairs
from mitl.crowd.context import open_context
from mitl.db.session import open_database
from mitl.db.store import audits, columns, open_work
from mitl.db.store import rounds as round_store
from mitl.records import AuditPurpose
from mitl.records.frames import counts as speaks
from mitl.records.rounds import RoundStep
from mitl.settings import Settings, load
from mitl.stages.auditing.drawing import AuditRequest, draw_audit
from mitl.stages.fusing.fuse import fuse
from mitl.stages.fusing.scores import fused_scores
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.reviewing.review import settle
from mitl.stages.rounds import walking
from mitl.stages.rounds.choosing import ChoiceOptions, choice_of

DOUBTS = ("round", "run", "--sandbox", "--strategy", "doubts", "--budget", "3.00")


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose candidates were answered once, partly by careless workers, beside two audits, and fused."""
    settings = make_world(tmp_path_factory.mktemp("doubts") / "p")
    run_propose(settings, image_queries=20, caption_queries=40)
    draw_audit(settings, AuditRequest(AuditPurpose.RECALL, 40), SANDBOX)
    run_publish(settings, limit=270)
    simulate(settings, SANDBOX, population="careful:0.6,hasty:0.4")
    harvest(settings, SANDBOX)
    draw_audit(settings, AuditRequest(AuditPurpose.LABELS, 20), SANDBOX)
    drawn = ("publish", "--sandbox", "--drawn", "--json", "--project", str(settings.project))
    for _ in range(5):
        settle(settings, SANDBOX)
        if ok(*drawn).json["status"] == "nothing_to_do":
            break
        simulate(settings, SANDBOX, population="careful")
        harvest(settings, SANDBOX)
    fuse(settings, SANDBOX)
    return settings.project


@pytest.fixture
def project(answered: Path, tmp_path: Path, monkeypatch) -> Settings:
    """A copy of its own, in the current folder."""
    shutil.copytree(answered, tmp_path / "p")
    monkeypatch.chdir(tmp_path / "p")
    return load(tmp_path / "p", environ={})


def _judged(settings: Settings) -> pd.DataFrame:
    with open_database(settings.db_url, read_only=True) as session:
        found = columns.judgement_columns(session, SANDBOX)
    return found[speaks(found)]


def _chosen(settings: Settings) -> list[int]:
    with open_database(settings.db_url, read_only=True) as session:
        row = round_store.rounds(session, SANDBOX)[-1]
        return round_store.chosen_pairs(session, row.id)["pair"].tolist()


def _votes(judged: pd.DataFrame) -> pd.Series:
    """Matches less others, by pair."""
    return judged["label"].map(lambda label: 1 if label < 2 else -1).groupby(judged["pair"]).sum()


def _audited(settings: Settings) -> list[pd.DataFrame]:
    with open_database(settings.db_url, read_only=True) as session:
        return [audits.audited(session, one.id) for one in audits.audits(session, SANDBOX)]


def test_the_most_doubtful_are_asked_again_by_others_and_a_third_decides_between_two(project):
    """Of what may be asked again, the largest expected losses; within the budget, no one asked twice.

    What was answered counts in the price, in the round's figures and in the release; audits stay as they were.
    """
    with open_context(project, SANDBOX, read_only=True) as context:
        choice = choice_of(context, 18, 0, ChoiceOptions(), needs_likeness=False, again=True)
    before, audited = _judged(project), _audited(project)
    asks = ok("round", "next", *DOUBTS[2:], "--dry-run", "--json").json["counts"]["asks"]
    assert "called a match or none already" in ok("round", "next", *DOUBTS[2:], "--dry-run").out

    counts = ok(*DOUBTS, "--workers", "careful", "--json").json["counts"]

    chosen, after = _chosen(project), _judged(project)
    loss = pd.Series(
        [
            match if not called else (1 - match) / 2
            for match, called in zip(choice.probability, choice.positive, strict=True)
        ],
        choice.pairs,
    )[choice.pairs[choice.open_at]]
    assert len(chosen) == asks["pairs"] == 36 and asks["hits"] == 2 and asks["kept_cents"] == 100
    assert loss[chosen].min() >= loss.drop(chosen).max()
    assert set(chosen) <= set(before["pair"])
    sampled = {pair for one in audited for pair in one["pair"] if one is audited[-1]}
    assert not sampled & set(chosen)
    for old, new in zip(audited, _audited(project), strict=True):
        pd.testing.assert_frame_equal(old, new)
    again = after[after["pair"].isin(chosen)]
    assert not again.duplicated(["pair", "worker"]).any()
    n_answers = again.groupby("pair").size()
    assert n_answers.min() == 2 and n_answers.max() == 3
    assert len(after) - len(before) == (n_answers - before.groupby("pair").size()[chosen]).sum()
    was, now = _votes(before)[chosen], _votes(again)
    figures, done = counts["figures"], counts["steps"]["harvest"]
    assert (now != 0).sum() == len(chosen) - done.get("unanswered", 0)
    assert figures["strategy"] == "doubts" and figures["asked"] == figures["answered"] == len(chosen)
    assert 200 <= figures["paid_cents"] <= 300
    assert done["became_match"] == figures["positives"] == ((now > 0) & (was <= 0)).sum()
    assert done["became_none"] == ((now <= 0) & (was > 0)).sum() > 0

    released = ok("build-dataset", "--out", "release", "--json").json["counts"]
    assert released["judgements_usable"] == len(after)
    manifest = json.loads((project.project / "release" / "manifest.json").read_text())
    told = manifest["configuration"]["rounds"][-1]
    assert (told["strategy"], told["pairs"]) == ("doubts", len(chosen))
    ok("verify", "release")
    sheet = (project.project / "release" / "datasheet.md").read_text()
    assert f"chose {len(chosen)} pairs to ask, by the strategy doubts. These pairs had an answer" in sheet


def test_a_call_of_the_machine_that_people_confirm_did_not_change(project):
    """What it called a match before anybody was asked did not become one; nor later, when its labels are gone."""
    was = _votes(_judged(project))
    with open_context(project, SANDBOX) as context:
        session, fused = context.session, fused_scores(context)
        asked = pack_pairs(
            {*open_work.asked_pairs(session, SANDBOX), *audits.drawn_for_labels(session, SANDBOX)}
        )
        labels = fused[~fused["pair"].isin(asked) & fused["probability"].between(0.2, 0.6)]
        labels = labels.assign(label=0, stratum="open")
        (audit,) = (one for one in audits.audits(session, SANDBOX) if one.purpose is AuditPurpose.LABELS)
        audits.add_labelling(session, SANDBOX, audit.id, "{}", labels, context.now())
        session.commit()

    counts = ok(*DOUBTS[:-1], "9.00", "--workers", "careful", "--json").json["counts"]

    now = _votes(_judged(project))
    chosen = [pair for pair in _chosen(project) if pair in now.index]
    # One page was set aside twice; the budget pays for it once more, for each HIT counts at its own price.
    assert len(chosen) == counts["figures"]["answered"] == counts["figures"]["asked"]
    assert counts["figures"]["paid_cents"] <= 900
    of_machine = set(chosen) - set(was.index)
    was = pd.concat([was, pd.Series(1, sorted(of_machine))])
    done = counts["steps"]["harvest"]
    became = (was[chosen] <= 0) & (now[chosen] > 0), (was[chosen] > 0) & (now[chosen] <= 0)
    assert any(now[pair] > 0 for pair in of_machine) and any(now[pair] < 0 for pair in of_machine)
    assert done["became_match"] == counts["figures"]["positives"] == became[0].sum()
    assert done["became_none"] == became[1].sum()
    ok("label", "--withdraw")
    assert ok("round", "show", "--json").json["counts"]["rounds"][-1]["positives"] == became[0].sum()


@pytest.mark.thorough
def test_a_killed_round_of_doubts_goes_on_and_asks_nothing_twice(project, monkeypatch):
    """Whichever step was cut off; run again when it is over, there is nothing to end."""
    real = walking._ended
    cut = [RoundStep.CHOOSE, RoundStep.PUBLISH, RoundStep.HARVEST]

    def dies(turn, step, result):
        if cut and step is cut[0]:
            cut.pop(0)
            raise KeyboardInterrupt
        real(turn, step, result)

    monkeypatch.setattr(walking, "_ended", dies)
    goes_on = ("round", "run", "--sandbox", "--workers", "careful")
    assert mitl(*DOUBTS, "--workers", "careful").status == 130
    chosen = _chosen(project)
    assert [mitl(*goes_on).status for _ in range(2)] == [130, 130] and not cut

    counts = ok(*goes_on, "--json").json["counts"]

    after = _judged(project)
    assert _chosen(project) == chosen
    assert counts["figures"]["paid_cents"] <= 300
    assert after[after["pair"].isin(chosen)].groupby("pair").size().between(2, 3).all()
    assert not after.duplicated(["pair", "worker"]).any()
    assert "no round is under way" in fails(1, "round", "run", "--sandbox")


@pytest.mark.thorough
def test_a_posted_round_of_doubts_posts_nothing_more_and_is_taken_back_with_its_answers(project):
    """Until somebody answers; and what was not posted is dropped with the round."""
    ok("round", "next", *DOUBTS[2:])
    assert ok("publish", "--sandbox", "--chosen", "--json").json["status"] == "nothing_to_do"
    assert ok("round", "next", *DOUBTS[2:], "--json").json["status"] == "nothing_to_do"
    assert "0 choices without a HIT or an answer dropped" in ok("round", "rollback").out

    asks = ok("round", "next", *DOUBTS[2:], "--dry-run", "--json").json["counts"]["asks"]
    ok("round", "next", *DOUBTS[2:])
    with open_database(project.db_url, read_only=True) as session:
        first, second = (
            set(round_store.chosen_pairs(session, row.id)["pair"])
            for row in round_store.rounds(session, SANDBOX)[-2:]
        )
    assert asks["pairs"] == len(second) and not first & second  # what is out is not chosen again


def test_choices_of_doubts_that_were_never_posted_are_dropped(project, monkeypatch):
    """Though all of them have an answer."""

    def dies(turn):
        raise KeyboardInterrupt

    monkeypatch.setitem(walking.STEPS, RoundStep.PUBLISH, dies)
    assert mitl(*DOUBTS).status == 130
    chosen = _chosen(project)

    assert ok("round", "rollback", "--json").json["counts"]["dropped"] == len(chosen) == 36
    assert _chosen(project) == []


def test_what_cannot_be_asked_again_is_one_line(project, tmp_path, monkeypatch):
    """A budget below one HIT, all that is in doubt out, nothing answered, too little to fuse."""
    assert "below one HIT" in fails(1, *DOUBTS[:-1], "0.50")
    ok("round", "next", *DOUBTS[2:-1], "90.00")
    ok("round", "rollback")
    nothing = fails(1, *DOUBTS)
    assert "no pair can be asked again" in nothing and "`mitl round rollback`" in nothing

    fresh = make_world(tmp_path / "fresh", n_images=12)
    run_propose(fresh, image_queries=5, caption_queries=5)
    monkeypatch.chdir(fresh.project)
    assert "nobody has answered a pair on sandbox yet" in fails(1, *DOUBTS)
    with open_database(fresh.db_url, read_only=True) as session:
        assert round_store.rounds(session, SANDBOX) == []
    run_publish(fresh, limit=18)
    simulate(fresh, SANDBOX, population="careful")
    harvest(fresh, SANDBOX)
    assert "then run `mitl fuse`" in fails(1, *DOUBTS)
