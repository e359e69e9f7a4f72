"""The steps of a round; each can be repeated by itself, and finds what an earlier try has done."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import cast

import numpy as np
import pandas as pd

from mitl.audits.machine_labels import Promise
from mitl.campaign.kinds.pairs.planning import asked_of
from mitl.core.arrays import contains, pack_pairs, unpack_pairs
from mitl.core.pricing import format_dollars
from mitl.core.whole_files import whole_file
from mitl.crowd.context import Context, open_context
from mitl.db.store import audits as audit_store
from mitl.db.store import items as item_store
from mitl.db.store import open_work
from mitl.db.store import proposals as proposal_store
from mitl.db.store import rounds as round_store
from mitl.errors import AuditError, MetricError, RoundError, TrainingError, UnfusedError
from mitl.hits.packing import CANDIDATES_PER_HIT, hits_needed
from mitl.records import AuditPurpose, Direction, several
from mitl.records.rounds import DOUBTS, RoundStep
from mitl.selection.coreset import Spread
from mitl.stages.auditing.drawing import AuditRequest, draw_audit
from mitl.stages.auditing.showing import audit_state
from mitl.stages.fusing.fuse import fuse
from mitl.stages.fusing.gathering import annotator_names
from mitl.stages.fusing.scores import fused_scores
from mitl.stages.labelling.label import label
from mitl.stages.proposing.propose import ProposeRequest, QueryChoice, propose
from mitl.stages.rounds.asking import harvest_chosen, publish_chosen
from mitl.stages.rounds.choosing import ChoiceOptions, choose
from mitl.stages.rounds.wish import Done, RoundRequest, Turn, Waits
from mitl.stages.training.train import TrainCounts, TrainRequest, train

_MOST_LOST = 0.5
"""Of a budget, at most so much is kept to ask again, however bad the work was."""
_DIVIDED = 1 / 3
"""Of a budget for doubts, what is kept for a third worker; some four in ten second ones differ from the first."""
UNFUSED = "exhaustive"
"""What chooses where nothing is fused yet and the strategy goes by probabilities: the paper's own top five."""


def _train(turn: Turn) -> Done:
    """Train each annotator on originals and answers; one that cannot learn yet, or not well, proposes as it is.

    What this round has trained before it was interrupted stands, though answers may have come in since; what was half
    done then begins anew.
    """
    if not turn.wish.train:
        return Done("no training is wanted", {"trained": {}, "left_out": {}})
    with open_context(turn.settings, turn.environment, read_only=True) as context:
        before = {
            row.base: row.recipe["outcome"]
            for row in round_store.trained(context.session)
            if row.round_id == turn.row.id
        }
    trained, left_out = {}, {}
    for base in turn.wish.annotators or turn.settings.annotators:
        request = TrainRequest((base,), turn.wish.recipe(turn.settings.seed), round=turn.row, restart=True)
        name = request.named(base)
        try:
            if base not in before:
                result = train(turn.settings, request, turn.environment, progress=turn.talk.progress)
                before[base] = cast("TrainCounts", result.counts)["trained"][name]
        except TrainingError as error:
            left_out[base] = str(error)
        else:
            if before[base]["best_step"]:
                trained[base] = name
            else:
                left_out[base] = "it ranks held-out queries no better at any step"
    for why in dict.fromkeys(left_out.values()):
        names = [base for base, reason in left_out.items() if reason == why]
        turn.talk.say(f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} left unchanged: {why}")
    line = f"{', '.join(trained.values())} learnt" if trained else "nobody could learn yet"
    untrained = f"; {', '.join(left_out)} as before" if left_out else ""
    return Done(line + untrained, {"trained": trained, "left_out": left_out})


def _propose(turn: Turn) -> Done:
    """With the queries of earlier runs, else as the settings have it; who has ranked before does not rank again.

    Annotators that learnt in this round propose under their new names.
    """
    settings = turn.settings
    with open_context(settings, turn.environment, read_only=True) as context:
        runs = proposal_store.runs(context.session)
        ranked = annotator_names(context, runs)
        step = round_store.steps(context.session, turn.row.id).get(RoundStep.TRAIN)
        learnt = {} if step is None else step.result.get("trained", {})
        names = [learnt.get(name, name) for name in turn.wish.annotators or settings.annotators]
        names = names or ranked  # mitl.toml names nobody: those that `mitl propose` was told
        fresh = [name for name in names if name not in ranked]
        if runs and not fresh:
            return Done(f"{', '.join(names)} ranked before", {"annotators": names})
        queries = _queries(context) if runs else {}
    counts = {Direction.I2T: settings.image_queries, Direction.T2I: settings.caption_queries}
    images, captions = (queries.get(way) or QueryChoice(counts[way]) for way in Direction)
    result = propose(
        settings,
        ProposeRequest(
            annotators=fresh, top_k=settings.top_k, depth=settings.depth, images=images, captions=captions
        ),
        progress=turn.talk.progress,
    )
    return Done(result.lines[-1], {"annotators": names, "run": result.counts["run"]})


