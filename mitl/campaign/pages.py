"""The pages of HITs as questions: pictures, sounds and videos made ready under names that tell nothing, each page
rendered once.

A few of them are fetched as a worker's browser would, before anything is posted.
"""

from __future__ import annotations

import hashlib
import hmac
import io
import json
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
from markupsafe import escape

from mitl.addresses import is_loopback, is_secure
from mitl.campaign import media
from mitl.campaign.kinds.protocol import CampaignKind, Shown, Wording
from mitl.core.pictures import FORMATS, SPOILED, page_jpeg
from mitl.core.whole_files import part_name
from mitl.crowd.certificates import httpx_context
from mitl.crowd.context import Context
from mitl.db.store import items as item_store
from mitl.errors import DatasetError, SettingsError
from mitl.hits.validation import PageChecker, Pieces, fields_of
from mitl.progress import Progress
from mitl.proposals.sampling import shuffled
from mitl.protocol.media import NOUNS
from mitl.records import ImageItem
from mitl.records.enums import PartKind
from mitl.records.results import listed
from mitl.settings import Settings

TIMEOUT_S, CONNECT_TIMEOUT_S = 15.0, 5.0
TRIES = 2
"""Public stores of pictures say "slow down" now and then."""
MAX_PICTURE_BYTES = 50_000_000
"""Of a picture that is fetched from its own address, which pages show as it is."""
NAMED = 5
"""Images named one by one where many cannot be shown."""


def picture_sources(
    settings: Settings, images: Sequence[ImageItem], progress: Progress, *, write: bool = True
) -> dict[int, str]:
    """Image id → the address that pages use.

    Pictures at hand are written to ``public/i/`` as JPEG, sounds and videos as they are, again where the file has
    become newer, and addressed root-relative, as a crowd server serves them: mitl's own, and any on this machine,
    whatever its port. On another endpoint they need ``image_base_url``. Without a file, the item's own https address
    is used.

    Raises:
        DatasetError: items have neither a file nor an https address, or files cannot be shown;
            the first are named.
        SettingsError: another endpoint is used and nothing says where the pictures can be fetched.
    """
    secret = settings.secret()
    base = _base(settings, images)
    noun = NOUNS[images[0].kind] if images else NOUNS[PartKind.IMAGE]
    sources, unreadable = {}, []
    for image in images:
        try:
            sources[image.id] = _source(settings, image, secret, base)
        except DatasetError as error:
            unreadable.append(f"{noun} {image.external_id!r}: {error}")
    _refuse(unreadable, len(images), noun, "mend these files")
    _refuse(
        [_missing(image) for image in images if sources[image.id] is None],
        len(images),
        noun,
        f"give `mitl init` a folder of {noun}s or an https URL template",
    )
    with progress("pictures" if noun == "image" else f"{noun}s", len(images)) as advance:
        for image in images:
            source = sources[image.id] or ""
            target = settings.public / "i" / source.rpartition("/")[2]
            if (
                write
                and image.path is not None
                and source == f"{base}/i/{target.name}"
                and not (target.exists() and target.stat().st_mtime >= image.path.stat().st_mtime)
            ):
                try:
                    (_write_jpeg if image.kind is PartKind.IMAGE else media.place)(image.path, target)
                except DatasetError as error:
                    unreadable.append(f"{noun} {image.external_id!r}: {error}")
            advance(1)
    _refuse(unreadable, len(images), noun, "mend these files")
    return {id_: source for id_, source in sources.items() if source is not None}


def _refuse(faults: Sequence[str], n_images: int, noun: str, remedy: str) -> None:
    """DatasetError that counts the items that cannot be shown and names the first of them."""
    if faults:
        raise DatasetError(
            f"{len(faults):,} of {n_images:,} {noun}s cannot be shown: {listed(faults, NAMED, '; ')}; {remedy}"
        )


def _base(settings: Settings, images: Sequence[ImageItem]) -> str | None:
    """Where ``public/`` is served: "" for the root of the page's own server; None where nothing says."""
    if settings.endpoint is None or (is_loopback(settings.endpoint) and settings.image_base_url is None):
        return ""
    if settings.image_base_url is None and any(image.url is None for image in images):
        raise SettingsError(
            "another endpoint cannot fetch pictures from here; set image_base_url in [crowd] of mitl.toml to the "
            "https address where the folder public/ is served"
        )
    if settings.image_base_url is None:
        return None
    base = settings.image_base_url.rstrip("/")
    if not is_secure(base):
        raise SettingsError(f"image_base_url is {base!r}, but pages need https; give an https address")
    return base


