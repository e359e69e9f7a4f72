"""Rounds end to end on a small generated world: scripted workers, kills between steps, bad input."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from cli_kit import fails, mitl, ok
from fused_kit import quickest  # noqa: F401 - in the whole module
from publish_kit import proposed
from sqlalchemy import update
from world_kit import make_world, run_propose, work_until_done

from mitl.campaign.kinds.pairs.controls import all_rankings
from mitl.core.arrays import pack_pairs, unpack_ids
from mitl.crowd.context import open_context
from mitl.db.models import ItemRow, JudgementRow
from mitl.db.session import open_database
from mitl.db.store import columns, open_work, proposals
from mitl.db.store import items as item_store
from mitl.db.store import rounds as round_store
from mitl.records import Direction, Environment
from mitl.records.rounds import RoundStep
from mitl.settings import load as load_settings
from mitl.stages.fusing.gathering import ranked
from mitl.stages.fusing.scores import fused_scores
from mitl.stages.proposing.query_lists import query_ids
from mitl.stages.proposing.ranking import read_items
from mitl.stages.reporting.report import collect, report_input
from mitl.stages.rounds import steps, walking
from mitl.stages.training import train as training

SANDBOX = Environment.SANDBOX
RUN = ("round", "run", "--sandbox", "--rounds", "2", "--budget", "2.20", "--workers", "careful")


@pytest.fixture
def project(tmp_path: Path, monkeypatch) -> Path:
    """A project with proposals, in the current folder."""
    settings = proposed(tmp_path / "p")
    monkeypatch.chdir(settings.project)
    return settings.project


def _rounds(project: Path):
    with open_database(f"sqlite:///{project / 'mitl.db'}", read_only=True) as session:
        return round_store.rounds(session, SANDBOX)


def test_queries_of_any_id_are_those_that_were_asked_before(project):
    """In every round: others would make another pool, which voids an audit."""
    with open_database(f"sqlite:///{project / 'mitl.db'}") as session:
        session.execute(update(ItemRow).values(external_id=ItemRow.external_id + " #3\u2028.jpg "))
        session.commit()
    with open_context(load_settings(project, environ={}), SANDBOX, read_only=True) as context:
        asked = proposals.queries(context.session)
        sides = item_store.id_maps(context.session, item_store.dataset(context.session).id)
        choices = steps._queries(context)

    for direction, ids in zip(Direction, sides, strict=True):
        assert query_ids(choices[direction].file, direction, ids, ("image", "caption")) == asked[direction]


def test_two_rounds_run_to_their_ends_and_are_shown(project):
    """Each asks within its budget, finds matches and is closed; what was answered is not asked again."""
    done = ok(*RUN, "--json").json

    shown = ok("round", "show", "--json").json["counts"]["rounds"]
    assert done["counts"]["closed"] == [row.number for row in _rounds(project)]
    assert len(shown) == 2
    assert done["counts"]["waits_for"] is None
    assert [one["state"] for one in shown] == ["closed", "closed"]
    for one in shown:
        assert one["asked"] >= one["answered"]
        assert 0 < one["paid_cents"] <= one["budget_cents"]
    assert sum(one["positives"] for one in shown) > 0
    with open_database(f"sqlite:///{project / 'mitl.db'}", read_only=True) as session:
        first, second = (
            set(round_store.chosen_pairs(session, row.id)["pair"])
            for row in round_store.rounds(session, SANDBOX)
        )
    assert not first & second
    closed = fails(1, "round", "close")
    assert "closed already" in closed and len(closed.splitlines()) == 1


def test_the_report_tells_rounds_apart_from_what_was_published_without_one(project):
    """Who rebuilds would otherwise ask every proposed pair in a round's place; what a round repeats is its own."""
    work_until_done(load_settings(project), rounds=6)
    published = len(collect(load_settings(project)).project.batches)
    ok("round", "run", "--sandbox", "--budget", "1.20", "--workers", "careful", "--strategy", "random")

    steps = report_input(collect(load_settings(project))).provenance.steps

    asked = [step.command for step in steps if step.command.startswith(("mitl publish", "mitl round"))]
    assert len([command for command in asked if command.startswith("mitl publish")]) == published
    opened, *repeated = asked[published:]
    assert opened == "mitl round run --sandbox --budget 1.20 --strategy random …"
    assert set(repeated) <= {"mitl round run --sandbox"}


