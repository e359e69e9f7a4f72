"""Inviting people by the operator's page, and revoking what was given out."""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import hmac
import re
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from mitl.crowd_server.operator.session import Fields, action, back, page
from mitl.crowd_server.pages.site import NoticeError, Site, origin
from mitl.crowd_server.protocol.ids import token_hash
from mitl.crowd_server.store import reports, workers
from mitl.crowd_server.store.database import Books
from mitl.crowd_server.store.workers import InvitationRow
from mitl.errors import UsageError
from mitl.records import Environment, several

BACK = ("/operator#invitations", "Back to the operator's page")
SHOWN_AGAIN = dt.timedelta(minutes=1)
"""A second press of the button, or a reply that was lost, still shows the links; after that they were shown once."""
LONGEST_LABEL = 100
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
_KEY = re.compile(r"[A-Za-z0-9_-]{20,64}")


@dataclass(frozen=True, slots=True)
class InvitationForm:
    """The form's values."""

    key: str
    """Made with the form: sending one form again as it was makes nothing new."""
    environment: Environment
    label: str
    uses: int | None
    """None: each link is for one person."""
    links: int
    lasts: dt.timedelta


def read_wish(fields: Fields) -> InvitationForm:
    """The form as sent.

    Raises:
        UsageError: a value that the form does not allow.
    """
    key = fields.get("key", "")
    if not _KEY.fullmatch(key):
        raise UsageError("The form was not whole. Go back, load the page again, and fill it in again.")
    environment = fields.get("environment", "")
    if environment not in list(Environment):
        raise UsageError(f"The environment is {environment!r}; choose live or sandbox.")
    label = fields.get("label", "")
    if len(label) > LONGEST_LABEL:
        raise UsageError(f"The label has {len(label)} characters; use at most {LONGEST_LABEL}.")
    if _CONTROL.search(label):
        raise UsageError("The label holds a control character; write it on one line of plain text.")
    kind = fields.get("kind", "")
    if kind not in ("personal", "open"):
        raise UsageError(f"The kind is {kind!r}; choose personal or open.")
    return InvitationForm(
        key=key,
        environment=Environment(environment),
        label=label,
        uses=None if kind == "personal" else _count(fields, "uses", "The number of people", 10_000),
        links=_count(fields, "links", "The number of links", 100),
        lasts=dt.timedelta(days=_count(fields, "days", "The number of days", 3650)),
    )


@action
def invite(site: Site, request: Request, fields: Fields) -> Response:
    """Make invitations and show their links, this once."""
    try:
        wish = read_wish(fields)
    except UsageError as error:
        return site.notice(400, "Nobody was invited", str(error), BACK)
    now = site.clock()
    tokens = [_token(site, wish, place) for place in range(wish.links)]
    with site.database.write(wish.environment) as connection:
        earlier = workers.find_invitation(connection, token_hash(tokens[0]))
        if earlier is None:
            books = Books(connection, wish.environment, now)
            for token in tokens:
                workers.add_invitation(
                    books,
                    token,
                    label=wish.label,
                    lasts=wish.lasts,
                    personal=wish.uses is None,
                    max_uses=wish.uses or 1,
                )
    if earlier is not None and now - earlier.created_at > SHOWN_AGAIN:
        return site.notice(
            409,
            "That form was sent before",
            f"It made invitation {earlier.id}, whose link was shown then and is not kept. If it was lost, revoke the "
            "invitation and make another.",
            BACK,
        )
    links = [f"{origin(request)}/w/join/{token}" for token in tokens]
    return site.page("operator_links.html.j2", links=links, wish=wish, until=now + wish.lasts)


@page
def ask_to_revoke(site: Site, request: Request) -> Response:
    """What revoking an invitation would do, with the button that does it."""
    invitation = _invitation(site, request)
    if invitation.revoked_at is not None:
        return back("unchanged")
    people = several(invitation.uses, "person", "people")
    return site.page(
        "operator_confirm.html.j2",
        title=f"Revoke invitation {invitation.id}?",
        lines=[
            f"Its link would be closed, and the {people} who came by it would be shut out at once, with what they "
            "hold unfinished."
            if invitation.uses
            else "Nobody has come by it yet. Its link would be closed.",
            "What people are owed stays owed. This cannot be undone.",
        ],
        target=f"/operator/invitations/{invitation.id}/revoke",
        button="Revoke the invitation",
    )


@action
def revoke(site: Site, request: Request, fields: Fields) -> Response:
    """Close an invitation and shut out who came by it."""
    invitation = _invitation(site, request)
    with site.database.write(invitation.environment) as connection:
        changed = workers.revoke_invitation(
            Books(connection, invitation.environment, site.clock()), invitation.id
        )
    return back("revoked" if changed else "unchanged")


def _token(site: Site, wish: InvitationForm, place: int) -> str:
    """A link's token follows from the form, so that a form sent twice leads to the same links; the key is not kept.

    Whoever goes back and changes something sends another form.
    """
    digest = hmac.new(site.secret.encode(), f"invitation\0{wish}\0{place}".encode(), hashlib.sha256).digest()
    return base64.urlsafe_b64encode(digest[:30]).decode()


def _count(fields: Fields, name: str, noun: str, most: int) -> int:
    text = fields.get(name, "")
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= most and len(text) < 9):
        raise UsageError(f"{noun} is {text[:20]!r}; give a whole number from 1 to {most:,}.")
    return int(text)


def _invitation(site: Site, request: Request) -> InvitationRow:
    with site.database.read() as connection:
        invitation = reports.find_invitation(connection, request.path_params["number"])
    if invitation is None:
        raise NoticeError(404, "Nothing here", "There is no invitation of this number.", BACK)
    return invitation


ROUTES = (
    ("/operator/invitations", invite, "POST"),
    ("/operator/invitations/{number:row}/revoke", ask_to_revoke),
    ("/operator/invitations/{number:row}/revoke", revoke, "POST"),
)
