"""`mitl audit`: planned before a cent is spent, drawn once, asked until it is complete, looked at without harm."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cli_kit import fails, ok
from harvest_kit import in_pipeline
from world_kit import ANNOTATORS, SANDBOX, make_world, run_propose, run_publish, work_until_done

from mitl.audits.certificate import Look
from mitl.audits.planning import RECHECK_SHARE
from mitl.audits.pool import Pool, RemainderOf
from mitl.core.arrays import contains, pack_ids, pack_pairs
from mitl.core.formats import lower_bound
from mitl.crowd.context import open_context
from mitl.db.session import open_database
from mitl.db.store import audits, open_work, proposals
from mitl.db.store.answers import assignments
from mitl.errors import AuditError, UsageError
from mitl.metrics.partial_labels import PartialLabels
from mitl.metrics.rank_groups import Influence, wanted_pairs
from mitl.records import AuditPurpose, Direction
from mitl.settings import Settings, load
from mitl.stages.auditing.comparing import Compared
from mitl.stages.auditing.drawing import AuditRequest, draw_audit, plan
from mitl.stages.auditing.pools import merged_now, pool_of, strata_for_labels, strata_for_recall
from mitl.stages.auditing.showing import AuditState, _next, show
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.releasing.build_dataset import build_dataset
from mitl.stages.reporting.methods import facts
from mitl.stages.reporting.report import collect
from mitl.stages.reporting.status import status
from mitl.stages.reviewing.review import settle


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> Path:
    """A project whose candidates are all answered."""
    settings = make_world(tmp_path_factory.mktemp("judged") / "p", n_images=20)
    run_propose(settings, image_queries=4, caption_queries=6)
    work_until_done(settings)
    return settings.project


@pytest.fixture
def settings(judged, tmp_path) -> Settings:
    """A copy of it."""
    shutil.copytree(judged, tmp_path / "p")
    return replace(load(tmp_path / "p", environ={}), endpoint=None)


def test_the_strata_are_the_pool(settings):
    """Each pair once: positives as a release would hold them, refused and ranked pairs, and what nothing lists."""
    with open_context(settings, SANDBOX, read_only=True) as context:
        pool = pool_of(context)
        strata = strata_for_recall(context, pool)
        merged = merged_now(context)
        met = [
            each.met_by(pool, open_work.own_answers(context.session, SANDBOX))
            for each in (strata, strata.simple(pool))
        ]
    kept = merged.where("kept")
    *listed, remainder = strata.members
    pairs = np.concatenate(listed)

    assert isinstance(remainder, RemainderOf)
    assert len(pairs) == len(np.unique(pairs)) == len(strata.listed())
    assert len(pairs) + remainder.size == pool.size == sum(guess.size for guess in strata.guesses)
    assert set(strata.members[0].tolist()) == set(kept[pool.holds(kept)].tolist())
    assert strata.guesses[0].held == strata.guesses[0].size
    assert [guess.name for guess in strata.guesses][-1] == "remainder"
    with open_database(settings.db_url, read_only=True) as session:
        proposed = pack_pairs(proposals.candidate_pairs(session, tuple(Direction)))
    assert contains(np.sort(pairs), proposed).all()
    for each in met:  # all candidates are answered once, by somebody who will not count
        assert sum(guess.size * guess.met for guess in each.guesses) == pytest.approx(len(proposed))
    assert {guess.met for guess in met[0].guesses if guess.name.startswith("refused")} == {1}
    assert met[0].guesses[-1].met == 0


def test_positives_of_today_are_those_of_a_release_of_today(settings, tmp_path):
    """Merged by the same rules from the same answers."""
    import pyarrow.parquet as pq

    build_dataset(settings, tmp_path / "release", SANDBOX)
    with open_context(settings, SANDBOX, read_only=True) as context:
        kept = merged_now(context).where("kept")

    assert pq.read_metadata(tmp_path / "release" / "positives.parquet").num_rows == len(kept)


def test_a_plan_says_what_a_bound_costs_and_changes_nothing(settings):
    """With its strata, a simple sample beside it, and in words where no sample reaches the bound for the money."""
    before = (settings.project / "mitl.db").read_bytes()
    found = plan(settings, AuditRequest(recall=0.3), SANDBOX)

    assert found.counts["affordable"]
    assert found.counts["reached"] >= 0.3
    with open_database(settings.db_url, read_only=True) as session:
        by_worker = Counter(row.worker_id for row in assignments(session, SANDBOX))
    pages = by_worker.total()
    squares = sum((count / pages) ** 2 for count in by_worker.values())
    assert 0 < found.counts["same_worker"] == pytest.approx((pages * squares - 1) / (pages - 1))
    assert found.counts["total_cents"] == found.counts["hits"] * 100
    with open_context(settings, SANDBOX, read_only=True) as context:
        assert found.counts["lost_share"] == open_work.lost_pages(context.session, SANDBOX).share
    assert found.counts["total_cents"] >= found.counts["cents_once"]
    assert sum(row["pairs"] for row in found.counts["strata"]) == found.counts["pool"]
    assert sum(row["drawn"] for row in found.counts["strata"]) == found.counts["pairs"]
    assert "simple random sample" in " ".join(found.lines)

    poor = plan(settings, AuditRequest(recall=0.3, max_cost_cents=500), SANDBOX)
    assert not poor.counts["affordable"]
    assert "no bound of 0.300 is affordable" in poor.lines[0]
    assert not poor.next
    assert (settings.project / "mitl.db").read_bytes() == before


def test_the_same_draw_again_is_nothing_to_do(settings):
    """Another one replaces it as long as nothing of it is asked; then it is refused as drawn after looking."""
    assert draw_audit(settings, AuditRequest(size=40), SANDBOX).status == "done"
    assert draw_audit(settings, AuditRequest(size=40), SANDBOX).status == "nothing_to_do"
    larger = draw_audit(settings, AuditRequest(size=50), SANDBOX)
    assert larger.counts["audit"] == 2
    assert re.fullmatch(r"expected to take 50 pairs, \d+ answers, \d+ HITs, \$\d+\.\d\d", larger.lines[1])
    assert "gives way" in larger.lines[2]

    run_publish(settings, limit=20)

    assert draw_audit(settings, AuditRequest(size=50), SANDBOX).status == "nothing_to_do"
    for wish in (
        AuditRequest(size=60),
        AuditRequest(size=50, confidence=0.9),
        AuditRequest(size=50, simple=True),
    ):
        with pytest.raises(
            AuditError, match=r"drawn after looking.* complete it with `mitl publish --sandbox --drawn`"
        ):
            draw_audit(settings, wish, SANDBOX)
    with pytest.raises(AuditError, match="drawn after looking"):
        draw_audit(replace(settings, seed=9), AuditRequest(size=50), SANDBOX)


def test_a_seed_draws_the_same_pairs_anywhere(settings, judged, tmp_path):
    """A copy of the project draws the same sample; another seed another one."""
    shutil.copytree(judged, tmp_path / "q")
    other = replace(load(tmp_path / "q", environ={}), endpoint=None)

    def drawn(project: Settings, seed: int = 0) -> list[int]:
        draw_audit(replace(project, seed=seed), AuditRequest(size=40), SANDBOX)
        with open_database(project.db_url, read_only=True) as session:
            return audits.drawn_pairs(session, audits.audits(session, SANDBOX)[-1].id)["pair"].tolist()

    first = drawn(settings)
    assert first == drawn(other)
    assert first != drawn(other, seed=1)


def test_a_simple_sample_is_of_the_whole_pool(settings):
    """One stratum, whose positives are known and rechecked."""
    found = draw_audit(settings, AuditRequest(size=60, simple=True), SANDBOX)

    (stratum,) = found.counts["strata"]
    assert stratum["drawn"] == 60
    assert stratum["pairs"] == found.counts["pool"]
    with open_database(settings.db_url, read_only=True) as session:
        (audit,) = audits.audits(session, SANDBOX)
        drawn = audits.drawn_pairs(session, audit.id)
    assert audit.design.simple
    assert [part.recheck_share for part in audit.design.strata] == [RECHECK_SHARE]
    assert drawn["known"].any()
    assert drawn.loc[drawn["known"], "recheck"].all()


def test_a_sample_can_be_drawn_where_models_differ(settings):
    """The strata are the pool, each pair can be drawn, those that tell the models apart likelier; it is frozen too."""
    models = AuditRequest(size=200, compare=ANNOTATORS)
    planned = plan(settings, AuditRequest(compare=ANNOTATORS), SANDBOX)
    assert len(planned.counts["comparisons"]) == len(Direction)
    assert all(one["pairs"] is None or one["pairs"] > 0 for one in planned.counts["comparisons"])

    found = draw_audit(settings, models, SANDBOX).counts

    positives, most, *less, remainder = found["strata"]
    assert (positives["stratum"], most["stratum"]) == ("positives", "models differ most")
    assert remainder["stratum"] == "remainder"
    assert positives["drawn"] >= 20
    assert sum(row["pairs"] for row in found["strata"]) == found["pool"]
    assert sum(row["drawn"] for row in found["strata"]) == 200
    assert all(most["inclusion"] >= row["inclusion"] for row in less)
    assert min(row["inclusion"] for row in found["strata"] if row["pairs"]) > 0
    assert draw_audit(settings, models, SANDBOX).status == "nothing_to_do"
    run_publish(settings, limit=20)
    with pytest.raises(AuditError, match="drawn after looking"):
        draw_audit(settings, AuditRequest(size=200), SANDBOX)


def compared(effects, *, apart=()):
    """Three image queries over four captions, nobody asked yet: the pool, and what its labels change in two models."""
    queries, items = np.repeat([1, 2, 3], 4), np.tile([1, 2, 3, 4], 3)
    known = np.full(12, 0.5), np.zeros(12, np.bool_)
    labels = PartialLabels.of(np.array([1, 2, 3]), 4, (queries, items), *known)
    pairs = pack_ids(queries, items)
    gallery = np.arange(1, 4), np.empty(0, np.int64), np.arange(1, 4), np.arange(1, 5)
    effects = Influence(labels, np.array([0.5, 0.4]), effects)
    return Pool(*gallery, pairs[list(apart)]), Compared(("a", "b"), {Direction.I2T: (effects, pairs)}), pairs


def test_models_that_differ_nowhere_draw_no_sample():
    """Their strata held the positives alone: whatever else is in the pool could not have been drawn."""
    pool, models, pairs = compared(np.ones((2, 12)))
    with pytest.raises(UsageError, match="a, b rank the pairs that are left alike"):
        models.strata(pool, pairs[:2])


def test_a_reference_that_models_rank_is_asked_of_nobody():
    """It is no pair of the pool; the answers that tell models apart were counted with the next pair's stratum."""
    effects = np.random.default_rng(0).normal(size=(2, 12))
    pool, models, pairs = compared(effects, apart=[11])
    strata = models.strata(pool, pairs[:2])
    assert sum(guess.size for guess in strata.guesses) == pool.size == 11
    effects[:, 11] = 0  # as if neither model ranked it
    _, without, _ = compared(effects, apart=[11])
    assert models.wanted(strata) == without.wanted(without.strata(pool, pairs[:2]))