def _queries(context: Context) -> dict[Direction, QueryChoice]:
    """Those of all runs so far, as lists in files."""
    session, folder = context.session, context.settings.runs / "rounds"
    sides = dict(zip(Direction, item_store.names(session, item_store.dataset(session).id), strict=True))
    choices = dict.fromkeys(Direction, QueryChoice(0))
    for way, ids in proposal_store.queries(session).items():
        if ids:
            path = folder / f"{way.value}.json"
            with whole_file(path) as sink:
                # A line of text would end an id such as "photo #3.jpg" at its " #".
                sink.write(json.dumps([sides[way][id_] for id_ in ids]).encode())
            choices[way] = QueryChoice(file=path)
    return choices


def _fuse(turn: Turn) -> Done:
    try:
        result = fuse(turn.settings, turn.environment, progress=turn.talk.progress)
    except MetricError as error:
        return Done(f"left out: {error}", {"auc": None})
    auc = result.counts["auc"]
    assert isinstance(auc, float)
    return Done(f"AUC {auc:.3f} against people's answers so far", {"auc": auc})


def asked_first(context: Context, wish: RoundRequest) -> Callable[[pd.DataFrame | None], tuple[int, int]]:
    """Of choices: HITs that only ask again, and questions that fill HITs together: of audits, samples and the choices.

    None chooses nothing; the database is read once.
    """
    asked = asked_of(context.session, wish.campaign(context.environment), again=wish.strategy == DOUBTS)
    sample = sample_wanted(context, wish)

    def of(chosen: pd.DataFrame | None) -> tuple[int, int]:
        again, questions = asked(() if chosen is None else unpack_pairs(chosen["pair"].to_numpy()))
        return again, questions + sample

    return of


def sample_wanted(context: Context, wish: RoundRequest) -> int:
    """Pairs to draw for machine labels now: none before there are probabilities.

    Without them all pairs are one stratum that is guessed to be matches, and every refusal would be disputed.
    """
    if wish.label_sample is None or fused_scores(context) is None:
        return 0
    drawn = audit_store.current(context.session, context.environment, AuditPurpose.LABELS)
    return 0 if drawn else wish.label_sample


@dataclass(frozen=True, slots=True)
class FirstPosting:
    """What a round may spend before anything of it is asked again, in cents."""

    cents: int
    new_cents: int
    """What a HIT costs that asks nothing again."""
    again_cents: int
    """What one costs at most that does."""

    @classmethod
    def of(cls, context: Context, wish: RoundRequest) -> FirstPosting:
        """The budget but for the share of the work so far that could not be used.

        One HIT at least is kept where machine labels are wanted, lest the sample that is to bound them stay half asked;
        of doubts a third at least, for the third worker where two differ.

        Raises:
            RoundError: the budget is below one HIT.
        """
        prices = wish.prices(context)
        most, dearest = wish.hits(prices), prices.dearest.total_cents
        rounded = ceil if wish.strategy == DOUBTS else int
        kept = max(rounded(_kept(context, wish) * most), int(wish.label_sample is not None))
        at_first = max(wish.budget_cents - kept * dearest, dearest)
        return cls(at_first, prices.new.total_cents, dearest)

    def costs(self, again: int, questions: int) -> int:
        """Cents, at most, of HITs that only ask again, and of new ones for so many questions."""
        return again * self.again_cents + hits_needed(questions) * self.new_cents


def _kept(context: Context, wish: RoundRequest) -> float:
    lost = min(open_work.lost_pages(context.session, context.environment).so_far, _MOST_LOST)
    return max(lost, _DIVIDED) if wish.strategy == DOUBTS else lost