def test_the_status_says_that_pairs_were_judged_which_nobody_had_proposed(project):
    """A round chooses among all that the rankings hold, so more may be judged than were proposed."""
    work_until_done(load_settings(project))
    before = ok("status").out

    ok("round", "run", "--sandbox", "--budget", "1.20", "--workers", "careful", "--strategy", "random")

    assert "never proposed" not in before
    assert " judged (some never proposed), " in ok("status").out


def test_a_run_that_dies_before_or_after_every_step_goes_on_there(project, monkeypatch):
    """The same command ends with the same round, whichever step was cut off, and does no step twice."""
    real, cut = walking._ended, []
    run = (*RUN[:3], "--budget", "1.20", "--workers", "careful", "--json")

    def dies_once(turn, step, result):
        if step not in cut:
            cut.append(step)
            raise KeyboardInterrupt
        real(turn, step, result)

    monkeypatch.setattr(walking, "_ended", dies_once)
    for n_cut in range(1, len(steps.STEPS) + 1):
        assert mitl(*run).status == 130
        assert cut == list(steps.STEPS)[:n_cut]

    counts = ok(*run).json["counts"]

    assert counts["closed"] == [row.number for row in _rounds(project)]
    assert len(counts["closed"]) == 1
    assert counts["figures"]["asked"] >= counts["figures"]["answered"]
    assert counts["figures"]["paid_cents"] <= counts["figures"]["budget_cents"]


def test_closing_a_round_that_died_behind_its_harvest_keeps_what_that_came_to(project, monkeypatch):
    """It goes on with the step that was cut off."""
    real = walking._ended

    def dies_labelling(turn, step, result):
        if step is RoundStep.LABEL:
            raise KeyboardInterrupt
        real(turn, step, result)

    with monkeypatch.context() as patched:
        patched.setattr(walking, "_ended", dies_labelling)
        run = ("round", "run", "--sandbox", "--budget", "1.20", "--workers", "careful")
        assert mitl(*run, "--strategy", "random").status == 130

    steps_done = ok("round", "close", "--json").json["counts"]["steps"]

    assert steps_done["harvest"]["looks"] > 0
    assert list(steps_done) == list(steps.STEPS)


def _with_a_mini(project: Path) -> None:
    """Let a network that can learn propose beside an annotator from a file."""
    path = project / "mitl.toml"
    names = '"near", "clip-mini"]\ndepth = 10\nimage_queries = 15\ncaption_queries = 30'
    path.write_text(path.read_text().replace('"near", "far"]', names))


def _answered_with_a_mini(tmp_path, monkeypatch):
    """A project with such annotators and with answers enough to learn from, as the current folder."""
    settings = make_world(tmp_path / "p", n_images=20)
    monkeypatch.chdir(settings.project)
    _with_a_mini(settings.project)
    run_propose(settings)
    work_until_done(settings, rounds=8)
    return settings


def _dies(turn, step, result):
    """In place of a step's end: what the step did stands, and nothing says so."""
    raise KeyboardInterrupt


TRAINED = ("round", "run", "--sandbox", "--train", "--steps", "3", "--budget", "9.00", "--workers", "careful")