def _source(settings: Settings, image: ImageItem, secret: bytes, base: str | None) -> str | None:
    """The item's address on pages; None where it has neither a file nor an address that pages may show."""
    has_file = image.path is not None and image.path.is_file()
    if has_file and image.path is not None and base is not None:
        digest = hmac.new(secret, image.external_id.encode(), hashlib.sha256).hexdigest()[:32]
        suffix = "jpg" if image.kind is PartKind.IMAGE else media.suffix_of(image.path, image.kind)
        return f"{base}/i/{digest}.{suffix}"
    return image.url if image.url is not None and is_secure(image.url) else None


def _missing(image: ImageItem) -> str:
    where = f"file {image.path} is missing" if image.path is not None else "no file is known"
    has = "it has no https address" if image.url is None else f"{image.url!r} is no https address"
    return f"{NOUNS[image.kind]} {image.external_id!r}: {where} and {has}"


def _write_jpeg(source: Path, target: Path) -> None:
    try:
        content = page_jpeg(source)
    except OSError as error:
        raise DatasetError(f"{source} cannot be read as a picture: {error}") from error
    target.parent.mkdir(parents=True, exist_ok=True)
    part = part_name(target)
    try:
        part.write_bytes(content)
        part.replace(target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error  # a full disk names no file
    finally:
        part.unlink(missing_ok=True)


def probe_pictures(
    sources: Mapping[str, str],
    base: str,
    n: int,
    *,
    seed: int,
    files: Mapping[str, Path] | None = None,
    kind: PartKind = PartKind.IMAGE,
) -> int:
    """Fetch ``n`` random pictures, or the beginnings of sounds or videos, and return how many were fetched.

    Args:
        sources: external id of an image → its address on the page, root-relative or https.
        base: where root-relative addresses are served.
        files: what is not served yet and is looked at where it lies.
        kind: what they are.

    Raises:
        DatasetError: one does not come, or is something else; names the item.
    """
    chosen = shuffled(sources, seed, "probed pictures")[:n]
    timeout = httpx.Timeout(TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    browsers: dict[bool, httpx.Client] = {}
    sense = f"{'hear' if kind is PartKind.AUDIO else 'see'} {NOUNS[kind]}"
    with ExitStack() as stack:
        for image in chosen:
            source = sources[image]
            if files is not None and image in files:
                fault = _file_fault(files[image], kind)
                if fault is not None:
                    raise DatasetError(f"workers could not {sense} {image!r}: {fault}; mend the file")
                continue
            url = base.rstrip("/") + source if source.startswith("/") else source
            # Connections are kept: one browser for this machine, which no proxy is asked for, and one for the rest.
            near = is_loopback(url)
            if near not in browsers:
                # Authorities of SSL_CERT_FILE count even where no proxy is taken from the environment.
                trusted = httpx_context()
                client = httpx.Client(timeout=timeout, trust_env=not near, verify=trusted)
                browsers[near] = stack.enter_context(client)
            problem = _problem(browsers[near], url, kind)
            if problem is not None:
                raise DatasetError(
                    f"workers could not {sense} {image!r}: {url} {problem}; {_advice(source)}, or post without "
                    "looking with --probe-images 0"
                )
    return len(chosen)


def _problem(browser: httpx.Client, url: str, kind: PartKind) -> str | None:
    """What is wrong with a picture, sound or video at an address; None where a browser would show it."""
    problem: str | None = None
    for _ in range(TRIES):
        try:
            if kind is not PartKind.IMAGE:
                problem = media.medium_problem(browser, url, kind)
                if problem is None:
                    return None
                continue
            with media.fetched(browser, url, {}) as reply:
                if reply.status_code == 200:
                    return _unlike_picture(reply)
                problem = f"answers {reply.status_code}"
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:  # UnicodeError: no host can be so
            problem = f"cannot be fetched ({type(error).__name__}: {error})"
    return problem


def _unlike_picture(reply: httpx.Response) -> str | None:
    kind = reply.headers.get("content-type", "")
    if not kind.startswith("image/"):
        return f"gives {kind or 'something of no type'}, not a picture"
    content = media.beginning(reply, MAX_PICTURE_BYTES)
    if len(content) >= MAX_PICTURE_BYTES:
        return f"gives {MAX_PICTURE_BYTES / 1e6:.0f} MB or more, too much for a page"
    fault = _fault(content)
    return None if fault is None else f"gives {len(content):,} bytes that are not a picture ({fault})"


def _file_fault(path: Path, kind: PartKind) -> str | None:
    if kind is PartKind.IMAGE:
        fault = _fault(path.read_bytes())
        return None if fault is None else f"{path} is not a picture ({fault})"
    try:
        media.suffix_of(path, kind)
    except DatasetError as error:
        return str(error)
    return None


def _fault(content: bytes) -> str | None:
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=FORMATS) as picture:
            picture.verify()
    except (OSError, *SPOILED, Image.DecompressionBombError) as error:
        return str(error)
    return None


def _advice(source: str) -> str:
    if source.startswith("/"):
        return (
            "serve the project's folder public/ there (`mitl serve --public DIR`), or, where that address is a tunnel "
            "to a server elsewhere, set image_base_url in [crowd] of mitl.toml to where public/ is served"
        )
    return (
        "make the project's folder public/ reachable at image_base_url, or mend the image addresses given to "
        "`mitl init`"
    )


_IN_MEMORY = 64 * 1024 * 1024
"""Bytes of questions that are kept in memory, without what they share; more go to a temporary file."""


class Pages:
    """Renders questions. What was rendered is kept until the end, so that what is posted is what was checked."""

    def __init__(self, context: Context, kind: CampaignKind[Any, Any], *, write: bool) -> None:
        """Args: write: whether pictures are made ready to be shown, in the project's public folder."""
        session, self._settings, self._progress = context.session, context.settings, context.progress
        self.kind, self.write = kind, write
        dataset = item_store.dataset(session)
        self._images = {i.id: i for i in item_store.images(session, dataset.id, self._settings.project)}
        captions = item_store.captions(session, dataset.id)
        self._captions = {caption.id: caption.text for caption in captions}
        self._references = {c.id: c.reference_id for c in captions if c.reference_id is not None}
        self.medium = dataset.form.left_part
        self.largest = 0
        """Bytes of the largest question so far."""
        self._sources: dict[int, str] = {}
        self._checker = PageChecker()
        self._kept: dict[tuple[object, ...], list[int]] = {}
        self._store = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 - closed with the pages
        self._lock = threading.Lock()
        session.rollback()

    def close(self) -> None:
        """Give the kept questions up."""
        self._store.close()

    def prepare(self, pages: Iterable[Sequence[Any]]) -> None:
        """Make the pictures, sounds or videos of these pages available."""
        pages = list(pages)
        shown = {image for page in pages for item in page for image in self.kind.images(item)}
        if self._references:  # composed queries are asked about in pairs alone
            shown |= {self._references[item.pair.caption_id] for page in pages for item in page}
        images = [
            self._images[image]
            for image in sorted(shown - self._sources.keys())
            if not self._images[image].texts
        ]
        self._sources.update(picture_sources(self._settings, images, self._progress, write=self.write))

    @property
    def sources(self) -> dict[str, str]:
        """External id of an image that was prepared → the address under which pages show it."""
        return {self._images[id_].external_id: source for id_, source in self._sources.items()}

    def files(self) -> dict[str, Path]:
        """External id → the own file of each picture, sound or video that was prepared and lies here."""
        images = [self._images[id_] for id_ in self._sources]
        return {i.external_id: i.path for i in images if i.path is not None and i.path.is_file()}

    def check(self, items: Sequence[Any], wording: Wording) -> None:
        """Render one page, unless it is kept already, check it and keep its question.

        Raises:
            TemplateError: the page is malformed or too large.
        """
        with self._lock:
            self._find(items, wording)

    def question(self, items: Sequence[Any], wording: Wording) -> str:
        """The question of one page as XML, checked; any thread may ask. TemplateError as by :meth:`check`."""
        with self._lock:
            start, length = self._find(items, wording)
            self._store.seek(start)
            return self._checker.joined(json.loads(self._store.read(length)))

    def _find(self, items: Sequence[Any], wording: Wording) -> Sequence[int]:
        """Where the question of a page is kept, and its length."""
        key = (wording.template.name, wording.template.content_hash, wording.estimate_s, *items)
        at = self._kept.setdefault(key, [])  # looked up once: the items' hash takes a while
        if not at:
            pieces, size = self._render(items, wording)
            self.largest = max(self.largest, size)
            kept = json.dumps(pieces).encode()
            at += self._store.seek(0, 2), len(kept)
            self._store.write(kept)
        return at

    def _render(self, items: Sequence[Any], wording: Wording) -> tuple[Pieces, int]:
        texts_of = {image: self._images[image].texts for item in items for image in self.kind.images(item)}
        shown = Shown(
            self._captions, self._sources, self._settings.contact, texts_of, references=self._references
        )
        html, texts = self.kind.render(items, wording, shown)
        return self._checker.check(
            html,
            [item.place for item in items],
            [str(escape(text)) for text in texts],
            wording.template.name,
            [(self.kind.answer_field, self.kind.choices), *fields_of(wording.template.questions)],
        )
