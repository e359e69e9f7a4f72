"""What the operator does by the page: only by an own form, with a session, and once."""

from __future__ import annotations

import re

from crowd_kit import TYPE, post_hit
from crowd_operator_kit import (
    Operator,
    add_panel,
    links_in,
    operator_of,
)
from sqlalchemy import select

from mitl.crowd_server import admin
from mitl.crowd_server.operator import groups as operator_actions
from mitl.crowd_server.store.models import HitType
from mitl.records import Environment

pytest_plugins = ("crowd_fixtures",)

SANDBOX, LIVE = Environment.SANDBOX, Environment.LIVE


def paused_at(crowd, hit_type):
    """Since when a group is paused."""
    with crowd.engine.connect() as connection:
        return connection.execute(select(HitType.paused_at).where(HitType.mturk_id == hit_type)).scalar_one()


ACTIONS = [
    "/operator/groups/{hit_type}/pause",
    "/operator/groups/{hit_type}/resume",
    "/operator/groups/{hit_type}/expire",
    "/operator/invitations",
    "/operator/invitations/{invitation}/revoke",
]


def test_actions_need_a_session_and_an_own_page(crowd, client, operator, hit_type):
    """A form of another site does nothing with a session, nor does an own form without one, nor a link."""
    [link] = admin.invite(crowd.engine, SANDBOX, clock=crowd.clock)
    form = {"key": "k" * 32, "environment": "sandbox", "kind": "personal"}
    form |= {"uses": "1", "links": "1", "days": "1", "label": ""}
    stranger = Operator(crowd, crowd.browser())
    before = operator.state()

    for action in ACTIONS:
        path = action.format(hit_type=hit_type, invitation=link.id)
        for origin in ("https://evil.example", "null"):
            assert operator.post(path, form, Origin=origin).status_code == 403
        bare = operator.browser.post(crowd.url + path, data=form, headers={"Sec-Fetch-Site": "cross-site"})
        assert (bare.status_code, stranger.post(path, form).status_code) == (403, 403)
        assert operator.get(path).status_code in (200, 405)

    assert operator.state() == before
    assert paused_at(crowd, hit_type) is None
    assert [row.revoked_at for row in admin.invitations(crowd.engine)] == [None]


def test_pausing_twice_is_once(crowd, operator, hit_type):
    """The first time stands; resuming lifts it, and again does nothing. Meanwhile nobody gets a HIT."""
    first = crowd.clock()
    holder = crowd.worker()
    held = holder.accept(hit_type)
    assert held is not None

    assert "Paused." in operator.post(f"/operator/groups/{hit_type}/pause").text
    crowd.clock.advance(minutes=1)
    assert "so already" in operator.post(f"/operator/groups/{hit_type}/pause").text
    assert paused_at(crowd, hit_type) == first
    assert crowd.worker().accept(hit_type) is None
    assert held.submit(p01_label="yes").status_code == 200

    assert "Resumed." in operator.post(f"/operator/groups/{hit_type}/resume").text
    assert "so already" in operator.post(f"/operator/groups/{hit_type}/resume").text
    assert paused_at(crowd, hit_type) is None
    assert crowd.worker().accept(hit_type) is not None


def test_expiring_a_group_frees_its_money_once(crowd, client, operator, hit_type, monkeypatch):
    """In portions; who holds a HIT may still finish it, and is paid for it."""
    monkeypatch.setattr(operator_actions, "EXPIRED_AT_ONCE", 2)
    other = post_hit(client, client.create_hit_type(**TYPE | {"Title": "other"})["HITTypeId"])["HITId"]
    task = crowd.worker().accept(hit_type)
    assert admin.balance(crowd.engine, SANDBOX).held == 400

    question = operator.get(f"/operator/groups/{hit_type}/expire").text
    assert "3 HITs are open" in question and "Up to $2.00" in question and "1 workers" not in question
    assert admin.balance(crowd.engine, SANDBOX).held == 400
    assert "Expired." in operator.post(f"/operator/groups/{hit_type}/expire").text
    assert admin.balance(crowd.engine, SANDBOX).held == 200
    assert "so already" in operator.post(f"/operator/groups/{hit_type}/expire").text
    assert "so already" in operator.get(f"/operator/groups/{hit_type}/expire").text

    assert task.submit(p01_label="yes").status_code == 200
    states = {hit["HITId"]: hit["HITStatus"] for hit in client.list_hits(MaxResults=100)["HITs"]}
    assert states.pop(other) == "Assignable"
    assert set(states.values()) == {"Reviewable"}
    assert admin.balance(crowd.engine, SANDBOX).held == 200
    page = operator.get().text
    assert "DOES NOT BALANCE" not in page and '"state expired"' in page