def test_pairs_that_tell_models_apart_follow_from_the_strata_that_they_are_drawn_from():
    """A pair of a stratum of N, of which a share w of the sample is drawn, stands for N / w of a pair of the sample."""
    effects = np.random.default_rng(1).normal(scale=0.014, size=(2, 12))
    pool, models, pairs = compared(effects)
    strata = models.strata(pool, pairs[:2])
    assert len(strata.guesses) == 5 and strata.guesses[-1].size == 0

    listed, drawn = (
        strata.listed(),
        [0.1, 0.18, 0.18, 0.18],
    )  # an empty remainder leaves its part to the others
    doubt = 0.25 * (effects[0] - effects[1]) ** 2
    variance = sum(
        strata.guesses[place].size * sum(drawn) / share * doubt[(listed["stratum"] == place).to_numpy()].sum()
        for place, share in enumerate(drawn)
    )
    (_, _, _, difference, needed), *_ = models.wanted(strata)
    assert difference == pytest.approx(0.1)
    assert needed is not None and needed > 3 and needed == wanted_pairs(1, variance**0.5, 0.1, pool.size)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--size", "9", "--compare", ANNOTATORS[0]], "two models or more"),
        (["--compare", ANNOTATORS[0], "--compare", ANNOTATORS[1]], "add --size"),
        (["--size", "9", "--compare", "a", "--compare", "b", "--simple"], "leave --recall"),
        (["--size", "9", "--compare", ANNOTATORS[0], "--compare", "b=no.npz"], "there is no file"),
    ],
)
def test_models_that_cannot_be_compared_draw_nothing(settings, monkeypatch, words, message):
    """One line says what is wrong."""
    monkeypatch.chdir(settings.project)
    line = fails(1 if "no file" in message else 2, "audit", "draw", "--sandbox", *words)

    assert message in line
    with open_database(settings.db_url, read_only=True) as session:
        assert audits.audits(session, SANDBOX) == []


