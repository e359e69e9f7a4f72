"""Texts from their choice to a release: written, checked, reviewed by somebody else, asked again, paid, handed on."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from books import assert_each_hit_is_there_once, server_rows
from cli_kit import fails, ok
from harvest_kit import in_pipeline
from publish_kit import bill, kept_off
from sqlalchemy import text as sql
from world_kit import SANDBOX, copied_once, copy_of, make_world, run_propose, spoil

from mitl.campaign import jobs
from mitl.campaign.kinds.texts import planning
from mitl.campaign.kinds.texts.kind import KIND
from mitl.campaign.kinds.texts.planning import CollectTexts, due_task
from mitl.campaign.kinds.texts.standing import ItemState, standing
from mitl.campaign.publish import publish
from mitl.core.arrays import unpack_ids
from mitl.crowd import worker_session
from mitl.crowd.context import open_context
from mitl.crowd.endpoint import open_endpoint
from mitl.db.session import open_database
from mitl.db.store import answers, collection, hits, items, ledger
from mitl.errors import CrowdError, MetricError, ProposalError, RoundError, UsageError
from mitl.positives.loading import read_release
from mitl.records import CollectionRole, Decision, Direction, HitState, Label
from mitl.records.collection import TEXTS, Terms, TextRules
from mitl.stages.analysing.analyse import analyse
from mitl.stages.analysing.snapshot import read_project
from mitl.stages.auditing.pools import merged_now
from mitl.stages.collecting.choose import STRATEGIES, CollectWish, choose
from mitl.stages.collecting.show import collected, show
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.ending import expire
from mitl.stages.hits.extend import ExtensionWish, extend
from mitl.stages.hits.simulate import simulate
from mitl.stages.releasing.build_dataset import build_dataset
from mitl.stages.releasing.originals import exclude
from mitl.stages.releasing.verify import verify
from mitl.stages.reporting.report import report
from mitl.stages.reporting.status import status
from mitl.stages.reviewing.decisions import Ruling
from mitl.stages.reviewing.review import rule
from mitl.stages.reviewing.show import show as show_submission


@pytest.fixture
def settings(tmp_path):
    """A project of 20 scenes, proposed for, whose first eight images and ten captions may be chosen."""

    def make(new):
        run_propose(make_world(new, n_images=20), image_queries=4, caption_queries=100)
        (new / "images.txt").write_text("\n".join(map(str, range(1, 9))))
        (new / "captions.txt").write_text("\n".join(map(str, range(1, 11))))

    return copied_once("to collect", make, tmp_path / "p")


@pytest.fixture
def written(settings, tmp_path):
    """The same with texts written for four images and not yet reviewed."""

    def make(new):
        made = copy_of(settings, new)
        chosen(made, 4)
        ask(made)
        work(made)

    return copied_once("written", make, tmp_path / "written")


def chosen(settings, count=6, strategy="random", side="images"):
    wish = CollectWish(strategy, count, side == "images", settings.project / f"{side}.txt")
    return choose(settings, wish, SANDBOX)


def ask(settings, task="", **wish):
    task = task or due_task(settings, SANDBOX).value
    return publish(settings, CollectTexts(SANDBOX, task, **wish), confirm=lambda total: True)


def work(settings, population="careful"):
    simulate(settings, SANDBOX, population=population)
    return harvest(settings, SANDBOX)


def states(settings):
    with open_database(settings.db_url, read_only=True) as session:
        return [one.state for one in standing(session, SANDBOX)]


def build_counts(folder):
    return json.loads((folder / "manifest.json").read_text())["counts"]["collected"]


def spots(settings):
    with open_database(settings.db_url, read_only=True) as session:
        return collection.spots(session, SANDBOX)


def test_a_text_is_written_reviewed_by_another_and_becomes_an_original(settings, tmp_path):
    """Every step says what it did, and that nothing is left to do when it is called again."""
    assert chosen(settings).counts["chosen"] == 6
    assert show(settings, SANDBOX).next == "mitl collect publish --sandbox"
    posted = ask(settings)
    assert (posted.counts["task"], posted.counts["items"], posted.counts["hits_posted"]) == (["write"], 6, 2)
    assert set(states(settings)) == {ItemState.OUT}
    again = ask(settings)
    assert again.status == "nothing_to_do" and again.next.startswith("mitl serve for people")
    assert show(settings, SANDBOX).next == "mitl harvest"
    assert work(settings).counts["approved"] == 2
    assert set(states(settings)) == {ItemState.WRITTEN}
    idle = ask(settings, task="write")
    assert (idle.status, idle.next) == ("nothing_to_do", "mitl collect show")
    reviews = ask(settings)
    assert (reviews.counts["task"], reviews.counts["controls"]) == (["review"], 2)
    assert set(states(settings)) == {ItemState.IN_REVIEW}
    work(settings)
    assert_each_hit_is_there_once(settings)

    told = show(settings, SANDBOX)
    assert told.next == (
        "mitl build-dataset --sandbox --out DIR"
        if told.counts["accepted"] == 6
        else "mitl collect publish --sandbox"
    )
    assert told.counts["states"].get("accepted") == told.counts["accepted"] >= 5
    assert told.counts["paid_cents"] > 0
    of_answer = {spot.answer: spot.worker for spot in spots(settings) if spot.role is CollectionRole.WRITE}
    for spot in spots(settings):
        if spot.reviewed is not None:
            assert spot.worker and spot.worker != of_answer[spot.reviewed]
    with open_context(settings, SANDBOX, read_only=True) as context:
        texts = collected(context)
    images, numbers = unpack_ids(texts["pair"].to_numpy())
    assert images.tolist() == texts["image"].tolist() and numbers.min() > 100
    built = build_dataset(settings, tmp_path / "rel", SANDBOX, check_privacy=True)
    table = pd.read_parquet(tmp_path / "rel" / "collected.parquet")
    assert table["text"].tolist() == texts["text"].tolist() and set(table["text_id"]) == set(texts["name"])
    assert (table["writer"] != table["reviewer"]).all()
    told_too = build_counts(tmp_path / "rel")
    assert told_too == built.counts["collected"]
    assert told_too["chosen"] == 6 and told_too["paid_cents"] == told.counts["paid_cents"]
    assert told_too["written"] == told.counts["written"] and told_too["picked"] == 0
    assert told_too["accepted"] == len(table)
    sheet = (tmp_path / "rel" / "datasheet.md").read_text()
    assert f"| texts written for images | {told_too['written']} |" in sheet
    assert "Here people wrote or picked partners" in sheet and "sandbox (practice money)" in sheet
    assert "Scripted workers (`mitl simulate`) answer there as people do" in sheet
    described = (tmp_path / "rel" / "croissant.json").read_text()
    assert "texts that workers wrote for images are in collected.parquet" in described
    for false in ("Nobody was asked for", "none: nobody was asked", "earlier work", "nobody was asked for"):
        assert false not in described + sheet
    assert built.counts["ids_checked"] > 0 and verify(tmp_path / "rel").refusal is None
    assert read_release(tmp_path / "rel").pairs(Direction.I2T)
    assert build_dataset(settings, tmp_path / "rel", SANDBOX).status == "nothing_to_do"
    gone = int(table["image_id"][0])
    exclude(settings, [str(gone)])
    build_dataset(settings, tmp_path / "less", SANDBOX)
    left = pd.read_parquet(tmp_path / "less" / "collected.parquet")
    assert left["text_id"].tolist() == table.loc[table["image_id"] != gone, "text_id"].tolist()
    sheet = (tmp_path / "less" / "datasheet.md").read_text()
    assert f"and no exclusion list names (`collected.parquet`) | {len(left)} |" in sheet


def test_an_image_is_picked_among_those_ranked_first_and_joins_the_positives(settings, tmp_path):
    """What is picked and accepted stands in the file of collected texts and among the positives."""
    chosen(settings, 4, side="captions")
    assert ask(settings, offered=4).counts["task"] == ["pick"]
    assert all(len(spot.offered) == 4 for spot in spots(settings))
    with open_database(settings.db_url, read_only=True) as session:
        own = {pair.caption_id: pair.image_id for pair in items.originals(session, items.dataset(session).id)}
    assert all(own[spot.item] not in spot.offered for spot in spots(settings)), (
        "its image is no other partner"
    )
    work(settings)
    [first] = {spot.assignment for spot in spots(settings)}
    with open_database(settings.db_url) as session:  # as where the worker says that none matches
        [row] = answers.assignments(session, SANDBOX, rows=[first])
        last = session.scalar(sql("SELECT max(id) FROM collection_answer"))
        session.execute(sql(f"UPDATE collection_answer SET picked_id = NULL WHERE id = {last}"))
        shown = [cells[4] for cells in KIND.evidence(session, row)[0].rows]
        session.rollback()
    assert shown[-1] == "none of them" and all(said.startswith("image ") for said in shown[:-1])
    ask(settings)
    work(settings)
    assert states(settings).count(ItemState.ACCEPTED) >= 3
    build_dataset(settings, tmp_path / "rel", SANDBOX)
    table = pd.read_parquet(tmp_path / "rel" / "collected.parquet")
    assert set(table["task"]) == {"pick"}
    positives = pd.read_parquet(tmp_path / "rel" / "positives.parquet")
    pairs = set(zip(positives["image_id"], positives["caption_id"].astype(str), strict=True))
    assert set(zip(table["image_id"], table["text_id"], strict=True)) <= pairs
    with open_context(
        settings, SANDBOX, read_only=True
    ) as context:  # what audits and analyses take for the release
        known = read_project(context.session, settings, SANDBOX)
        assert len(merged_now(context).where("kept")) == len(pairs) == len(known.merged.where("kept"))


def test_a_caption_without_ranked_images_is_left_out_alone(settings, monkeypatch):
    """The bill says so, the others are asked, and where none is left there is nothing to do. Before any was offered an
    image it is refused: nothing was ranked for them."""
    chosen(settings, 4, side="captions")
    with open_database(settings.db_url, read_only=True) as session:
        missing = [one.choice.item for one in standing(session, SANDBOX)][:1]
    read = planning.columns.proposal_columns

    def ranked(session):
        proposals = read(session)
        return proposals[~pd.Series(unpack_ids(proposals["pair"].to_numpy())[1]).isin(missing).to_numpy()]

    monkeypatch.setattr(planning.columns, "proposal_columns", lambda session: read(session)[:0])
    with pytest.raises(
        ProposalError, match="4 chosen captions, none else is open; rank more with `mitl propose"
    ):
        ask(settings, "pick")
    monkeypatch.setattr(planning.columns, "proposal_columns", ranked)
    bill = []
    wish = CollectTexts(SANDBOX, "pick")
    posted = publish(settings, wish, confirm=lambda total: True, announce=bill.append)

    assert posted.counts["items"] == 3
    assert "left out: 1 caption with fewer than 2 ranked images" in "\n".join(map(str, bill))
    work(settings)
    again = ask(settings, "pick")
    assert (again.status, again.next) == ("nothing_to_do", "mitl collect show")
    assert "2 chosen captions, none else is open; rank more with `mitl propose" in again.lines[0]


def test_what_nobody_looked_at_is_offered_again(settings):
    """A HIT that ended without an answer has used up no image, nor has work that is not used."""
    chosen(settings, 2, side="captions")

    def offered_now():
        last = max(spot.hit for spot in spots(settings))
        return {spot.item: set(spot.offered) for spot in spots(settings) if spot.hit == last}

    ask(settings)
    before = offered_now()
    expire(settings, [], SANDBOX)
    harvest(settings, SANDBOX)
    ask(settings)
    assert offered_now() == before
    work(settings)
    in_pipeline(settings, "UPDATE assignment SET decision = 'drop'")
    ask(settings, "pick")
    assert offered_now() == before


def test_status_report_and_analysis_tell_of_what_was_collected(settings):
    """Nothing before an item is chosen; then the same numbers everywhere, and the money that pages cost."""
    assert status(settings, SANDBOX).counts["texts"] is None
    with pytest.raises(MetricError, match="mitl collect choose"):
        analyse(settings, ["texts"], SANDBOX)
    chosen(settings, 4)
    chosen(settings, 3, side="captions")
    for _ in range(3):
        ask(settings)
        work(settings, "careful:0.6,random:0.4")

    told, found = show(settings, SANDBOX).counts, status(settings, SANDBOX)
    texts, (analysed,) = found.counts["texts"], [analyse(settings, ["texts"], SANDBOX).counts["analyses"]]
    groups = analysed["texts"]["groups"]
    assert texts["chosen"] == 7 and texts["written"] + texts["picked"] == told["written"] > 0
    assert {name: texts[name] for name in ("faulty", "accepted", "refused")} == {
        name: told[name] for name in ("faulty", "accepted", "refused")
    }
    assert sum(one["given"] for one in groups) == told["written"]
    for name in ("chosen", "faulty", "refused", "accepted", "waiting"):
        assert sum(one[name] for one in groups) == texts[name]
    assert {one["task"] for one in groups} == {"write", "pick"}
    assert analysed["texts"]["paid_cents"] == told["paid_cents"] > 0
    with open_database(settings.db_url, read_only=True) as session:
        pages = {one.name for one in hits.batches(session, SANDBOX) if one.kind == TEXTS}
        work_done = [one for one in ledger.settled_work(session, SANDBOX) if one.batch in pages]
    assert told["paid_cents"] == sum(one.reward_cents + one.fee_cents + one.bonus_cents for one in work_done)
    assert any(row[0] == "texts" and "7 items chosen" in str(row[1]) for row in found.tables[0].rows)
    page = Path(report(settings, environment=SANDBOX).paths["report"]).read_text()
    assert 'id="texts"' in page
    assert page.count("mitl collect choose --seed") == 1


def test_texts_without_a_review_come_before_open_pairs(written):
    """The status leads on to the reviews, which the texts that were paid for still lack."""
    seen = status(written, SANDBOX)

    assert seen.counts["pairs_open"] and seen.counts["texts"]["waiting"] == 4
    assert seen.next == "mitl collect publish --sandbox, which asks others to review the texts"


def test_careless_texts_wait_for_a_person_and_are_asked_of_another_worker_whatever_is_paid(settings):
    """A person pays for them; the rules decide that they are not used."""
    chosen(settings, 4)
    ask(settings)
    assert work(settings, "random").counts["queued"] == 1
    with open_database(settings.db_url, read_only=True) as session:
        (row,) = answers.assignments(session, SANDBOX, (Decision.QUEUED,))
    told = show_submission(settings, row.id, SANDBOX)
    assert any("place 1" in line or "text" in line for line in told.lines)
    rule(settings, [Ruling(row.id, Decision.APPROVE)], SANDBOX)
    assert set(states(settings)) == {ItemState.OPEN}
    again = ask(settings)
    assert again.counts["items"] == 4
    work(settings)
    ask(settings)
    work(settings)
    assert states(settings).count(ItemState.ACCEPTED) >= 3
    assert show(settings, SANDBOX).counts["faulty"] == 4


@pytest.mark.parametrize("sent", [("label", "yes"), ("pick", "1")], ids=str)
def test_a_page_on_which_nothing_was_written_is_not_paid_by_itself(settings, monkeypatch, sent):
    """Whatever else a form that was posted by hand says."""

    def cheat(form, answers, assignment_id):
        kind, value = sent
        return [("assignmentId", assignment_id), *((f"p{a.place:02d}_{kind}", value) for a in answers)]

    monkeypatch.setattr(worker_session, "fill_form", cheat)
    chosen(settings, 4)
    ask(settings)

    done = work(settings)

    assert (done.counts["queued"], done.counts["approved"]) == (1, 0)
    with open_database(settings.db_url, read_only=True) as session:
        (row,) = answers.assignments(session, SANDBOX, (Decision.QUEUED,))
    assert any("nothing was written" in line for line in show_submission(settings, row.id, SANDBOX).lines)


def test_the_page_that_is_asked_again_is_the_last_one_that_asked(settings):
    """Also where nobody answered it before it was closed."""
    chosen(settings, 4)
    ask(settings)
    work(settings, "random")
    with open_database(settings.db_url) as session:
        (row,) = answers.assignments(session, SANDBOX, (Decision.QUEUED,))
    rule(settings, [Ruling(row.id, Decision.APPROVE)], SANDBOX)
    ask(settings)
    with open_database(settings.db_url) as session:
        _, last = sorted(hit.id for hit in hits.hits(session, SANDBOX))
        hits.set_state(session, [last], HitState.CLOSED)
        again = KIND.to_replace(session, SANDBOX)

    assert [one.hit.id for one in again] == [last]


def test_later_reviews_have_other_controls_of_both_kinds(written):
    """Whoever reviews again is not asked what they were asked before."""

    def controls():
        with open_database(written.db_url, read_only=True) as session:
            pages = collection.questions(session, sorted({spot.hit for spot in spots(written)}))
        return {
            (item.image, item.caption): item.matches
            for page in pages.values()
            for item in page
            if item.matches is not None
        }

    ask(written)
    first = controls()
    chosen(written, 2)
    ask(written, "write")
    work(written)
    ask(written)

    assert len(first) == 2 and len(controls()) == 4
    assert sorted(controls().values()) == [False, False, True, True]


def test_a_text_beside_an_accepted_one_waits_for_nothing(settings):
    """Two workers were asked of each item, which takes one text: nothing sends to reviews that nobody is asked for."""
    chosen(settings, 2)
    ask(settings)
    bill = []
    wish = ExtensionWish("b1", assignments=2)
    extend(settings, wish, SANDBOX, confirm=lambda environment, total: True, announce=bill.append)
    work(settings)
    ask(settings)
    work(settings)

    assert any("what comes beyond that is paid and not used" in line for line in bill)
    assert set(states(settings)) == {ItemState.ACCEPTED}
    assert status(settings, SANDBOX).counts["texts"]["waiting"] == 0
    assert [row[2] for row in show(settings, SANDBOX).tables[1].rows] == ["accepted", "not needed"] * 2


def test_the_writers_own_review_does_not_count(written):
    """It is paid and asked again, three times at most: then the text is refused, and another asked for."""
    for _ in range(3):
        assert set(states(written)) == {ItemState.WRITTEN}
        assert ask(written).counts["task"] == ["review"]
        work(written)
        with open_database(written.db_url) as session:
            writer = sql(
                "UPDATE assignment SET worker_id = (SELECT min(worker_id) FROM assignment) WHERE hit_id = "
                "(SELECT max(hit_id) FROM assignment)"
            )
            session.execute(writer)
            session.commit()
    assert set(states(written)) == {ItemState.OPEN}
    assert ask(written).counts["task"] == ["write"]


def test_nobody_is_offered_only_texts_of_their_own_to_review(written):
    """Nor a page that asks again for what was refused of them alone."""
    with open_database(written.db_url, read_only=True) as session:
        (writer,) = {spot.worker for spot in collection.spots(session, SANDBOX) if spot.worker}

    lines = bill(written, CollectTexts(SANDBOX, "review"))
    ask(written)

    assert "1 HIT is not offered" in "\n".join(lines)
    assert kept_off(written) == [{writer}]
    in_pipeline(written, "UPDATE collection_answer SET text = 'too short'", "UPDATE hit SET state = 'closed'")
    assert "1 HIT is not offered" in "\n".join(bill(written, CollectTexts(SANDBOX, "write")))


def test_what_one_person_wrote_shares_pages_of_reviews(settings):
    """So that these are offered to others alone."""
    chosen(settings, 8)
    ask(settings, per_hit=4)
    simulate(settings, SANDBOX, hits_per_worker=1)
    harvest(settings, SANDBOX)

    ask(settings, per_hit=6)

    writers = {spot.worker for spot in spots(settings) if spot.worker}
    assert len(writers) == 2
    assert sorted(map(sorted, kept_off(settings))) == sorted([writer] for writer in writers)


def test_posting_that_died_is_completed_and_nothing_is_asked_twice(settings, monkeypatch):
    """The second call to the server fails; the next run posts what is left, under the terms of the first."""
    chosen(settings, 6)
    real, calls = jobs.create_hit, []

    def dies(*arguments):
        calls.append(1)
        if len(calls) == 2:
            raise CrowdError("the line is down")
        return real(*arguments)

    monkeypatch.setattr(jobs, "create_hit", dies)
    rules = Terms(TextRules(least_words=2))
    with pytest.raises(CrowdError):
        ask(settings, per_hit=2, terms=rules)
    monkeypatch.setattr(jobs, "create_hit", real)
    assert ask(settings, "write", per_hit=2, terms=rules).status == "done"
    assert_each_hit_is_there_once(settings)
    assert sorted(spot.item for spot in spots(settings)) == sorted({spot.item for spot in spots(settings)})
    with open_database(settings.db_url, read_only=True) as session:
        assert [terms.rules.least_words for terms in collection.terms_of(session).values()] == [2]


def test_boto3_reads_pages_that_name_no_item_and_no_control(written):
    """What stands on the server tells neither ids nor which text is a control."""
    ask(written)
    with open_endpoint(written, SANDBOX) as endpoint:
        assert [hit.max_assignments for hit in endpoint.client().list_hits()] == [1, 1]
    (pages,) = zip(*server_rows(written, "SELECT xml FROM hit_question"), strict=True)
    assert not [
        page
        for page in pages
        if "control" in page.lower() or "external" in page.lower().replace("externalsubmit", "")
    ]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("side", ["images", "captions"])
def test_each_strategy_chooses_what_was_not_chosen_before(settings, strategy, side):
    """The count is kept, the order of asking goes on, and the end is said."""
    total = 8 if side == "images" else 10
    assert [chosen(settings, 5, strategy, side).counts["chosen"] for _ in range(2)] == [5, total - 5]
    assert chosen(settings, 5, strategy, side).status == "nothing_to_do"
    with open_database(settings.db_url, read_only=True) as session:
        found = collection.choices(session, SANDBOX)
    assert [choice.place for choice in found] == list(range(1, total + 1))
    assert {choice.strategy for choice in found} == {strategy}


def test_what_was_chosen_is_the_next_thing_to_ask(tmp_path, monkeypatch):
    """Where nothing was proposed, `status` names the command that asks for texts."""
    monkeypatch.chdir(tmp_path)
    ok("init", "--dataset", "scenes", "--n-images", 3)
    Path("images.txt").write_text("1\n")
    ok("collect", "choose", "--count", 1, "--strategy", "random", "--items", "images.txt")

    assert ok("status").out.endswith("next: mitl collect publish --sandbox\n")


def test_the_command_that_status_names_asks_under_the_rules_of_before(settings, monkeypatch):
    """Its words are a bare `mitl collect publish`; what is given anew holds from then on."""
    monkeypatch.chdir(settings.project)

    def terms():
        with open_database(settings.db_url, read_only=True) as session:
            latest = list(collection.terms_of(session).values())[-1]
        return latest.rules.language, latest.rules.least_words, latest.rules.most_words, latest.accepts

    chosen(settings, 2)
    ok(
        "collect",
        "publish",
        "--sandbox",
        "--language",
        "any",
        "--max-words",
        30,
        "--accept",
        "yes",
        "--limit",
        1,
    )
    ok("collect", "publish", "--sandbox", "--limit", 2)
    assert terms() == ("any", 4, 30, (Label.YES,))
    work(settings)
    assert "next: mitl collect publish --sandbox" in ok("status").out
    ok("collect", "publish", "--sandbox")
    assert terms() == ("any", 4, 30, (Label.YES,))
    chosen(settings, 1)
    ok("collect", "publish", "--sandbox", "--task", "write", "--min-words", 5, "--accept", "weak_yes")
    assert terms() == ("any", 5, 30, (Label.YES, Label.WEAK_YES))


def test_bad_input_is_one_clear_line(settings, monkeypatch):
    """Nothing is stored or posted by a call that fails."""
    monkeypatch.chdir(settings.project)
    assert "has a partner" in fails(1, "collect", "choose", "--count", 3)
    assert "was chosen" in fails(1, "collect", "publish", "--sandbox")
    assert "give 3 to 20" in fails(2, "collect", "publish", "--sandbox", "--task", "review", "--per-hit", 2)
    assert "--min-words" in fails(2, "collect", "publish", "--sandbox", "--min-words", 50)
    with pytest.raises(UsageError, match="no strategy"):
        chosen(settings, 1, "magic")
    with pytest.raises(RoundError, match="name those that are to get another one with --items"):
        choose(settings, CollectWish("core-set", 1, False, None), SANDBOX)
    assert ok("collect", "show", "--json").json["status"] == "nothing_to_do"


def test_the_page_of_texts_escapes_what_people_wrote(written, tmp_path):
    """A hostile text stands in the file as text, what is no picture not at all; another file of that name is kept."""
    in_pipeline(written, "UPDATE collection_answer SET text = '<script>alert(1)</script> on a \"hill\"'")
    show(written, SANDBOX, to=tmp_path / "texts.html")
    page = (tmp_path / "texts.html").read_text()
    assert "<script>" not in page and "&lt;script&gt;alert(1)" in page and "data:image/jpeg" in page
    (tmp_path / "texts.html").write_text("mine")
    with pytest.raises(UsageError, match="--replace"):
        show(written, SANDBOX, to=tmp_path / "texts.html")

    for picture in written.project.rglob("*.png"):
        spoil(picture, b"-----BEGIN PRIVATE KEY-----")
    show(written, SANDBOX, to=tmp_path / "bare.html")
    assert "<img" not in (tmp_path / "bare.html").read_text()