def test_an_unknown_group_is_a_clear_page(operator):
    """Nothing here, and a way back."""
    for action in ("pause", "resume", "expire"):
        for name in ("3NONE", "%00", "..%2F.."):
            assert operator.post(f"/operator/groups/{name}/{action}").status_code == 404


def test_links_of_invitations_are_shown_once(crowd, operator):
    """Sent twice within a minute, the form shows the same links; later it says that it was sent; none is kept."""
    key = operator.form_key()

    first = operator.invite(key=key, links="2", label="for the pilot")
    again = operator.invite(key=key, links="2", label="for the pilot")
    crowd.clock.advance(minutes=2)
    late = operator.invite(key=key, links="2", label="for the pilot")

    links = links_in(first)
    assert len(set(links)) == 2 and links_in(again) == links
    assert late.status_code == 409 and not links_in(late)
    rows = admin.invitations(crowd.engine)
    assert [(row.personal, row.label, row.uses) for row in rows] == [(True, "for the pilot", 0)] * 2
    ids = [re.search(r"worker (A[A-Z0-9]{13})", crowd.browser().get(link).text) for link in links]
    assert ids[0][1] != ids[1][1]
    assert not links_in(operator.get())


def test_a_form_that_was_changed_makes_links_of_its_own(crowd, operator):
    """Back from the links, with another number or label: what is shown leads somewhere, and to another person."""
    key = operator.form_key()

    first = links_in(operator.invite(key=key, links="1", label="Ada"))
    more = links_in(operator.invite(key=key, links="3", label="Ben"))

    assert len({*first, *more}) == 4
    assert {crowd.browser().get(link).status_code for link in more} == {200}
    assert sorted(row.label for row in admin.invitations(crowd.engine)) == ["Ada", "Ben", "Ben", "Ben"]


def test_an_open_invitation_has_its_uses_and_its_end(crowd, operator):
    """As many people as it says, until it expires."""
    [link] = links_in(operator.invite(kind="open", uses="2", days="1"))

    codes = [crowd.browser().get(link).status_code for _ in range(3)]
    crowd.clock.advance(days=1)

    assert codes == [200, 200, 410]
    assert '"state expired"' in Operator.get(operator_of(crowd)).text
    assert crowd.browser().get(link).status_code == 410


def test_a_wrong_invitation_form_makes_nothing(crowd, operator):
    """One line says which value was wrong."""
    wrong = [
        ({"environment": "moon"}, "environment"),
        ({"environment": ""}, "environment"),
        ({"kind": "both"}, "kind"),
        ({"kind": "open", "uses": "0"}, "people"),
        ({"kind": "open", "uses": "10001"}, "people"),
        ({"links": "101"}, "links"),
        ({"links": "²"}, "links"),
        ({"days": "-1"}, "days"),
        ({"days": "9" * 400}, "days"),
        ({"label": "x" * 101}, "label"),
        ({"label": "a\0b"}, "label"),
        ({"key": "short"}, "form"),
        ({"key": ""}, "form"),
    ]
    key = operator.form_key()

    for change, word in wrong:
        reply = operator.invite(**{"key": key} | change)
        assert reply.status_code == 400, change
        assert word in reply.text

    assert admin.invitations(crowd.engine) == []


def test_a_form_too_long_is_refused(operator):
    """Before it is read whole."""
    assert operator.post("/operator/invitations", {"label": "x" * 20_000}).status_code == 413
    many = {f"f{n}": "1" for n in range(40)}
    assert operator.post("/operator/invitations", many).status_code == 413


def test_revoking_twice_is_once(crowd, operator):
    """Who came by the link is shut out; the page asks before, and says when it was so already."""
    [link] = links_in(operator.invite())
    worker = crowd.browser()
    worker.get(link)
    [row] = admin.invitations(crowd.engine)
    path = f"/operator/invitations/{row.id}/revoke"

    assert "1 person" in operator.get(path).text
    assert worker.get(crowd.url + "/w").status_code == 200
    assert "Revoked." in operator.post(path).text
    assert "so already" in operator.post(path).text
    assert "so already" in operator.get(path).text

    assert worker.get(crowd.url + "/w").status_code == 403


def test_a_panels_own_invitation_cannot_be_revoked_by_chance(crowd, operator):
    """It is not listed, and its number, like one that is not a number of ours, leads nowhere."""
    add_panel(crowd, "study-1")
    [own] = admin.invitations(crowd.engine)

    for number in (own.id, 4711, 2**40, 10**30):
        assert operator.post(f"/operator/invitations/{number}/revoke").status_code == 404
    assert admin.invitations(crowd.engine) == [own]
    assert "Revoke…" not in operator.get().text