def test_annotators_learn_once_there_are_answers_and_a_withdrawn_one_is_read_no_more(tmp_path, monkeypatch):
    """The first round has nothing to teach; in the second who can learn does, proposes, and is named in the table.

    Taken back, the round leaves nothing of it that is fused, proposed from or chosen.
    """
    settings = make_world(tmp_path / "p", n_images=20)
    monkeypatch.chdir(settings.project)
    _with_a_mini(settings.project)
    first = ok(*TRAINED, "--json").json["counts"]
    second = ok(*TRAINED, "--json").json["counts"]
    learnt = f"clip-mini-r{second['round']}"

    assert first["steps"]["train"]["trained"] == {}
    assert "0 pairs have usable answers" in first["steps"]["train"]["left_out"]["clip-mini"]
    assert second["steps"]["fuse"]["auc"] is not None
    assert "cannot learn" in second["steps"]["train"]["left_out"]["near"]
    assert second["steps"]["train"]["trained"] == {"clip-mini": learnt}
    assert second["steps"]["propose"]["annotators"] == ["near", learnt]
    assert second["figures"]["trained"] == [learnt]
    assert learnt in ok("round", "show").out

    def read():
        with open_context(load_settings(Path(), environ={}), SANDBOX, read_only=True) as context:
            session = context.session
            _, items = read_items(session, context.settings)
            rows = ranked(context, items, proposals.runs(session))
            pairs = len(proposals.candidate_pairs(session, list(Direction)))
            candidates = open_work.pair_counts(session, SANDBOX).candidates
            lists = all_rankings(session, context.settings, item_store.dataset(session).id)
            assert {one.annotator for one in lists} == set(rows["annotator"])
            return set(rows["annotator"]), fused_scores(context), pairs, candidates

    names, fused, pairs, candidates = read()
    assert names == {"near", "clip-mini", learnt} and fused is not None and pairs == candidates
    taken = ok("round", "rollback", "--json").json["counts"]
    names, fused, fewer, candidates = read()
    assert taken["unlearnt"] == [learnt]
    assert names == {"near", "clip-mini"}
    assert fused is None  # what stood had read its rankings
    assert fewer == candidates < pairs
    assert "all is well" in ok("db", "verify").out


def test_an_annotator_that_learnt_nothing_proposes_under_its_own_name(tmp_path, monkeypatch):
    """It would rank as before, twice; a round that died behind its training says so too, and trains no second time."""
    _answered_with_a_mini(tmp_path, monkeypatch)
    trains, learnt = training._Work._train, []

    def no_better(work, learner, name, base, path, teachers):
        learnt.append(name)
        return {**trains(work, learner, name, base, path, teachers), "best_step": 0}

    monkeypatch.setattr(training._Work, "_train", no_better)
    with monkeypatch.context() as patched:
        patched.setattr(walking, "_ended", _dies)
        assert mitl(*TRAINED).status == 130

    counts = ok(*TRAINED, "--json").json["counts"]

    assert learnt == [f"clip-mini-r{counts['round']}"]
    assert counts["steps"]["train"]["trained"] == {}
    assert "no better at any step" in counts["steps"]["train"]["left_out"]["clip-mini"]
    assert "clip-mini" in counts["steps"]["propose"]["annotators"]


@pytest.mark.thorough
def test_a_round_that_died_while_training_goes_on_with_what_it_has_trained(tmp_path, monkeypatch):
    """Answers that came in between do not make it train again, nor refuse."""
    settings = _answered_with_a_mini(tmp_path, monkeypatch)
    real = walking._ended

    monkeypatch.setattr(walking, "_ended", _dies)
    assert mitl(*TRAINED).status == 130
    monkeypatch.setattr(walking, "_ended", real)
    with open_database(settings.db_url) as session:
        gone = session.query(JudgementRow).order_by(JudgementRow.id.desc()).limit(1).one()
        session.delete(gone)
        session.commit()

    (number,) = ok(*TRAINED, "--json").json["counts"]["closed"]

    with open_database(settings.db_url, read_only=True) as session:
        (row,) = round_store.trained(session)
    assert row.name == f"clip-mini-r{number}"


@pytest.mark.thorough
def test_annotators_that_cannot_learn_for_one_reason_are_told_of_in_one_line(tmp_path, monkeypatch):
    settings = make_world(tmp_path / "p", n_images=20)
    monkeypatch.chdir(settings.project)
    minis = ("--annotators", "pvse-mini,clip-mini")

    said = ok("round", "next", "--sandbox", "--train", "--budget", "9.00", *minis).out

    (line,) = [line for line in said.splitlines() if "left unchanged" in line]
    assert line.startswith("pvse-mini, clip-mini are left unchanged: 0 pairs have usable answers")


def test_how_to_learn_wants_train_and_a_loss_that_there_is(project):
    """Told before a round is opened."""
    one = ("round", "next", "--sandbox", "--budget", "1.20")
    assert "add --train" in fails(2, *one, "--loss", "bcls")
    assert "no loss 'hinge'" in fails(1, *one, "--train", "--loss", "hinge")
    assert _rounds(project) == []


