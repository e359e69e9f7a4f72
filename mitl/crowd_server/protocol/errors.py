"""What the requester API answers when it refuses: AWS's error shapes."""

from __future__ import annotations

import datetime as dt
import json
from typing import TypeVar

T = TypeVar("T")


class TurkError(Exception):
    """A refusal, with the code that clients branch on.

    ``type`` is the modelled exception (RequestError, ServiceFault) or, without a code, one of AWS's common ones.
    """

    def __init__(
        self, code: str | None, message: str, *, type: str = "RequestError", status: int = 400
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.type = type
        self.status = status

    def body(self, now: dt.datetime) -> bytes:
        """The JSON body; messages end with the epoch in milliseconds, as Amazon's did."""
        if self.code is None:
            return json.dumps({"__type": self.type, "message": self.message}).encode()
        stamp = int(now.timestamp() * 1000)
        return json.dumps(
            {"__type": self.type, "Message": f"{self.message} ({stamp})", "TurkErrorCode": self.code}
        ).encode()


def turk(code: str, message: str) -> TurkError:
    """A RequestError under Mechanical Turk's own prefix."""
    return TurkError(f"AWS.MechanicalTurk.{code}", message)


def aws(type: str, message: str) -> TurkError:
    """One of AWS's common errors, which carry no TurkErrorCode."""
    return TurkError(None, message, type=type)


def missing(name: str) -> TurkError:
    """A required parameter is absent or empty."""
    return TurkError("AWS.MissingParameters", f"The request is missing the parameter {name}.")


def out_of_range(name: str, value: object, allowed: str) -> TurkError:
    """A value lies outside its documented bounds."""
    return TurkError("AWS.ParameterOutOfRange", f"{name} is {value}, but it must be {allowed}.")


def invalid(name: str, message: str) -> TurkError:
    """A value is of the wrong form."""
    return turk("InvalidParameterValue", f"The value of {name} is invalid: {message}.")


def present(row: T | None, noun: str, code: str, mturk_id: str) -> T:
    """What was found under this id; TurkError of this code where the caller's environment has nothing of the id."""
    if row is None:
        raise turk(code, f"{noun} {mturk_id} does not exist.")
    return row


def wrong_state(noun: str, state: str, allowed: str, why: str = "") -> TurkError:
    """The state of something does not allow the operation: MTurk's words, and ``why`` it is in this state."""
    return turk(
        f"Invalid{noun}State",
        f"This {noun} is currently in the state '{state}'. "
        f"This operation can be called with a status of: {allowed}.{why and ' '}{why}",
    )


def unsupported(what: str, instead: str) -> TurkError:
    """The one answer to everything of MTurk's that this server leaves out."""
    return turk("OperationNotSupported", f"This server does not offer {what}; {instead}.")
