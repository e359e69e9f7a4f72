"""What a round is asked for, as its row in the database keeps it; and whom it talks to on the way."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from mitl.campaign.bill import reward_again
from mitl.campaign.kinds.pairs.planning import Campaign, PairsPlan
from mitl.core.pricing import Bill, fee_cents, format_dollars
from mitl.crowd.context import Context
from mitl.crowd.populations import parse_population
from mitl.db.store import hits as hit_store
from mitl.db.store import open_work
from mitl.db.store.hits import StoredHit
from mitl.db.store.rounds import RoundRow
from mitl.errors import RoundError, UsageError
from mitl.progress import Progress, no_progress
from mitl.records import Environment
from mitl.settings import Settings
from mitl.stages.auditing.hit_price import price_of

if TYPE_CHECKING:
    from annotators.training.recipe import Recipe

STRATEGY = "expected"


@dataclass(frozen=True, slots=True)
class RoundRequest:
    """What a round is to do, for how much."""

    budget_cents: int
    """The most that all its HITs may cost, fees and what audits want included."""
    strategy: str = STRATEGY
    annotators: tuple[str, ...] = ()
    """Who proposes; empty for those of the settings."""
    ranks: int | None = None
    """A choice is among each ranking's first so many items; None for all that the rankings hold."""
    per_item: int | None = None
    """Pairs of one image, and of one caption, that a choice holds at most; None for any number."""
    template: str = "pairs-plain"
    assignments: int = 1
    reward_cents: int | None = None
    label_error: float | None = None
    """Share of the machine labels that may be wrong; None for no machine labels."""
    label_sample: int | None = None
    """Pairs of the sample that bounds them, drawn by the first round that wants it."""
    train: bool = False
    """Whether the annotators learn from the answers so far before they propose."""
    loss: str | None = None
    """By which they learn; None, as for the next two, for the recipe's own."""
    labels: str | None = None
    """`annotators.training.recipe.LabelKind`."""
    steps: int | None = None
    turn: int = 1
    """Of a run of several rounds, which one it is."""
    turns: int = 1

    def __post_init__(self) -> None:
        if (self.label_error is None) != (self.label_sample is None):
            raise UsageError(
                "machine labels take an error that is tolerated and a sample that bounds it: give --label-error and "
                "--label-sample, or neither"
            )
        if not self.train and (self.loss, self.labels, self.steps) != (None, None, None):
            raise UsageError("--loss, --labels and --steps say how annotators learn; add --train")

    @property
    def config(self) -> dict[str, Any]:
        """As JSON keeps it; the strategy stands in a column of its own."""
        return {name: value for name, value in asdict(self).items() if name != "strategy"}

    @classmethod
    def of(cls, row: RoundRow) -> RoundRequest:
        """What a round was asked for."""
        names = {field.name for field in fields(cls)}
        config = {name: value for name, value in row.config.items() if name in names}
        return cls(**{**config, "strategy": row.strategy, "annotators": tuple(config.get("annotators", ()))})

    def recipe(self, seed: int) -> Recipe:
        """How its annotators learn; the head alone for two thirds of the steps, as by default.

        Raises:
            TrainingError: a number that cannot be meant.
        """
        from annotators.training.recipe import LabelKind, Recipe

        options: dict[str, Any] = {}
        if self.loss is not None:
            options["loss"] = self.loss
        if self.labels is not None:
            options["labels"] = LabelKind(self.labels)
        if self.steps is not None:
            options |= {"steps": self.steps, "head_steps": self.steps * 2 // 3}
        return Recipe(seed=seed, **options)

    def same_as(self, other: RoundRequest) -> bool:
        """Whether both ask for the same, as one turn of a run and the next do."""
        return self == replace(other, turn=self.turn)

    def campaign(self, environment: Environment, max_cost_cents: int | None = None) -> Campaign:
        """How its choices are published."""
        return Campaign(
            environment,
            template=self.template,
            assignments=self.assignments,
            reward_cents=self.reward_cents,
            max_cost_cents=max_cost_cents,
            chosen=True,
        )

    def prices(self, context: Context) -> RoundPrices:
        """What its HITs cost."""
        price = price_of(context, self.campaign(context.environment))
        session, environment = context.session, context.environment
        batches = hit_store.batches(session, environment)
        rewards = {row.id: reward_again(row, self.reward_cents) for row in batches}
        new = price.bill(1)
        prices = RoundPrices(new, rewards, price.charges_fee, dearest=new)
        lost = open_work.hits_to_replace(session, environment)
        again = (prices.again(page.hit, page.missing) for page in lost)
        return replace(prices, dearest=max([new, *again], key=lambda bill: bill.total_cents))

    def hits(self, prices: RoundPrices) -> int:
        """How many HITs the budget buys, were all of them as dear as the dearest.

        Raises:
            RoundError: not one.
        """
        bill = prices.dearest
        if not prices.new.total_cents:
            raise RoundError(
                "a HIT costs nothing, so no budget says how many a round asks; give --reward 0.01 or more, or ask "
                "without a round: `mitl publish --limit`"
            )
        if self.budget_cents < bill.total_cents:
            asked = "" if bill.assignments == 1 else f" with {bill.assignments} workers"
            raise RoundError(
                f"a budget of {format_dollars(self.budget_cents)} is below one HIT, which costs "
                f"{format_dollars(bill.total_cents)}{asked}; give --budget "
                f"{format_dollars(bill.total_cents).lstrip('$')} or more"
            )
        return self.budget_cents // bill.total_cents


@dataclass(frozen=True, slots=True)
class RoundPrices:
    """What the HITs of a round cost, each at its own reward."""

    new: Bill
    """Of one that asks nothing again."""
    rewards: Mapping[int, int]
    """Row of a batch → cents that a HIT pays that asks one of its HITs again."""
    charges_fee: bool
    dearest: Bill
    """Of a new one, or of the dearest of those that it may have to ask again, whichever is more."""

    def again(self, hit: StoredHit, workers: int) -> Bill:
        """Of one that asks a HIT again."""
        reward = self.rewards[hit.batch_id]
        fee = fee_cents(reward, workers) if self.charges_fee else 0
        return replace(self.new, assignments=workers, reward_cents=reward, fee_cents=fee)

    def of(self, plan: PairsPlan) -> list[int]:
        """Cents of each HIT of a plan that completes no earlier one, those that ask again first."""
        again = [self.again(page.replaces, page.assignments).total_cents for page in plan.again]
        return again + [self.new.total_cents] * len(plan.fresh)


@dataclass(frozen=True, slots=True)
class AnswerWait:
    """How a run waits for answers."""

    wait_s: float | None = None
    """Seconds between two looks; None looks once and leaves the rest to a later run."""
    population: str | None = None
    """Scripted workers who answer in the sandbox, as `mitl simulate` calls them; None leaves it to people."""
    pause: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        if self.population is not None:
            parse_population(self.population)  # a wrong name is told before anything is posted


@dataclass(frozen=True, slots=True)
class Talk:
    """Whom the steps ask and tell."""

    confirm: Callable[[int], bool]
    """Is shown a bill's total in cents."""
    say: Callable[[str], None] = lambda line: None
    progress: Progress = no_progress
    crowd: AnswerWait = AnswerWait()


@dataclass(frozen=True, slots=True)
class Turn:
    """A round that is under way."""

    settings: Settings
    environment: Environment
    row: RoundRow
    wish: RoundRequest
    talk: Talk


@dataclass(frozen=True, slots=True)
class Done:
    """What a step came to."""

    line: str
    result: Mapping[str, Any]
    """For the database and ``--json``."""


@dataclass(frozen=True, slots=True)
class Waits:
    """Why a step cannot end yet."""

    line: str
    next: str
    did: bool = False
    """Whether it did something all the same."""
