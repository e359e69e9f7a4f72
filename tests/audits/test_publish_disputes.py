"""Pairs of a sample for machine labels whose first answer contradicts the machine are asked of two further workers."""

from __future__ import annotations

import shutil
from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from audit_kit import SANDBOX, add_page, submit
from harvest_kit import in_pipeline
from process_kit import project_settings
from world_kit import make_world, run_propose, run_publish

from mitl.campaign.kinds.pairs.planning import Campaign, make_plan
from mitl.core.arrays import pack_pairs
from mitl.crowd.context import Context, open_context
from mitl.db.store import audits, proposals
from mitl.hits.packing import pack_again, pages_again
from mitl.records import AuditPurpose, Direction, HitState, Label, Pair, PairRole
from mitl.settings import Settings
from mitl.stages.auditing.drawing import AuditRequest, draw_audit
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.reporting.status import status

YES, WEAK_YES, WEAK_NO, NO = Label
SAMPLE = 20


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Proposed and sampled; nobody has answered yet."""
    folder = tmp_path_factory.mktemp("disputes") / "project"
    folder.mkdir()
    settings = make_world(folder, n_images=12)
    run_propose(settings)
    draw_audit(settings, AuditRequest(AuditPurpose.LABELS, size=SAMPLE), SANDBOX)
    return folder


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Settings:
    """A copy to be changed."""
    return project_settings(Path(shutil.copytree(made, tmp_path / "project")))


def first_answers(context: Context, n_against: int) -> np.ndarray:
    """All sampled pairs answered once by worker A, so many against their stratum; returns the contradicted ones."""
    (audit,) = audits.audits(context.session, SANDBOX)
    drawn = audits.drawn_pairs(context.session, audit.id)
    called = np.array([stratum.expected >= 0.5 for stratum in audit.design.strata])[drawn["stratum"]]
    says = called.copy()
    says[:n_against] = ~says[:n_against]
    pairs = drawn["pair"].to_numpy()
    hit = add_page(context.session, dict.fromkeys(pairs.tolist(), PairRole.CANDIDATE))
    submit(context.session, hit, "A", [YES if yes else NO for yes in says])
    return pairs[:n_against]


def overlaps(context: Context, settings: Settings, **asked: object) -> Counter[Pair]:
    """How often each pair would be asked again."""
    plan = make_plan(context.session, settings, Campaign(SANDBOX, **asked))  # type: ignore[arg-type]
    return Counter(item.pair for page in plan.pages for item in page if item.role is PairRole.OVERLAP)


def test_contradicted_pairs_are_asked_twice_more_on_different_pages(project: Settings) -> None:
    """The others are not, and a pilot asks none."""
    with open_context(project, SANDBOX) as context:
        assert not overlaps(context, project)
        against = first_answers(context, 5)
        asked = overlaps(context, project, drawn=True)
        assert set(asked.values()) == {2}
        assert len(asked) == 5
        assert audits.disputes(context.session, SANDBOX) == asked
        assert {pair.image_id << 32 | pair.caption_id for pair in asked} == set(against.tolist())
        assert not overlaps(context, project, pilot=1)


def test_what_is_out_or_decided_is_not_asked_again(project: Settings) -> None:
    """One further answer that contradicts decides; one that agrees with the machine leaves one to be asked."""
    with open_context(project, SANDBOX) as context:
        against = first_answers(context, 4)
        out = add_page(context.session, {int(against[0]): PairRole.OVERLAP}, state=HitState.POSTED)
        assert sorted(audits.disputes(context.session, SANDBOX).values()) == [1, 2, 2, 2]
        submit(context.session, out, "B", [first_of(context, against[0])], minute=1)
        again = add_page(context.session, {int(against[1]): PairRole.OVERLAP})
        submit(context.session, again, "B", [other_of(context, against[1])], minute=2)
        wanted = audits.disputes(context.session, SANDBOX)
        assert sorted(wanted.values()) == [1, 2, 2]


def test_a_second_opinion_of_the_first_worker_is_none(project: Settings) -> None:
    """Two further workers are wanted, whatever the first one says again."""
    with open_context(project, SANDBOX) as context:
        against = first_answers(context, 1)
        hit = add_page(context.session, {int(against[0]): PairRole.OVERLAP})
        submit(context.session, hit, "A", [first_of(context, against[0])], minute=1)
        assert list(audits.disputes(context.session, SANDBOX).values()) == [2]


def test_disputes_are_the_next_step_where_nothing_else_is_open(project: Settings) -> None:
    """They come before the release; once they are decided, nothing else does."""
    with open_context(project, SANDBOX) as context:
        against = first_answers(context, 1)
        rest = set(proposals.candidate_pairs(context.session, tuple(Direction)))
        rest -= audits.drawn_for_labels(context.session, SANDBOX)
        others = dict.fromkeys(pack_pairs(rest).tolist(), PairRole.CANDIDATE)
        submit(context.session, add_page(context.session, others), "B", [NO] * len(others), minute=1)
        context.session.commit()
        assert status(project).next == "mitl publish --sandbox"
        assert harvest(project, SANDBOX).next.startswith("mitl publish --sandbox")
        again = add_page(context.session, {int(against[0]): PairRole.OVERLAP})
        submit(context.session, again, "B", [first_of(context, against[0])], minute=2)
        context.session.commit()
    assert status(project).next == harvest(project, SANDBOX).next == "mitl build-dataset --out DIR"


def first_of(context: Context, pair: int) -> Label:
    """What worker A said."""
    stands = audits.audited(context.session, 1).set_index("pair")
    return list(Label)[int(stands.loc[pair, "first"])]


def other_of(context: Context, pair: int) -> Label:
    """The other side."""
    return NO if first_of(context, pair).is_positive else YES


def test_a_sample_without_an_open_question_says_so_and_what_else_is_open(project: Settings) -> None:
    """Candidates that were not drawn are neither judged nor out."""
    with open_context(project, SANDBOX) as context:
        first_answers(context, 0)
        context.session.commit()

    result = run_publish(project, drawn=True)

    assert (result.status, result.lines) == (
        "nothing_to_do",
        ("nothing to do: every drawn pair is on an open HIT or judged",),
    )
    assert result.next == "mitl publish --sandbox, or mitl build-dataset --sandbox --out DIR"


def test_where_no_audit_has_drawn_nothing_is_said_to_be_judged(project: Settings) -> None:
    """As where the sample is of other pairs than there are now."""
    in_pipeline(project, "UPDATE audit SET pool_sha256 = 'another'")

    result = run_publish(project, drawn=True)

    why = "no audit has drawn from the pairs as they stand; `mitl audit draw` does"
    assert result.lines == (f"nothing to do: {why}",)


def test_one_direction_without_an_open_pair_speaks_for_itself_alone(project: Settings) -> None:
    """What the other one proposed is still to be asked."""
    run_publish(project, direction="i2t")

    result = run_publish(project, direction="i2t")

    assert result.lines == ("nothing to do: every i2t candidate pair is on an open HIT or judged",)
    assert run_publish(project).counts["hits_posted"] > 0


def test_pages_of_further_answers_hold_a_pair_once_and_number_on() -> None:
    """As many pages as are said."""
    wanted = {Pair(1, n): 1 + n % 2 for n in range(1, 31)}
    golds = [[Pair(2, n) for n in range(first, first + 6)] for first in (1, 10)]
    pages = pack_again(wanted, [], *golds, seed=0)
    assert len(pages) == pages_again(wanted) == 3
    assert [page.number for page in pages] == [1, 2, 3]
    asked = Counter(item.pair for page in pages for item in page.items if item.role is PairRole.OVERLAP)
    assert asked == wanted
    for page in pages:
        assert len({item.pair for item in page.items}) == len(page.items)
    assert pack_again({}, [], *golds, seed=0) == []
    assert pages_again({}) == 0


def test_what_one_person_answered_shares_pages_as_far_as_it_fills_some() -> None:
    """So that these are kept from that person, on no more pages than else."""
    met = {Pair(1, n): frozenset({"a" if n < 40 else "b" if n < 70 else "c"}) for n in range(1, 76)}
    golds = [[Pair(2, n) for n in range(first, first + 6)] for first in (1, 10)]

    pages = pack_again(dict.fromkeys(met, 1), [], *golds, seed=0, met=met)

    asked = [[item.pair for item in page.items if item.role is PairRole.OVERLAP] for page in pages]
    assert sorted(chain.from_iterable(asked)) == sorted(met)
    assert len(pages) == pages_again(dict.fromkeys(met, 1)) == 5
    of_one = [who for page in asked for who in [frozenset.intersection(*(met[pair] for pair in page))] if who]
    assert Counter(map("".join, of_one)) == {"a": 2, "b": 1, "c": 1}  # the last page holds what is left of c
