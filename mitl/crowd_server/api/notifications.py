"""What workers are told when something about them was decided: subject and text, in plain words."""

from __future__ import annotations

from typing import NamedTuple

MAX_NAME = 120
"""In characters, within a subject."""


class Letter(NamedTuple):
    """A message before it is written to somebody."""

    subject: str
    text: str


def bonus(amount: str, title: str, reason: str) -> Letter:
    """About a bonus; ``amount`` is written out, such as $0.50, ``title`` is the HIT's."""
    return _letter(f"You were granted a bonus of {amount}", f"It is for the HIT {_quoted(title)}.", reason)


def rejection(title: str, feedback: str) -> Letter:
    """About an assignment that was rejected."""
    return _letter(f"Your work on {_quoted(title)} was rejected", "The requester gave this reason:", feedback)


def reversal(title: str, feedback: str) -> Letter:
    """About a rejection that was turned into an approval."""
    return _letter(
        f"Your work on {_quoted(title)} was approved after all",
        "The earlier rejection does not count any more.",
        feedback,
    )


def granted(name: str, value: int | None) -> Letter:
    """About a qualification that a worker was given."""
    text = "The HITs that it opens to you are now in your list of HITs."
    if value is not None:
        text = f"Its value is {value}. {text}"
    return _letter(f"You were given the qualification {_quoted(name)}", text, "")


def refused(name: str, reason: str) -> Letter:
    """About a request for a qualification that was rejected."""
    return _letter(f"Your request for the qualification {_quoted(name)} was rejected", "", reason)


def revoked(name: str, reason: str) -> Letter:
    """About a qualification that was taken away."""
    return _letter(f"The qualification {_quoted(name)} was taken back", "", reason)


BLOCKED = Letter(
    "You cannot take more HITs here",
    "The requester decided not to give you more HITs. What you sent in is still reviewed, and what was "
    "approved is still owed to you. If you think that this is a mistake, your list of HITs says whom to ask.",
)
"""About a block. The requester's reason is a note for themselves, which MTurk too kept from the worker."""
UNBLOCKED = Letter("You can take HITs here again", "The requester lifted the block.")
"""About a block that was lifted."""


def _quoted(name: str) -> str:
    """A name in quotation marks, short enough to leave the rest of a subject readable."""
    return f"“{name if len(name) <= MAX_NAME else name[: MAX_NAME - 1] + '…'}”"


def _letter(subject: str, text: str, words: str) -> Letter:
    return Letter(subject, "\n\n".join(part for part in (text, words) if part))