def test_a_line_says_what_the_answers_prove_or_why_they_prove_nothing():
    """Of an audit of three pairs, one of them answered by all three."""
    audit = SimpleNamespace(design=SimpleNamespace(sample=3, confidence=0.95))
    state = AuditState(audit, answers=4, complete=1, wanted=5, out=2, worker_share=0.25, bound=None)
    said = "1 of 3 pairs answered, 5 answers wanted (2 of them out)"

    assert state.line == f"{said}; no positive to bound yet"
    assert replace(state, bound=Look(2, 0.5, 0.25, 0.1, 0.1)).line == (
        f"{said}; so far recall is at least 0.500 and precision at least 0.250, with 0.95 confidence at any time"
    )
    assert replace(state, worker_share=0.75).line == (
        f"{said}; they prove nothing, since one worker gave 75.0 % of the answers"
    )


def test_a_bound_that_nothing_reaches_draws_nothing(settings):
    """One line says why."""
    with pytest.raises(AuditError, match="nothing was drawn"):
        draw_audit(settings, AuditRequest(recall=0.999), SANDBOX)
    with open_database(settings.db_url, read_only=True) as session:
        assert audits.audits(session, SANDBOX) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": 3}, "each of"),
        ({"size": 10**6}, "pairs can be drawn"),
    ],
)
def test_sizes_that_cannot_be_drawn_are_refused(settings, given, message):
    """Fewer than there are strata, more than there are pairs."""
    with pytest.raises(AuditError, match=message):
        draw_audit(settings, AuditRequest(**given), SANDBOX)


