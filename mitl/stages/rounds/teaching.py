"""The first step of a round: its annotators learn from the answers so far, where that is wanted."""

from __future__ import annotations

from mitl.crowd.context import open_context
from mitl.db.store import rounds as round_store
from mitl.errors import TrainingError
from mitl.records.rounds import RoundStep
from mitl.stages.rounds.wish import Done, Turn
from mitl.stages.training.train import TrainRequest, train


def train_wished(turn: Turn) -> Done:
    """Train each annotator on originals and answers; one that cannot learn yet, or at all, proposes as it is.

    What this round has trained before it was interrupted stands, though answers may have come in since; what was half
    done then begins anew.
    """
    if not turn.wish.train:
        return Done("no training is wanted", {"trained": {}, "left_out": {}})
    with open_context(turn.settings, turn.environment, read_only=True) as context:
        trained = {
            row.base: row.name for row in round_store.trained(context.session) if row.round_id == turn.row.id
        }
    left_out = {}
    for base in turn.wish.annotators or turn.settings.annotators:
        if base in trained:
            continue
        request = TrainRequest((base,), turn.wish.recipe(turn.settings.seed), round=turn.row, restart=True)
        try:
            made = train(turn.settings, request, turn.environment, progress=turn.talk.progress)
        except TrainingError as error:
            left_out[base] = str(error)
            turn.talk.say(f"{base} is left as it is: {error}")
        else:
            trained[base] = request.named(base)
            for warning in made.warnings:
                turn.talk.say(warning)
    line = f"{', '.join(trained.values())} learnt" if trained else "nobody could learn yet"
    untrained = f"; {', '.join(left_out)} as before" if left_out else ""
    return Done(line + untrained, {"trained": trained, "left_out": left_out})


def proposers(turn: Turn) -> list[str]:
    """The annotators of a round, those that learnt in it under their new names."""
    with open_context(turn.settings, turn.environment, read_only=True) as context:
        step = round_store.steps(context.session, turn.row.id).get(RoundStep.TRAIN)
    learnt = {} if step is None else step.result.get("trained", {})
    return [learnt.get(name, name) for name in turn.wish.annotators or turn.settings.annotators]
