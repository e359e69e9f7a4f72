"""Pages of pairs and of rankings become question XML; ``mitl.protocol.pages`` says what marks they carry."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import jinja2

from mitl.errors import TemplateError
from mitl.hits.templates import HitTemplate
from mitl.protocol.answer_xml import xml_safe
from mitl.records import Comparison, Direction
from mitl.records.forms import SET_FORMS
from mitl.records.questions import RATIONALE

_BLANKS = re.compile(
    r"""("(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)"""  # kept as they are
    r"|[ \t]*([=,;:?(){}\[\]<>&|])[ \t]*"
)


@lru_cache(maxsize=32)
def lean_script(source: str) -> str:
    """The JavaScript without blanks beside punctuation; strings and template literals stay untouched.

    It knows neither comments nor regular expressions: a script that goes through it has no comments, and no
    quotation mark or blank within a regular expression. Lines stay lines, for a diff to be read.
    A batch renders thousands of pages with one script, so the last few are kept.
    """
    return _BLANKS.sub(lambda found: found[1] or found[2], source)


MAX_QUESTION_BYTES = 65_535
"""The requester API's limit on a question, in bytes of UTF-8, white space included."""

HTML_QUESTION_NAMESPACE = (
    "http://mechanicalturk.amazonaws.com/AWSMechanicalTurkDataSchemas/2011-11-11/HTMLQuestion.xsd"
)

_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)


LEAD = 600
"""Characters of a long text that are shown at once."""
FOLDED_FROM = 900
"""Characters from which on a text is long: a shorter rest would not be worth a click."""


@dataclass(frozen=True, slots=True)
class PagePair:
    """What a worker sees at one place (from 1) of a page; nothing here tells a control from a candidate."""

    place: int
    image_src: str
    """Of an image, sound or video: root-relative (``/i/…``) or absolute https; empty beside ``texts``."""
    caption: str
    texts: tuple[str, ...] = ()
    """In place of an image: a title, if there is one, and a text."""
    reference_src: str = ""
    """Of the image that the caption changes, in a composed query."""

    @property
    def heading(self) -> str:
        """The title; empty where there is none."""
        return self.texts[0] if len(self.texts) > 1 else ""

    @property
    def lead(self) -> str:
        """What is shown of the text at once: all of it, or of a long one the words that fit."""
        return self._folded[0]

    @property
    def rest(self) -> str:
        """What is folded away at first."""
        return self._folded[1]

    @property
    def shown(self) -> list[str]:
        """All texts and addresses that are this pair's own, in the order of the page."""
        if self.reference_src:
            return [self.reference_src, self.caption, self.image_src]
        if not self.texts:
            return [self.image_src, self.caption]
        return [text for text in (self.caption, self.heading, self.lead, self.rest) if text]

    @property
    def _folded(self) -> tuple[str, str]:
        text = self.texts[-1]
        if len(text) <= FOLDED_FROM:
            return text, ""
        space = max(text.rfind(blank, 0, LEAD) for blank in " \n")
        end = space if space > LEAD // 2 else LEAD  # a language without spaces is cut between two characters
        return text[:end].rstrip(), text[end:].lstrip()


def render_page(
    template: HitTemplate,
    pairs: Sequence[PagePair],
    *,
    contact: str | None = None,
    estimate_s: int | None = None,
) -> str:
    """As `render`, pairs in the order given; by default it takes the template's seconds for each."""
    seconds = template.seconds_per_pair * len(pairs) if estimate_s is None else estimate_s
    form = next(form for form in SET_FORMS.values() if form.asks == template.asks)
    asked = _asked(template.search_path, template.content_hash)
    return render(template, seconds, contact, pairs=pairs, form=form, asked=asked)