def test_wishes_that_contradict_each_other_are_refused():
    """A size and a bound; a sample for labels without a size."""
    with pytest.raises(UsageError, match="give one or the other"):
        AuditRequest(size=5, recall=0.9)
    with pytest.raises(UsageError, match="add --size"):
        AuditRequest(AuditPurpose.LABELS)


def test_without_a_proposal_there_is_nothing_to_audit(tmp_path):
    """One line each, and what comes next."""
    settings = make_world(tmp_path / "p", n_images=12)

    assert "no query was asked yet" in fails(1, "audit", "plan", "--project", settings.project)
    assert "no audit was drawn on sandbox" in fails(1, "audit", "show", "--project", settings.project)


def test_another_pool_voids_an_audit(settings):
    """In words; its open questions are no longer asked, and another one may be drawn."""
    draw_audit(settings, AuditRequest(size=40), SANDBOX)
    run_propose(settings, image_queries=5, caption_queries=6)

    found = show(settings, SANDBOX)

    assert "voids it" in found.lines[0]
    assert found.tables[0].rows[0][-1] == "void: another pool"
    assert not run_publish(settings).counts["audit_questions"]
    assert status(settings, SANDBOX).counts["audit"] is None
    assert draw_audit(settings, AuditRequest(size=40), SANDBOX).counts["audit"] == 2


