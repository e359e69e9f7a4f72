"""A crowd server with real HIT pages and images, for browsers to go to; one server serves a module."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crowd_kit import TYPE, Crowd, post_hit

from mitl.crowd.answers import parse_answers
from mitl.crowd_server import admin
from mitl.hits.rendering import PagePair, question_xml, render_page
from mitl.hits.templates import load_template
from mitl.records import Environment, Parsed, PlaceAnswer
from mitl.records.questions import RATIONALE

PLACES = 20
MISSING = 7
"""The place whose image does not load, where a HIT has one."""


@dataclass
class Town:
    """A crowd server with its requester."""

    crowd: Crowd
    client: Any

    def post(
        self, template: str, hits: int = 1, *, places: int = PLACES, missing: bool = False, words: int = 0
    ) -> list[str]:
        """HITs of a type of their own, with descriptions of so many characters; return their ids."""
        pairs = [
            PagePair(
                place,
                f"/i/{'gone' if missing and place == MISSING else f'{place:032x}'}.png",
                ("A longer description. " * 12)[:words]
                or f"A description of image {place}, long enough to take two lines on a small screen.",
            )
            for place in range(1, places + 1)
        ]
        wording = load_template(template)
        kind = TYPE | {"Title": wording.title, "Description": wording.description}
        hit_type = self.client.create_hit_type(**kind)["HITTypeId"]
        question = question_xml(render_page(wording, pairs, contact="lab@example.org"))
        return [post_hit(self.client, hit_type, Question=question)["HITId"] for _ in range(hits)]

    def link(self) -> str:
        """A new worker's invitation."""
        [invitation] = admin.invite(self.crowd.engine, Environment.SANDBOX, clock=self.crowd.clock)
        return self.crowd.url + invitation.path

    def answers(self, hit: str, *, rationale: bool, places: int = PLACES) -> Parsed[PlaceAnswer]:
        """What the requester gets for a HIT that was done once; then the HIT is gone from the list."""
        [own] = self.client.list_assignments_for_hit(HITId=hit)["Assignments"]
        return parse_answers(
            own["Answer"], places=range(1, places + 1), questions=RATIONALE if rationale else ()
        )

    def close(self, hits: list[str]) -> None:
        """Let no other test's worker find these."""
        for hit in hits:
            self.client.update_expiration_for_hit(HITId=hit, ExpireAt=0)
