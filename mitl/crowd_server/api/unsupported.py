"""What MTurk offered and this server does not: all of it answers one honest error that says what to do instead."""

from __future__ import annotations

from typing import Any

from mitl.crowd_server.api.params import Params
from mitl.crowd_server.api.registry import Call, Handler, operation
from mitl.crowd_server.protocol.errors import unsupported

_POLL = "poll ListHITs, whose counts tell what was submitted, or ListReviewableHITs"
_LAYOUT = "send the whole page as Question (HTMLQuestion)"
_REVIEW = (
    "list the assignments, compare their answers yourself, and call ApproveAssignment or RejectAssignment"
)

OPERATIONS = {
    "UpdateNotificationSettings": ("notifications", _POLL),
    "SendTestEventNotification": ("notifications", _POLL),
    "GetFileUploadURL": (
        "file uploads by workers",
        "let the page upload elsewhere and answer with the address",
    ),
    "ListReviewPolicyResultsForHIT": ("review policies", _REVIEW),
}
PARAMETERS = {
    "HITLayoutId": ("HIT layouts", _LAYOUT),
    "HITLayoutParameters": ("HIT layouts", _LAYOUT),
    "AssignmentReviewPolicy": ("review policies", _REVIEW),
    "HITReviewPolicy": ("review policies", _REVIEW),
}
"""Of CreateHIT and CreateHITWithHITType."""


def refuse_parameters(params: Params) -> None:
    """Raise the error for a HIT that asks for a layout or a review policy."""
    for name, (what, instead) in PARAMETERS.items():
        if params.has(name):
            raise unsupported(what, instead)


def _refusing(what: str, instead: str) -> Handler:
    def refuse(call: Call) -> dict[str, Any]:
        raise unsupported(what, instead)

    refuse.__doc__ = f"This server has no {what}; {instead}."
    return refuse


for _name, (_what, _instead) in OPERATIONS.items():
    operation(_name, writes=False, offered=False)(_refusing(_what, _instead))