def test_a_worker_who_gives_most_answers_is_warned_of(settings):
    """Before the audit is complete, while others can still be asked."""
    draw_audit(settings, AuditRequest(size=40), SANDBOX)
    run_publish(settings)
    simulate(settings, SANDBOX, population="careful", hits_per_worker=100)
    harvest(settings, SANDBOX)

    shown = show(settings, SANDBOX)
    (warning,) = shown.warnings

    assert "gave 100.0 % of the answers so far" in warning
    assert "they prove nothing, since one worker gave 100.0 % of the answers" in shown.lines[0]
    assert "recall" not in shown.counts
    assert status(settings, SANDBOX).counts["audit"]["recall"] is None
    assert "set max_hits_per_worker" in warning
    complete = SimpleNamespace(wanted=0, out=0)
    promised = [_next(complete, SANDBOX, "", certifies=certifies) for certifies in (True, False)]
    assert ["which certifies" in each for each in promised] == [True, False]


def test_answers_that_wait_for_a_person_are_reviewed_first(settings):
    """`mitl harvest` would find nothing new."""
    draw_audit(settings, AuditRequest(size=40), SANDBOX)
    run_publish(settings)
    assert show(settings, SANDBOX).next == "mitl harvest"
    simulate(settings, SANDBOX, population="random", hits_per_worker=100)
    harvest(settings, SANDBOX)

    assert show(settings, SANDBOX).next == "mitl review"


def test_a_sample_for_labels_is_of_open_candidates(tmp_path):
    """Even over their strata; where none is open, it says so."""
    settings = make_world(tmp_path / "p", n_images=16)
    run_propose(settings, image_queries=4, caption_queries=6)
    with open_context(settings, SANDBOX, read_only=True) as context:
        n_open = sum(guess.size for guess in strata_for_labels(context).guesses)

    found = draw_audit(settings, AuditRequest(AuditPurpose.LABELS, size=20), SANDBOX)

    assert found.counts["pool"] == n_open
    assert found.counts["pairs"] == 20
    with open_database(settings.db_url, read_only=True) as session:
        assert len(audits.drawn_for_labels(session, SANDBOX)) == 20
        (audit,) = audits.audits(session, SANDBOX)
    assert {part.recheck_share for part in audit.design.strata} == {0}
    assert draw_audit(settings, AuditRequest(AuditPurpose.LABELS, size=20), SANDBOX).status == "nothing_to_do"
    run_publish(settings, drawn=True)
    with pytest.raises(AuditError, match=r"is being answered .* drawn after looking"):
        draw_audit(settings, AuditRequest(AuditPurpose.LABELS, size=21), SANDBOX)
    work_until_done(settings)
    with pytest.raises(
        AuditError,
        match=r"was answered .* drawn after looking.* `mitl label --sandbox` bounds labels by this one",
    ):
        draw_audit(settings, AuditRequest(AuditPurpose.LABELS, size=21), SANDBOX)