def render(template: HitTemplate, seconds: int, contact: str | None, **shown: object) -> str:
    """The page of a template as self-contained HTML.

    Args:
        seconds: honest working time of the page.
        contact: whom workers may write to, shown as text.
        shown: what the template may use beside its title and the like.

    Raises:
        TemplateError: the template is broken.
    """
    try:
        page = _environment(template.search_path, template.content_hash).get_template("page.html.j2")
        return page.render(
            title=template.title,
            rationale=template.rationale,
            standard=RATIONALE,
            further=[q for q in template.questions if q not in RATIONALE and not q.measured],
            measured=[q for q in template.questions if q.measured],
            minutes=max(1, round(seconds / 60)),
            contact=contact,
            **shown,
        )
    except jinja2.TemplateSyntaxError as error:
        where = f"{error.name}, line {error.lineno}"
        raise TemplateError(
            f"HIT template {template.name!r} is broken in {where}: {error.message}"
        ) from error
    # A template of one's own may ask for anything.
    except (
        jinja2.TemplateError,
        ArithmeticError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise TemplateError(f"HIT template {template.name!r} does not render: {error}") from error


def question_xml(html: str) -> str:
    """The page as HTMLQuestion XML; what XML cannot carry becomes U+FFFD."""
    return question_of(xml_safe(html).replace("]]>", "]]]]><![CDATA[>"))


def question_of(content: str) -> str:
    """HTMLQuestion XML around what its CDATA section can carry."""
    return (
        f'<HTMLQuestion xmlns="{HTML_QUESTION_NAMESPACE}"><HTMLContent><![CDATA[{content}]]></HTMLContent>'
        "<FrameHeight>0</FrameHeight></HTMLQuestion>"
    )


def check_size(xml: str) -> int:
    """The question's size in bytes of UTF-8.

    Raises:
        TemplateError: it is over the requester API's 65,535 bytes.
    """
    size = len(xml.encode())
    if size > MAX_QUESTION_BYTES:
        raise TemplateError(
            f"the question has {size:,} bytes, but the limit is {MAX_QUESTION_BYTES:,}; "
            "shorten the longest texts or the image addresses, use a leaner template, or ask less on a page where the "
            "command has --per-hit"
        )
    return size


class _LeanLoader(jinja2.FileSystemLoader):
    """Reads templates without their indentation, which readers need and the size limit does not forgive."""

    def get_source(
        self, environment: jinja2.Environment, template: str
    ) -> tuple[str, str, Callable[[], bool]]:
        try:
            source, filename, uptodate = super().get_source(environment, template)
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise jinja2.TemplateSyntaxError("not text in UTF-8; save it as that", line, template) from error
        return _INDENT.sub("", source), filename, uptodate


@cache
def _environment(search_path: tuple[Path, ...], content_hash: str) -> jinja2.Environment:
    """One compiled environment per template; by its hash too, so that an edited one is read again."""
    environment = jinja2.Environment(
        loader=_LeanLoader(search_path),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        auto_reload=False,  # or each page looks at every file's time
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["lean_script"] = lean_script
    return environment


@cache
def _asked(search_path: tuple[Path, ...], content_hash: str) -> dict[str, str]:
    """What a template asks of the pair at each place: the same on every page, and most of it. Pages fill it in."""
    return {}


@dataclass(frozen=True, slots=True)
class PageResult:
    """One result of a list as a worker sees it."""

    text: str
    """A caption; empty where the results are images."""
    image_src: str
    """Root-relative (``/i/…``) or absolute https; empty where the results are captions."""
    both: bool
    """Whether the other list shows it too."""


@dataclass(frozen=True, slots=True)
class PageComparison:
    """What a worker sees at one place (from 1) of a page; nothing here tells a control from what is asked."""

    place: int
    query_text: str
    """The caption that was searched for; empty where an image was."""
    query_image: str
    """Its address; empty where a caption was searched for."""
    left: tuple[PageResult, ...]
    right: tuple[PageResult, ...]

    @property
    def shown(self) -> list[str]:
        """All texts and addresses that are this comparison's own, in the order of the page."""
        results = [result.text or result.image_src for result in (*self.left, *self.right)]
        return [self.query_text or self.query_image, *results]


def page_comparison(item: Comparison, texts: Mapping[int, str], sources: Mapping[int, str]) -> PageComparison:
    """A comparison with its captions' texts and its images' addresses."""
    of_images = item.direction is Direction.T2I

    def results(items: Sequence[int], others: Sequence[int]) -> tuple[PageResult, ...]:
        return tuple(
            PageResult("" if of_images else texts[item], sources[item] if of_images else "", item in others)
            for item in items
        )

    return PageComparison(
        place=item.place,
        query_text=texts[item.query_id] if of_images else "",
        query_image="" if of_images else sources[item.query_id],
        left=results(item.left_items, item.right_items),
        right=results(item.right_items, item.left_items),
    )


def render_rankings(
    template: HitTemplate, comparisons: Sequence[PageComparison], *, contact: str | None, estimate_s: int
) -> str:
    """As `render`, comparisons in the order given.

    Raises:
        TemplateError: the template is broken, or images and captions are searched on one page.
    """
    sides = {bool(comparison.query_text) for comparison in comparisons}
    if len(sides) != 1:
        raise TemplateError("a page of rankings has searches of one direction only, and at least one")
    return render(template, estimate_s, contact, comparisons=comparisons, of_images=sides.pop())
