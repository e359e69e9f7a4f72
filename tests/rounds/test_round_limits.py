"""What a round may spend, and what it refuses: in one line, with nothing lost."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from audit_kit import add_page
from books import server_rows
from cli_kit import fails, mitl, ok
from fused_kit import quickest  # noqa: F401 - in the whole module
from publish_kit import proposed
from sqlalchemy import update
from world_kit import SANDBOX, make_world, run_propose, spoil

from mitl.campaign.kinds.pairs.planning import Campaign
from mitl.campaign.publish import publish
from mitl.core.arrays import pack_pairs, unpack_pairs
from mitl.db.locks import ROUND, only_one
from mitl.db.models import Batch, Hit, JudgementRow
from mitl.db.session import open_database
from mitl.db.store import audits, open_work, proposals, rounds
from mitl.errors import StoreError, UsageError
from mitl.hits.packing import CANDIDATES_PER_HIT
from mitl.judgements.answer_table import POSITIVE_LABELS
from mitl.records import AuditPurpose, Direction, Environment, HitState, PairRole, several
from mitl.records.results import StageResult
from mitl.settings import Settings
from mitl.settings import load as load_settings
from mitl.stages.rounds.asking import publish_chosen
from mitl.stages.rounds.walking import next_round, rollback, run_rounds
from mitl.stages.rounds.wish import AnswerWait, Done, RoundRequest, Talk, Turn

NEXT = ("round", "next", "--sandbox", "--budget", "2.00")


@pytest.fixture
def project(tmp_path: Path, monkeypatch) -> Settings:
    """A project with proposals, in the current folder."""
    settings = proposed(tmp_path / "p")
    monkeypatch.chdir(settings.project)
    return settings


@pytest.fixture(scope="module")
def careless(tmp_path_factory) -> Path:
    """A project whose first round was answered at random alone: its HITs have to be asked again."""
    settings = proposed(tmp_path_factory.mktemp("careless") / "p")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(settings.project)
        ok("round", "run", "--sandbox", "--budget", "3.00", "--workers", "random", "--strategy", "random")
    return settings.project


@pytest.fixture
def with_lost_work(careless: Path, tmp_path: Path, monkeypatch) -> Settings:
    """A copy of it, in the current folder."""
    shutil.copytree(careless, tmp_path / "p")
    monkeypatch.chdir(tmp_path / "p")
    return load_settings(tmp_path / "p", environ={})


def test_what_publishing_warns_of_is_said_in_a_round_too(project):
    """Such as pictures that cannot be shown."""
    publish(
        replace(project, wage_floor_cents=0),
        Campaign(Environment.LIVE, reward_cents=0),
        confirm=lambda _: True,
    )
    for file in (project.public / "i").iterdir():
        spoil(file, b"cut off")

    outcome = mitl(*NEXT, "--strategy", "random", "--quiet")

    assert outcome.status == 0
    assert "could not see image" in outcome.err


def test_a_round_whose_budget_is_spent_waits_for_the_answers_that_are_still_out(project):
    """What is lost and cannot be paid for again keeps nobody from waiting for the others."""
    ok(*NEXT[:-1], "3.00", "--strategy", "random")
    ok("simulate", "--workers", "random", "--max-hits", "1")
    ok("harvest")
    ok("review", "drop", "1")

    told = ok("round", "run", "--sandbox")
    crowd = AnswerWait(1.0, pause=lambda seconds: ok("simulate") and None)
    ended = run_rounds(project, SANDBOX, None, Talk(lambda cents: True, crowd=crowd)).counts

    assert (
        "54 pairs of the round or of its audits have no usable answer yet, and $0.00 of the budget"
        in told.out
    )
    assert "next: the same command again when people have worked" in told.out
    assert ended["closed"] == [2] and ended["steps"]["harvest"] == {"looks": 2, "unanswered": 18}


@pytest.mark.parametrize("name", ["mitl.db", "crowd.db"])
def test_a_round_that_waits_outlives_a_database_that_is_down_for_a_while(project, name):
    """It tells so once, looks again ever more rarely, and ends with the answers; the first look has to succeed."""
    ok(*NEXT, "--strategy", "random")
    file, told, waits = project.project / name, list[str](), list[float]()

    def pause(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 1:
            ok("simulate")
            file.rename(file.with_suffix(".whole"))
            file.write_bytes(b"no database any more" * 10)
        elif len(waits) == 4:
            file.with_suffix(".whole").rename(file)

    talk = Talk(lambda cents: True, say=told.append, crowd=AnswerWait(1.0, pause=pause))
    ended = run_rounds(project, SANDBOX, None, talk).counts

    assert ended["closed"] == [2] and ended["steps"]["harvest"]["looks"] == 2
    assert waits == [1, 1, 2, 4]
    assert sum(f"cannot use {name}: file is not a database" in line for line in told) == 1


def test_a_strategy_that_lacks_something_else_than_probabilities_says_so_and_no_other_spends_the_money(
    project, monkeypatch
):
    """The fallback is for strategies that go by probabilities alone."""
    monkeypatch.setattr("mitl.stages.rounds.choosing.ranked", _of("near"))

    error = fails(1, *NEXT, "--strategy", "disagreement")

    assert "disagreement needs two annotators" in error and "`mitl round rollback`" in error


def test_a_round_pays_for_no_preference_study(project):
    """Though it is posted while the round is open."""
    ok(*NEXT, "--strategy", "random")
    ok("prefer", "publish", "--sandbox", "--queries", "8")

    taken_back = ok("round", "rollback", "--sandbox").out

    assert "2 HITs with its choices still are out" in taken_back


def test_work_for_nothing_has_no_budget(project):
    """Which would buy any number of HITs."""
    error = fails(1, *NEXT, "--reward", "0", "--strategy", "random")

    assert "a HIT costs nothing, so no budget says how many a round asks" in error


@pytest.mark.parametrize("strategy", ["random", "bandit", "exhaustive"])
@pytest.mark.thorough(but=("bandit",))
def test_hits_of_a_round_are_full_beside_those_that_are_asked_again(with_lost_work, strategy):
    """A choice on an earlier HIT costs that HIT once more; where no other fits, others fill what the budget buys.

    Two HITs: as much is kept to ask again, for no answer so far could be used.
    """
    with open_database(with_lost_work.db_url, read_only=True) as session:
        lost = [set(hit.pairs) for hit in open_work.hits_to_replace(session, SANDBOX)]
    made = ok(*NEXT[:-1], "4.00", "--strategy", strategy, "--json").json["counts"]
    with open_database(with_lost_work.db_url, read_only=True) as session:
        chosen = rounds.chosen_pairs(session, rounds.rounds(session, SANDBOX)[-1].id)
    pairs = set(unpack_pairs(chosen["pair"].to_numpy()))
    again = sum(bool(pairs & hit) for hit in lost)

    assert lost and len(pairs.difference(*lost)) == (2 - again) * CANDIDATES_PER_HIT
    assert made["steps"]["publish"]["hits_posted"] == 2
    assert chosen["place"].tolist() == list(range(1, len(chosen) + 1))


def test_new_hits_are_reckoned_with_at_their_own_price(with_lost_work):
    """What earlier ones paid, and pay again, is no reason to ask less; half of the budget is kept."""
    with open_database(with_lost_work.db_url) as session:
        session.execute(update(Batch).values(reward_cents=300))
        session.commit()

    next_round = (*NEXT[:-1], "12.00", "--strategy", "random", "--json")
    asks = ok(*next_round, "--dry-run").json["counts"]["asks"]
    posted = ok(*next_round).json["counts"]["figures"]

    assert posted["asked"] == asks["pairs"] > 2 * CANDIDATES_PER_HIT
    assert posted["promised_cents"] == asks["cents"] <= asks["kept_cents"] == 600


def test_choices_that_an_earlier_batch_asks_again_are_asked(with_lost_work):
    """Taken back, a round keeps them, and counts the HITs that ask them among those that are out."""
    with open_database(with_lost_work.db_url, read_only=True) as session:
        lost = len(open_work.hits_to_replace(session, SANDBOX))
    ok(*NEXT[:-1], "90.00", "--strategy", "random")
    with open_database(with_lost_work.db_url, read_only=True) as session:
        live = len(open_work.live_pairs(session, SANDBOX))

    taken = ok("round", "rollback").out
    figures = ok("round", "show", "--json").json["counts"]["rounds"][-1]

    out = ok("status", "--json").json["counts"]["hits_out"]
    assert lost > 0 and "0 choices without a HIT or an answer dropped" in taken
    assert f"{out} HITs with its choices still are out" in taken
    assert figures["asked"] == live


@pytest.mark.parametrize("during", ["rollback", "publish"])
def test_a_round_is_not_taken_back_while_its_choices_are_posted(project_url, tmp_path, monkeypatch, during):
    """Neither between what a rollback looks at and what it changes, nor while a person weighs the bill."""
    settings = make_world(tmp_path / "p", n_images=12, db_url=project_url)
    run_propose(settings, image_queries=4, caption_queries=4)
    with pytest.raises(UsageError, match="not confirmed"):
        next_round(settings, SANDBOX, RoundRequest(200, strategy="random"), Talk(lambda total: False))
    others: list[Callable[[], object]] = []

    def meet(given: object) -> bool:
        for command in others:
            with pytest.raises(StoreError, match="another `mitl publish` is at work"):
                command()
        return True

    def post() -> StageResult:
        return publish(settings, Campaign(SANDBOX, chosen=True), confirm=meet)

    if during == "rollback":
        read = rounds.trained
        monkeypatch.setattr(rounds, "trained", lambda session: meet(session) and read(session))
        others.append(post)
        assert rollback(settings, SANDBOX).counts["dropped"] > 0
    else:
        others.append(lambda: rollback(settings, SANDBOX))
        assert post().counts["hits_posted"] > 0


def test_what_the_rest_of_a_budget_cannot_pay_for_ends_the_posting(project):
    """A choice that is on no HIT once the money is spent does not keep the round from its answers."""
    ok(*NEXT, "--strategy", "random")
    with open_database(project.db_url) as session:
        row = rounds.rounds(session, SANDBOX)[-1]
        chosen = unpack_pairs(rounds.chosen_pairs(session, row.id)["pair"].to_numpy())
        asked = open_work.asked_pairs(session, SANDBOX)
        other = next(
            pair for pair in proposals.candidate_pairs(session, list(Direction)) if pair not in asked
        )
        rounds.choose_pairs(
            session,
            row.id,
            pd.DataFrame(
                {"pair": pack_pairs([other]), "place": [99], "score": [0.0], "strategy": ["random"]}
            ),
        )
        session.commit()

    turn = Turn(project, SANDBOX, row, RoundRequest.of(row), Talk(lambda cents: True))
    done = publish_chosen(turn)

    assert isinstance(done, Done)
    assert done.line.startswith(f"1 of {len(chosen) + 1} chosen pairs stand on no HIT, and the $")
    with open_database(project.db_url, read_only=True) as session:
        assert other not in open_work.asked_pairs(session, SANDBOX)


def test_a_second_opinion_that_is_out_asks_also_a_pair_whose_first_answer_was_lost(project):
    """It is neither open nor asked anew; once nobody has answered that either, it is open."""
    with open_database(project.db_url) as session:
        other = proposals.candidate_pairs(session, list(Direction))[0]
        before = open_work.pair_counts(session, SANDBOX).open
        hit = add_page(session, {int(pack_pairs([other])[0]): PairRole.OVERLAP}, state=HitState.POSTED)
        out = open_work.asked_pairs(session, SANDBOX), open_work.pair_counts(session, SANDBOX).open
        session.execute(update(Hit).where(Hit.id == hit).values(state=HitState.CLOSED))
        closed = open_work.asked_pairs(session, SANDBOX), open_work.pair_counts(session, SANDBOX).open

    assert out == ({other}, before - 1)
    assert closed == (set(), before)


def test_what_nobody_can_walk_is_told_in_one_line(project, monkeypatch):
    """Two at once; nothing left to ask; a round with open HITs that is taken back."""
    with only_one(project.db_url, ROUND):
        for words in (NEXT, ("round", "run", "--sandbox"), ("round", "close"), ("round", "rollback")):
            assert "another `mitl round` is at work" in fails(1, *words)

    config = project.project / "mitl.toml"
    told = config.read_text()
    config.write_text("".join(line for line in told.splitlines(True) if not line.startswith("annotators = ")))
    assert "as --annotators clip-mini" in fails(2, *NEXT, "--train")
    config.write_text(told)

    ok(*NEXT, "--strategy", "random")
    taken = ok("round", "rollback").out
    assert "2 HITs with its choices still are out" in taken and "mitl hits expire" in taken
    ok("publish", "--sandbox")
    again = (*NEXT[:-1], "40.00", "--strategy", "random")
    monkeypatch.setattr("mitl.stages.rounds.choosing.ranked", _top(5))
    nothing = fails(1, *again)
    assert "is open: all were asked" in nothing and "`mitl round rollback`" in nothing
    assert "was asked for with other options" in fails(1, *NEXT)
    ok("round", "rollback")


def _top(depth: int):
    from mitl.stages.fusing.gathering import ranked

    def shallow(*given):
        rows = ranked(*given)
        return rows[rows["rank"] <= depth]

    return shallow


@pytest.mark.thorough
def test_an_unfinished_training_of_a_round_learns_from_the_answers_that_came_in_since(tmp_path, monkeypatch):
    """A checkpoint of other answers is refused by `mitl train`, and begun anew by a round."""
    from annotators.training import training

    settings = make_world(tmp_path / "p", n_images=20)
    monkeypatch.chdir(settings.project)
    run_propose(settings, image_queries=15, caption_queries=30)
    ok("publish", "--sandbox", "--limit", "140")
    ok("simulate", "--workers", "careful")
    ok("harvest")
    train = (
        "round",
        "run",
        "--sandbox",
        "--train",
        "--steps",
        "4",
        "--annotators",
        "clip-mini",
        "--budget",
        "1.00",
    )

    def dies(self, kept):
        keep(self, kept)
        raise KeyboardInterrupt

    keep = training._Course.keep
    monkeypatch.setattr(training._Course, "keep", dies)
    assert mitl(*train).status == 130
    assert mitl("train", "clip-mini", "--steps", "4", "--name", "mine").status == 130
    monkeypatch.setattr(training._Course, "keep", keep)
    other = fails(1, "train", "clip-mini", "--steps", "5", "--name", "mine")
    assert "lies in" in other and "other options" in other and "--restart" in other
    (settings.project / "trained" / "mine.checkpoint").write_bytes(b"torn")
    assert "is no checkpoint" in fails(1, "train", "clip-mini", "--steps", "4", "--name", "mine")
    with open_database(settings.db_url) as session:
        session.delete(session.query(JudgementRow).order_by(JudgementRow.id.desc()).limit(1).one())
        session.commit()

    counts = ok(*train, "--workers", "careful", "--json").json["counts"]

    assert counts["steps"]["train"]["trained"] == {"clip-mini": f"clip-mini-r{counts['round']}"}


def _of(name: str):
    from mitl.stages.fusing.gathering import ranked

    def his_own(*given):
        rows = ranked(*given)
        return rows[rows["annotator"] == name]

    return his_own


def test_machines_label_under_the_bound_of_a_sample_that_is_drawn_once_there_are_probabilities(
    tmp_path, monkeypatch
):
    """A first round draws none; later the sample is asked first, and labels stand on open pairs alone.

    They are not asked any more, stand in a release unless it is of humans only, and go with the round.
    """
    settings = make_world(tmp_path / "p")
    monkeypatch.chdir(settings.project)
    with (settings.project / "mitl.toml").open("a") as toml:
        toml.write("\n[crowd]\nmax_hits_per_worker = 2\n")
    run_propose(settings, image_queries=40, caption_queries=120)
    labels = ("--label-error", "0.5", "--label-sample", "90")
    assert "below one HIT" in fails(1, "round", "next", "--sandbox", "--budget", "0.50", *labels)
    assert "audits want 90 questions first" in fails(
        1, "round", "next", "--sandbox", "--budget", "6.00", *labels
    )
    first = ok("round", "next", "--sandbox", "--budget", "7.00", *labels, "--json").json["counts"]
    with open_database(settings.db_url, read_only=True) as session:
        assert audits.current(session, SANDBOX, AuditPurpose.LABELS) is None
    ok("round", "close")
    ok("publish", "--sandbox", "--limit", "150")
    for words in (("simulate", "--workers", "careful"), ("harvest",), ("fuse",)):
        ok(*words)
    large = fails(1, "round", "next", "--sandbox", "--budget", "90.00", *labels[:-1], "1000")
    assert "a sample of 1,000 pairs is wanted, but 2 to " in large and "`mitl round rollback`" in large
    ok("round", "rollback")

    counts = ok(
        "round",
        "run",
        "--sandbox",
        "--rounds",
        "1",
        "--budget",
        "12.00",
        *labels,
        "--workers",
        "careful",
        "--json",
    ).json["counts"]

    with open_database(settings.db_url, read_only=True) as session:
        sample = audits.drawn_for_labels(session, SANDBOX)
        labelled = audits.machine_labels(session, SANDBOX)
        answered = open_work.usable_workers(session, SANDBOX)
    assert first["figures"]["asked"] > 0 and len(sample) == 90 and sample & set(answered)
    pairs = set(unpack_pairs(labelled["pair"].to_numpy()))
    assert counts["steps"]["label"]["labelled"] == counts["figures"]["labelled"] == len(labelled) > 0
    assert sample <= set(answered) and not pairs & set(answered)
    assert counts["figures"]["paid_cents"] <= 1200
    with open_database(settings.db_url, read_only=True) as session:
        assert pairs <= open_work.asked_pairs(session, SANDBOX)
    released = ok("build-dataset", "--out", "all", "--json").json["counts"]
    people = ok("build-dataset", "--out", "people", "--humans-only", "--json").json["counts"]
    assert released["machine_labels"] == len(labelled) and people["machine_labels"] == 0
    matches = int((labelled["label"] < POSITIVE_LABELS).sum())
    assert (
        released["positives_by_source"]["machine"] == matches and released["positives"] > people["positives"]
    )
    assert "machine" not in people["positives_by_source"]
    assert (
        f"A machine labelled {several(len(labelled), 'pair')}"
        in (tmp_path / "p" / "all" / "datasheet.md").read_text()
    )

    assert ok("round", "rollback", "--json").json["counts"]["withdrawn"] == 1
    with open_database(settings.db_url, read_only=True) as session:
        assert not len(audits.machine_labels(session, SANDBOX))


def test_each_round_pays_for_what_it_asks_again_of_earlier_ones_and_keeps_some_of_its_budget_for_it(
    tmp_path, monkeypatch
):
    """All that was paid stands in one round, none is above its budget, and what was lost before is reckoned with."""
    settings = make_world(tmp_path / "p", n_images=20)
    monkeypatch.chdir(settings.project)
    run_propose(settings, image_queries=20, caption_queries=60)
    run = ("round", "run", "--sandbox", "--budget", "6.00", "--strategy", "random")
    spent, again = [0], 0
    for _ in range(3):
        ok(*run, "--workers", "careful:0.6,hasty:0.4")
        ((cents,),) = server_rows(settings, "SELECT spent_cents FROM account WHERE environment = 'sandbox'")
        spent.append(cents)
        with open_database(settings.db_url, read_only=True) as session:
            again += len(open_work.hits_to_replace(session, SANDBOX))
    with open_database(settings.db_url, read_only=True) as session:
        lost = open_work.lost_pages(session, SANDBOX).so_far
    asks = ok("round", "next", "--sandbox", "--budget", "10.00", "--dry-run", "--json").json["counts"]["asks"]

    rounds = ok("round", "show", "--json").json["counts"]["rounds"]
    paid = [one["paid_cents"] for one in rounds]

    assert sum(paid) == ok("status", "--json").json["counts"]["paid_cents"]
    assert again > 0
    assert all(after - before <= 600 for before, after in itertools.pairwise(spent))
    assert all(one["paid_cents"] + one["promised_cents"] <= one["budget_cents"] for one in rounds)
    assert lost > 0.1 and asks["kept_cents"] == 100 * int(10 * min(lost, 0.5))
    assert asks["cents"] + asks["kept_cents"] <= 1000
