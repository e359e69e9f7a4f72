"""What an exclusion list names is asked of nobody, as no release would use the answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest
from audit_kit import add_page, submit
from cli_kit import mitl, ok
from world_kit import SANDBOX, copied_once, make_world, run_propose, run_publish

from mitl.campaign.kinds.pairs.planning import Campaign, make_plan
from mitl.campaign.publish import publish
from mitl.campaign.standing import false_standings, keep_standing
from mitl.core.arrays import pack_pairs, unpack_pairs
from mitl.crowd.context import Context, open_context
from mitl.db.store import audits, open_work, proposals
from mitl.db.store import items as item_store
from mitl.db.store import rounds as round_store
from mitl.records import AuditPurpose, Direction, Exclusion, ExclusionKind, Label, Pair, PairRole
from mitl.records.rounds import RoundStep
from mitl.settings import Settings
from mitl.stages.analysing.snapshot import read_project
from mitl.stages.auditing.drawing import AuditRequest, draw_audit
from mitl.stages.auditing.pools import strata_for_labels
from mitl.stages.planning.options import candidates
from mitl.stages.reporting.status import status
from mitl.stages.rounds import walking
from mitl.stages.rounds.choosing import ChoiceOptions, choice_of
from mitl.stages.rounds.wish import Turn


def _propose(folder: Path) -> None:
    run_propose(make_world(folder, n_images=12))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A project with proposals."""
    return copied_once("excluded", _propose, tmp_path / "p")


def exclude(context: Context, pairs: Collection[Pair]) -> set[Pair]:
    """Lists the first's caption, the second's image and the third pair; returns the candidates that they name."""
    dataset = item_store.dataset(context.session).id
    images, captions = item_store.names(context.session, dataset)
    caption, image, single = pairs
    named = (
        (ExclusionKind.CAPTION, None, captions[caption.caption_id]),
        (ExclusionKind.IMAGE, images[image.image_id], None),
        (ExclusionKind.WRONG, images[single.image_id], captions[single.caption_id]),
    )
    item_store.add_exclusions(context.session, dataset, [Exclusion(*entry, "no", "us") for entry in named])
    context.session.commit()
    return {
        pair
        for pair in proposed(context)
        if pair.caption_id == caption.caption_id or pair.image_id == image.image_id or pair == single
    }


def proposed(context: Context) -> list[Pair]:
    return proposals.candidate_pairs(context.session, list(Direction))


def asked(context: Context, settings: Settings, **words: object) -> set[Pair]:
    """The candidates of the next plan."""
    plan = make_plan(context.session, settings, Campaign(SANDBOX, **words))  # type: ignore[arg-type]
    return {item.pair for page in plan.pages for item in page if item.role is PairRole.CANDIDATE}


def test_publish_leaves_them_out_and_says_so(settings: Settings) -> None:
    """Status, plans and rounds reckon as it does, and what `status` has kept is counted again."""
    with open_context(settings, SANDBOX) as context:
        keep_standing(context.session, SANDBOX, settings.gold_rule)
        pairs = proposed(context)
        gone = exclude(context, pairs[::20][:3])
        rest = set(pairs) - gone
        assert asked(context, settings) == rest
        counts = open_work.pair_counts(context.session, SANDBOX)
        assert (counts.open, counts.excluded) == (len(rest), len(gone))
        keep_standing(context.session, SANDBOX, settings.gold_rule)
        assert not false_standings(context.session)
        pool = choice_of(context, 18, 0, ChoiceOptions(), needs_likeness=False).pool
        assert not set(pool.loc[pool["open"], "pair"]) & set(pack_pairs(gone))
        assert sum(guess.size for guess in strata_for_labels(context).guesses) == len(rest)
    (line,) = [row for table in status(settings).tables for row in table.rows if row[0] == "pairs"]
    assert line[1].endswith(f"{len(rest):,} open, {len(gone):,} left out by exclusion lists")
    why = f"{len(gone):,} pairs that exclusion lists name are not asked: no release would use the answers"

    said: list[str] = []
    publish(settings, Campaign(SANDBOX), confirm=lambda total: True, announce=said.append)
    again = run_publish(settings)

    assert f"  {why}" in said
    assert again.lines == (f"nothing to do: every proposed pair is on an open HIT or judged; {why}",)


def test_a_page_is_asked_again_without_them(settings: Settings) -> None:
    """One that asks nothing else is not asked again."""
    with open_context(settings, SANDBOX) as context:
        pairs = proposed(context)
        kept, *listed = pairs[::20][:4]
        mixed = add_page(
            context.session, dict.fromkeys(pack_pairs([kept, *listed]).tolist(), PairRole.CANDIDATE)
        )
        add_page(context.session, dict.fromkeys(pack_pairs(listed).tolist(), PairRole.CANDIDATE))
        context.session.commit()
        assert kept not in exclude(context, listed)

        (again,) = open_work.hits_to_replace(context.session, SANDBOX)

        assert (again.hit.id, again.pairs) == (mixed, (kept,))


def test_a_sample_for_machine_labels_is_asked_whole(settings: Settings) -> None:
    """It was drawn before the list, and without some of its pairs it would bound nothing."""
    draw_audit(settings, AuditRequest(AuditPurpose.LABELS, size=20), SANDBOX)
    with open_context(settings, SANDBOX) as context:
        drawn = audits.drawn_for_labels(context.session, SANDBOX)
        gone = exclude(context, sorted(drawn)[:3])

        assert drawn & gone
        assert asked(context, settings, drawn=True) == drawn
        assert asked(context, settings) == set(proposed(context)) - (gone - drawn)
        counts = open_work.pair_counts(context.session, SANDBOX)
        assert counts.excluded == len(gone - drawn)


def test_a_plan_does_not_price_them(settings: Settings) -> None:
    """Their matches would be in no release, so no answer on them is worth its price."""
    with open_context(settings, SANDBOX) as context:
        pairs = proposed(context)
        page = add_page(context.session, dict.fromkeys(pack_pairs(pairs[:18]).tolist(), PairRole.CANDIDATE))
        submit(context.session, page, "w1", [Label.YES, Label.NO] * 9)
        gone = exclude(context, pairs[::20][:3])

        pool = candidates(read_project(context.session, settings, SANDBOX))

        assert set(unpack_pairs(pool.pairs)) == set(pairs) - gone


def test_a_round_ends_without_what_was_excluded_after_it_was_chosen(settings: Settings, monkeypatch) -> None:
    """Neither posting nor the wait for answers asks for these pairs."""
    monkeypatch.chdir(settings.project)
    real = walking._ended

    def dies_chosen(turn: Turn, step: RoundStep, result: Mapping[str, object]) -> None:
        real(turn, step, result)
        if step is RoundStep.CHOOSE:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(walking, "_ended", dies_chosen)
        assert mitl("round", "next", "--sandbox", "--budget", "2.20").status == 130
    with open_context(settings, SANDBOX) as context:
        (row,) = round_store.rounds(context.session, SANDBOX)
        chosen = unpack_pairs(round_store.chosen_pairs(context.session, row.id)["pair"].to_numpy())
        gone = set(chosen) & exclude(context, chosen[:3])

    counts = ok("round", "run", "--sandbox", "--budget", "2.20", "--workers", "careful", "--json").json[
        "counts"
    ]

    assert (counts["closed"], counts["waits_for"]) == ([row.number], None)
    with open_context(settings, SANDBOX) as context:
        assert not gone & open_work.usable_workers(context.session, SANDBOX).keys()