def test_an_audit_is_asked_until_it_is_complete_and_then_certifies(settings, tmp_path):
    """From the draw over mixed pages and workers of all kinds to the certificate; each look is at what is answered."""
    for size in (50, 60):
        ok("audit", "draw", "--size", size, "--project", settings.project)
    looks = [ok("audit", "show", "--json", "--project", settings.project).json["counts"]]
    (begun,) = [one for one in collect(settings).sections if one.section.id == "audit"]
    assert f"the audit lacks {looks[0]['wanted']} answers on 60 of its 60 pairs" in begun.lines[0]
    assert begun.lines[1].startswith("audit 2: 0 of 60 pairs answered") and not begun.highlight
    (warned,) = plan(settings, AuditRequest(recall=0.3), SANDBOX).warnings
    assert warned.startswith("audit 2 of this pool is drawn and nothing of it is out or answered")
    for _ in range(12):
        run_publish(settings)
        if len(looks) < 3:  # nothing is answered, then a part
            (warned,) = plan(settings, AuditRequest(recall=0.3), SANDBOX).warnings
            assert "so no other sample of it can be drawn" in warned
            again = draw_audit(settings, AuditRequest(recall=0.3), SANDBOX)
            assert (
                "nothing to do: audit 2 is under way, whatever --recall and --max-cost say now"
                in again.lines[0]
            )
        simulate(settings, SANDBOX, population="mixed", hits_per_worker=2)
        harvest(settings, SANDBOX)
        settle(settings, SANDBOX)
        looks.append(ok("audit", "show", "--json", "--project", settings.project).json["counts"])
        if not looks[-1]["wanted"]:
            break

    complete = [one["complete"] for one in looks]
    assert complete[0] == 0
    assert complete[-1] == 60
    assert looks[-1]["recall"] >= 0
    now = status(settings, SANDBOX)
    assert now.counts["audit"]["complete"] == 60
    (line,) = [row[1] for row in now.tables[0].rows if row[0] == "audit"]
    assert "60 of 60 pairs answered" in line
    built = build_dataset(settings, tmp_path / "release", SANDBOX)
    assert "certificate" in built.counts, built.warnings
    assert built.counts["certificate"]["answers"] == looks[-1]["answers"]
    assert [row[4] for row in show(settings, SANDBOX).tables[0].rows] == [0, looks[-1]["answers"]]
    with open_context(settings, SANDBOX, read_only=True) as context:
        assert facts(context)[0].audit_answers == looks[-1]["answers"]
    ok("verify", tmp_path / "release")
    planned = plan(settings, AuditRequest(recall=0.3), SANDBOX)
    assert "audit 2 of this pool was answered since" in planned.warnings[0]
    assert planned.next == "mitl audit show"
    with pytest.raises(
        AuditError, match=r"was answered since .* `mitl build-dataset --sandbox --out DIR` certifies"
    ):
        draw_audit(settings, AuditRequest(size=61), SANDBOX)
    (shown,) = [one for one in collect(settings).sections if one.section.id == "audit"]
    assert set(built.lines[1:]) <= set(shown.lines)
    assert (
        f"recall of at least {lower_bound(built.counts['certificate']['measured']['recall'])} "
        in shown.highlight
    )


def test_a_probability_that_is_none_is_noticed(settings):
    """By the check of the database, which passes what was drawn."""
    draw_audit(settings, AuditRequest(size=40), SANDBOX)
    ok("db", "verify", "--project", settings.project)
    in_pipeline(settings, "UPDATE audit_pair SET inclusion = 0 WHERE place = 1")

    said = fails(1, "db", "verify", "--project", settings.project)

    assert "audited pairs have an inclusion probability that is none (1 rows)" in said


def test_a_sample_that_was_changed_is_noticed(settings):
    """A pair moved to a stratum that its design lacks leaves another one short."""
    draw_audit(settings, AuditRequest(size=40), SANDBOX)
    in_pipeline(settings, "UPDATE audit_pair SET stratum = 40 WHERE place = 2")

    assert "audits hold other pairs of their strata than their designs say (2 rows)" in fails(
        1, "db", "verify", "--project", settings.project
    )