def test_next_posts_and_waits_and_rollback_drops_nothing_that_was_asked(project):
    """Until people have answered, `next` opens nothing; taken back, a round leaves its answers and its money."""
    one = ("round", "next", "--sandbox", "--budget", "1.00", "--strategy", "random")
    ok(*one)
    again = ok(*one, "--json").json
    plain = fails(1, "publish", "--sandbox")
    ok("simulate", "--sandbox")
    assert "next: mitl round run --sandbox, which ends the round" in ok("harvest", "--sandbox").out
    standing = ok("status", "--sandbox").out
    assert "2 is under way" in standing and "next: mitl round run --sandbox" in standing

    taken = ok("round", "rollback", "--json").json["counts"]

    assert again["status"] == "nothing_to_do" and "no usable answer" in again["counts"]["waits_for"]
    assert "--chosen" in plain
    assert taken["round"] == _rounds(project)[0].number and taken["dropped"] == 0
    figures = ok("round", "show", "--json").json["counts"]["rounds"][0]
    assert "stands for what `mitl publish` asks without a round" in ok("round", "show").out
    assert figures["state"] == "rolled_back" and figures["answered"] > 0 and figures["paid_cents"] > 0
    assert "none to take back" in fails(1, "round", "rollback")
    assert "no round is open" in fails(1, "publish", "--sandbox", "--chosen")


def test_what_a_round_could_not_use_is_asked_again_by_the_command_that_is_named(project):
    """While a round is open `mitl publish` refuses, so every next step names what goes on with the round."""
    ok("round", "next", "--sandbox", "--budget", "3.00", "--strategy", "random")
    ok("simulate", "--sandbox", "--workers", "random")
    ok("harvest", "--sandbox")

    settled, looked = ok("review", "settle").out, ok("harvest", "--sandbox").out
    others = ok("review"), ok("simulate"), ok("audit", "draw", "--size", "20")
    proposed_again = run_propose(load_settings(project, environ={})).next

    assert "next: mitl round run --sandbox, which asks again what could not be used" in settled
    assert all("next: mitl round run --sandbox" in said for said in (looked, *(one.out for one in others)))
    assert proposed_again == "mitl round run --sandbox"
    ok("round", "run", "--sandbox")


def test_a_dry_run_tells_what_the_round_then_asks_and_stores_nothing(project):
    """Before anything is fused there is nothing to expect; then pairs, spread and repeats are those that come."""
    words = ("round", "next", "--sandbox", "--budget", "2.20")
    first = ok(*words, "--dry-run", "--json").json["counts"]["asks"]
    assert first["strategy"] == "exhaustive" and first["expected"] is None
    assert first["images"]["asked_before"] == first["captions"]["asked_before"] == 0
    assert _rounds(project) == []
    dry = ok(*words, "--dry-run").out
    assert "by exhaustive, since expected has no probabilities" in dry
    assert "not known: `mitl fuse` has not read these rankings yet" in dry
    ok(*RUN[:3], "--budget", "9.00", "--strategy", "random", "--workers", "careful")
    ok("fuse")
    before = (project / "mitl.db").read_bytes()
    with open_database(f"sqlite:///{project / 'mitl.db'}", read_only=True) as session:
        answered = pack_pairs(open_work.usable_workers(session, SANDBOX))

    told = ok(*words, "--dry-run", "--json").json["counts"]

    assert (project / "mitl.db").read_bytes() == before
    asks, expected = told["asks"], told["asks"]["expected"]
    assert 0 <= expected["low"] <= expected["matches"] <= expected["high"] <= asks["pairs"]
    assert 0 <= expected["beyond_originals"] <= expected["matches"]
    posted = ok(*words, "--json").json["counts"]["steps"]["publish"]["hits_posted"]
    assert asks["hits"] == posted and asks["cents"] <= 220
    number = told["round"]
    assert "under way" in fails(1, *words, "--dry-run")
    with open_database(f"sqlite:///{project / 'mitl.db'}", read_only=True) as session:
        row = next(row for row in _rounds(project) if row.number == number)
        chosen = round_store.chosen_pairs(session, row.id)
        originals = set(columns.original_columns(session, 1).tolist())
    assert asks["pairs"] == len(chosen) and asks["strategy"] == chosen["strategy"].iloc[0]
    assert asks["originals"] == len(set(chosen["pair"]) & originals)
    for side, ids, asked in zip(
        ("images", "captions"),
        *map(unpack_ids, (chosen["pair"].to_numpy(), answered)),
        strict=True,
    ):
        assert asks[side]["items"] == len(set(ids))
        assert asks[side]["asked_before"] == len(set(ids) & set(asked))
        assert asks[side]["most"] == max(Counter(ids).values())


