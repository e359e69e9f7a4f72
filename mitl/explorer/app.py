"""The explorer's pages, and running them: they read, ask for no login, and answer to this machine's name alone."""

from __future__ import annotations

import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, TypedDict
from urllib.parse import urlencode

import numpy as np
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from mitl.core.arrays import Ints
from mitl.core.paging import ListPage
from mitl.crowd_server.serving import serve as run_server
from mitl.desk import desk as desk_module
from mitl.desk.app import HEADERS, POLICY, OwnHostOnly, has_window, static
from mitl.desk.queue_pages import picture
from mitl.errors import UsageError
from mitl.explorer.pairs import Explored, ExploredItem, Filters, Finder, partners
from mitl.interrupts import how_to_stop
from mitl.positives.merging import MATCHES, REFUSES
from mitl.records import StageResult
from mitl.records.frames import LABELS, NONE
from mitl.records.results import printed_by
from mitl.resources import page_templates, read_all

PAGES = Path(__file__).parent / "pages"
A_PAGE = 48
"""Pairs on a page."""
A_GROUP = 60
"""Pairs of a group on the page of one item."""


@dataclass(frozen=True, slots=True)
class Card:
    """One pair as it is shown."""

    image_at: int
    caption_at: int
    image: ExploredItem
    caption: ExploredItem
    label: str
    """Empty where nobody answered."""
    yes: int
    no: int
    original: bool
    positive: bool
    found_by: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class CardGroup:
    """Pairs of one item that are of one kind."""

    title: str
    cards: tuple[Card, ...]
    of: int


class ExplorerPages:
    """All pages, each made in a thread as starlette does with plain functions."""

    def __init__(self, title: str, of: Explored) -> None:
        self._of = of
        self._finder = Finder(of)
        self._templates = read_all(page_templates(PAGES, desk_module.PAGES / "shared"))
        self._templates.globals.update(title=title, explored=of)

    def pairs(self, request: Request) -> Response:
        """``/``: the pairs that the address asks for."""
        try:
            filters = Filters.of(request.query_params, self._of.annotators)
        except UsageError as error:
            return self._page("notice.html.j2", 422, text=str(error))
        rows = self._finder.rows(filters)
        turn = ListPage.to(filters.page, len(rows), a_page=A_PAGE)

        def address(page: int) -> str:
            return "/?" + urlencode(replace(filters, page=page).given)

        return self._page(
            "pairs.html.j2",
            wanted=filters,
            cards=self._cards(rows[turn.part]),
            turn=turn,
            address=address,
        )

    def item(self, request: Request) -> Response:
        """``/image/{at}`` and ``/caption/{at}``: one item with all its partners."""
        kind, at = request.path_params["side"], request.path_params["at"]
        names = self._of.names
        if kind not in names or at >= len(self._items(names.index(kind))):
            return self._page("notice.html.j2", 404, text="There is no such item.")
        side = names.index(kind)
        rows = partners(self._of, side, at)
        pairs = self._of.pairs
        original, positive = (pairs[name].to_numpy()[rows] for name in ("original", "positive"))
        label = pairs["label"].to_numpy()[rows]
        rest = ~original & ~positive
        groups = [
            ("Found: matches that the annotation lacks", positive & ~original),
            ("The original annotation", original),
            ("Refused: near misses", rest & REFUSES[label]),
            ("Answered as a match, and left out of a release", rest & MATCHES[label]),
            ("Not answered yet", rest & (label == NONE)),
        ]
        return self._page(
            "item.html.j2",
            item=self._items(side)[at],
            side=side,
            at=at,
            groups=[
                CardGroup(name, self._cards(self._by_rank(rows[members])[:A_GROUP]), int(members.sum()))
                for name, members in groups
                if members.any()
            ],
            before=at - 1 if at else None,
            after=at + 1 if at + 1 < len(self._items(side)) else None,
        )

    def picture(self, request: Request) -> Response:
        """``/picture/{at}``: an image's file, asked for by its place, so that no address names a file."""
        at = request.path_params["at"]
        return picture(self._of.images[at].file if at < len(self._of.images) else None)

    def _items(self, side: int) -> Sequence[ExploredItem]:
        return (self._of.images, self._of.captions)[side]

    def _by_rank(self, rows: Ints) -> Ints:
        rank = self._of.pairs["rank"].to_numpy()[rows]
        return rows[np.argsort(np.where(rank == 0, np.iinfo(rank.dtype).max, rank), kind="stable")]

    def _cards(self, rows: Ints) -> tuple[Card, ...]:
        images, captions = self._of.sides
        chosen = self._of.pairs.iloc[rows].to_dict("records")
        return tuple(
            Card(
                image_at=int(images[row]),
                caption_at=int(captions[row]),
                image=self._of.images[images[row]],
                caption=self._of.captions[captions[row]],
                label="" if pair["label"] == NONE else LABELS[pair["label"]].value,
                found_by=tuple(self._of.annotators_of(int(row))),
                **{name: pair[name] for name in ("yes", "no", "original", "positive")},
            )
            for row, pair in zip(rows, chosen, strict=True)
        )

    def _page(self, name: str, status: int = 200, **values: object) -> Response:
        return HTMLResponse(self._templates.get_template(name).render(**values), status)

    def missing(self, request: Request, error: Exception) -> Response:
        """Any other address."""
        return self._page("notice.html.j2", 404, text="The explorer has no page of this address.")


def create_app(title: str, of: Explored) -> Starlette:
    """The pages behind their guard."""
    pages = ExplorerPages(title, of)
    app = Starlette(
        routes=[
            Route("/", pages.pairs),
            Route("/picture/{at:row}", pages.picture),
            Route("/{side}/{at:row}", pages.item),
            Route("/static/{name}", static({"desk.css": desk_module.PAGES, "explore.css": PAGES})),
        ],
        exception_handlers={404: pages.missing},
    )
    policy = HEADERS[POLICY].replace("https:", "https: http:")  # data sets name pictures by either
    app.add_middleware(OwnHostOnly, "explorer", {**HEADERS, POLICY: policy})
    return app


@printed_by("explore")
class ExploreCounts(TypedDict):
    """What can be looked at, and where."""

    url: Annotated[str, "where the explorer listens"]
    pairs: Annotated[int, "pairs that were proposed, annotated or answered"]
    found: Annotated[int, "positives that the original annotation lacks"]


def explore(
    title: str,
    of: Explored,
    *,
    host: str,
    port: int,
    browser: bool,
    announce: Callable[[StageResult], None],
) -> None:
    """Serve the pages until interrupted.

    Args:
        title: what is shown.
        browser: open it in this machine's browser, where it has one.
        announce: is given the address once the pages can be reached.

    Raises:
        UsageError: the address is not this machine's loopback.
        EndpointError: the port is in use.
    """
    desk_module.require_loopback(host, "the explorer asks for no login", 8767)
    found = int((of.pairs["positive"] & ~of.pairs["original"]).sum())

    def ready(url: str) -> None:
        announce(
            StageResult(
                counts=ExploreCounts(url=url, pairs=len(of.pairs), found=found),
                lines=(
                    f"{len(of.pairs):,} pairs of {title}, {found:,} found matches, on {url} ({how_to_stop()})",
                ),
                warnings=()
                if any(caption.text for caption in of.captions)
                else ("there are ids alone: name the project that has the texts by --project",),
            )
        )
        if browser and has_window():
            webbrowser.open(url)

    run_server(create_app(title, of), host.strip("[]"), port, ready=ready)