def room(context: Context, wish: RoundRequest, again: int, questions: int) -> int:
    """Pairs that the budget leaves to a choice, beside what is asked first; a HIT's at least.

    Raises:
        RoundError: the budget is below one HIT, or what is asked first takes all of it.
    """
    first = FirstPosting.of(context, wish)
    new_hits = (first.cents - again * first.again_cents) // first.new_cents
    left = new_hits * CANDIDATES_PER_HIT - questions
    if left < CANDIDATES_PER_HIT:
        least = again - (-questions // CANDIDATES_PER_HIT) + 1
        needed = max(ceil(least / (1 - _kept(context, wish))), least + int(wish.label_sample is not None))
        price = format_dollars(needed * first.again_cents)
        what = [f"want {several(questions, 'question')}"] if questions else []
        what += [f"ask {several(again, 'HIT')} again"] if again else []
        raise RoundError(
            f"audits {' and '.join(what)} first, which leaves no HIT of a budget of "
            f"{format_dollars(wish.budget_cents)}; give --budget {price.lstrip('$')} or more"
        )
    return left


def chosen_now(context: Context, wish: RoundRequest, number: int, budget: int) -> pd.DataFrame:
    """``CHOSEN``: what the round of this number would ask of the project as it is, within its money.

    A choice that an earlier HIT left unanswered costs that whole HIT once more. Where no other such HIT fits, the next
    choices that stand on none fill the HITs of the round.

    Args:
        budget: pairs, as `room` has it.

    Raises:
        RoundError: nothing is open.
        StoreError: nothing has been proposed yet.
        UsageError: there is no such strategy.
    """
    seed = context.settings.seed + number
    first = FirstPosting.of(context, wish)
    options = ChoiceOptions(
        spread=None if wish.per_item is None else Spread(wish.per_item),
        deepest=wish.ranks,
        hit_cents=first.again_cents,
    )
    unanswered = open_work.hits_to_replace(context.session, context.environment)
    lost = pack_pairs({pair for hit in unanswered for pair in hit.pairs})
    try:
        chosen = choose(context, wish.strategy, budget + len(lost), seed, options)
    except UnfusedError:
        chosen = choose(context, UNFUSED, budget + len(lost), seed, options)
    asked = asked_first(context, wish)

    def fitting(choices: pd.DataFrame) -> pd.DataFrame:
        def are_too_many(n: int) -> bool:
            return first.costs(*asked(choices.head(n))) > first.cents

        if not are_too_many(len(choices)):
            return choices
        return choices.head(bisect_left(range(1, len(choices)), True, key=are_too_many))

    filled = fitting(chosen)
    rest = chosen.iloc[len(filled) :]
    others = rest[~contains(lost, rest["pair"].to_numpy())]
    if len(others):
        filled = fitting(pd.concat([filled, others]))
    return filled.assign(place=np.arange(1, len(filled) + 1))


def _choose(turn: Turn) -> Done:
    settings, wish = turn.settings, turn.wish
    with open_context(settings, turn.environment) as context:
        chosen = round_store.chosen_pairs(context.session, turn.row.id)
        sample = sample_wanted(context, wish)
    if not len(chosen):
        try:
            if sample:
                draw_audit(settings, AuditRequest(AuditPurpose.LABELS, sample), turn.environment)
            with open_context(settings, turn.environment) as context:
                budget = room(context, wish, *asked_first(context, wish)(None))
                chosen = chosen_now(context, wish, turn.row.number, budget)
                context.session.rollback()
                round_store.choose_pairs(context.session, turn.row.id, chosen)
                context.session.commit()
        except (AuditError, RoundError) as error:
            raise _nothing_chosen(turn, str(error)) from error
    if not len(chosen):
        raise _nothing_chosen(turn, f"{wish.strategy} chose nothing; try another strategy")
    used = str(chosen["strategy"].iloc[0])
    line = f"{several(len(chosen), 'pair')} by {used}{instead_of(wish.strategy, used)}"
    return Done(line, {"chosen": len(chosen), "strategy": used})


def instead_of(wished: str, used: str) -> str:
    """Why another strategy chose than was wished for; empty where none did."""
    return "" if used == wished else f", since {wished} has no probabilities to go by yet"


def _nothing_chosen(turn: Turn, why: str) -> RoundError:
    return RoundError(f"{why}; take round {turn.row.number} back first: `mitl round rollback`")


def _label(turn: Turn) -> Done:
    """After fusing once more, since the round's own answers speak by now."""
    error = turn.wish.label_error
    if error is None:
        return Done("no machine labels are wanted", {"labelled": 0})
    with open_context(turn.settings, turn.environment, read_only=True) as context:
        if audit_store.current(context.session, context.environment, AuditPurpose.LABELS) is None:
            why = "no sample bounds machine labels yet; the first round that has probabilities to choose by draws it"
            return Done(why, {"labelled": 0, "why": why})
    try:
        fuse(turn.settings, turn.environment, progress=turn.talk.progress)
        result = label(turn.settings, turn.environment, Promise(error), progress=turn.talk.progress)
    except (AuditError, MetricError) as found:
        return Done(f"nothing was labelled: {found}", {"labelled": 0, "why": str(found)})
    labelled, left = result.counts["labelled"], result.counts["left"]
    return Done(f"{labelled:,} labelled, {left:,} left to people", {"labelled": labelled, "left": left})


def _certify(turn: Turn) -> Done:
    with open_context(turn.settings, turn.environment, read_only=True) as context:
        state = audit_state(context)
    if state is None:
        return Done("no audit bounds recall; see `mitl audit plan`", {"recall": None, "precision": None})
    bound = state.bound
    told = {"recall": bound and bound.recall, "precision": bound and bound.precision}
    return Done(state.line, told)


STEPS: Mapping[RoundStep, Callable[[Turn], Done | Waits]] = {
    RoundStep.TRAIN: _train,
    RoundStep.PROPOSE: _propose,
    RoundStep.FUSE: _fuse,
    RoundStep.CHOOSE: _choose,
    RoundStep.PUBLISH: publish_chosen,
    RoundStep.HARVEST: harvest_chosen,
    RoundStep.LABEL: _label,
    RoundStep.CERTIFY: _certify,
}
"""In their order."""