def test_a_round_chooses_only_among_the_first_ranks_that_are_wanted(project):
    """With one rank every choice is some ranking's first."""
    ok("round", "next", "--sandbox", "--strategy", "random", "--budget", "2.20", "--ranks", "1")

    with open_database(f"sqlite:///{project / 'mitl.db'}", read_only=True) as session:
        chosen = round_store.chosen_pairs(session, _rounds(project)[0].id)["pair"]
    with open_context(load_settings(Path(), environ={}), SANDBOX, read_only=True) as context:
        rows = ranked(
            context, read_items(context.session, context.settings)[1], proposals.runs(context.session)
        )
    assert len(chosen) > 0
    assert set(chosen) <= set(rows["pair"][rows["rank"] == 1]) < set(rows["pair"])


def test_a_round_asks_no_more_pairs_of_an_item_than_are_wanted(project):
    """Of an image or a caption; without the limit the same strategy asks several."""
    asked = (
        "round",
        "next",
        "--sandbox",
        "--strategy",
        "exhaustive",
        "--budget",
        "2.20",
        "--dry-run",
        "--json",
    )
    few, any_ = (ok(*asked, *more).json["counts"]["asks"] for more in (("--per-item", "1"), ()))

    assert [few[side]["most"] for side in ("images", "captions")] == [1, 1]
    assert few["pairs"] > 0 and max(any_[side]["most"] for side in ("images", "captions")) > 1


def test_a_dry_run_of_a_project_without_proposals_says_what_is_missing(tmp_path, monkeypatch):
    """It proposes nothing by itself."""
    monkeypatch.chdir(make_world(tmp_path / "p", n_images=20).project)

    assert "mitl propose" in fails(1, "round", "next", "--sandbox", "--budget", "1.20", "--dry-run")


def test_what_cannot_be_meant_is_one_line_and_opens_nothing(project):
    """A budget below one HIT says what a HIT costs; an unknown strategy names those that are known."""
    small = fails(1, "round", "next", "--sandbox", "--budget", "0.01")
    assert "below one HIT, which costs $" in small
    assert "choose one of" in fails(2, "round", "next", "--sandbox", "--budget", "1.20", "--strategy", "luck")
    assert "add --budget" in fails(2, "round", "next", "--sandbox")
    assert "no worker character called 'luck'" in fails(2, *RUN[:-1], "luck")
    assert "no round was opened" in fails(1, "round", "show")
    assert "no round was opened" in fails(1, "round", "close")
    assert "no round is under way" in fails(1, "round", "run", "--sandbox")
    assert _rounds(project) == []


def test_a_round_proposes_where_nothing_was_proposed(tmp_path, monkeypatch):
    """The first round of a new project ranks by itself, and asks the best of every ranking."""
    settings = make_world(tmp_path / "p", n_images=40)
    monkeypatch.chdir(settings.project)

    counts = ok("round", "next", "--sandbox", "--budget", "1.00", "--json").json["counts"]

    assert counts["steps"][RoundStep.CHOOSE.value]["strategy"] == "exhaustive"
    assert counts["figures"]["promised_cents"] <= 100


def test_those_who_ranked_before_need_not_be_named_in_the_settings(project):
    """The round names them, as where mitl.toml does."""
    (name, *_) = load_settings(project, environ={}).annotators
    config = project / "mitl.toml"
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(line for line in lines if not line.startswith("annotators =")))

    said = ok("round", "next", "--sandbox", "--budget", "1.20")

    assert f"propose: {name}" in said.out + said.err and "ranked before" in said.out + said.err
