"""What a file of a picture, sound or video is, by its first bytes: a name says nothing about what a file holds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from mitl.records.enums import PartKind

HEAD = 256
"""Bytes that tell one format from another."""
MAX_MEDIA_BYTES = 200_000_000
"""Of a sound or video; a worker's phone loads no more."""


@dataclass(frozen=True, slots=True)
class MediaFormat:
    """A format that browsers show or play."""

    suffix: str
    media_type: str
    kind: PartKind
    beginning: re.Pattern[bytes]


def _format(suffix: str, media_type: str, beginning: bytes) -> MediaFormat:
    kind = PartKind(media_type.partition("/")[0])
    return MediaFormat(suffix, media_type, kind, re.compile(beginning, re.DOTALL))


FORMATS = (
    _format("jpg", "image/jpeg", rb"\xff\xd8"),
    _format("png", "image/png", rb"\x89PNG"),
    _format("webp", "image/webp", rb"RIFF.{4}WEBP"),
    _format("gif", "image/gif", rb"GIF8[79]a"),
    _format("wav", "audio/wav", rb"RIFF.{4}WAVE"),
    _format("mp3", "audio/mpeg", rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]"),
    _format("ogg", "audio/ogg", rb"OggS.{20,60}(OpusHead|\x01vorbis|\x7fFLAC)"),
    _format("flac", "audio/flac", rb"fLaC"),
    _format("m4a", "audio/mp4", rb".{4}ftypM4[AB]"),
    _format("mp4", "video/mp4", rb".{4}ftyp(?!qt)"),
    _format("webm", "video/webm", rb"\x1a\x45\xdf\xa3.{0,60}webm"),
)
SOUNDS = "wav, mp3, ogg (Opus, Vorbis), flac, m4a"
VIDEOS = "mp4, webm"
ALLOWED = {PartKind.AUDIO: f"{SOUNDS}; also {VIDEOS} with a sound alone", PartKind.VIDEO: VIDEOS}
"""In words, what a data set's sounds and videos may be."""
NOUNS = {PartKind.IMAGE: "image", PartKind.AUDIO: "sound", PartKind.VIDEO: "video", PartKind.TEXT: "text"}
"""What one is called."""


def format_of(head: bytes) -> MediaFormat | None:
    """The format of a file that begins with these bytes (``HEAD`` of them or more); None for any other."""
    return next((media for media in FORMATS if media.beginning.match(head)), None)


def head_of(path: Path) -> bytes:
    """The first bytes of a file."""
    with path.open("rb") as file:
        return file.read(HEAD)


def media_fault(head: bytes, kind: PartKind) -> str:
    """Why a browser could not play this as a sound or a video; empty where it could."""
    found = format_of(head)
    if found is None or found.kind not in {kind, PartKind.VIDEO}:
        return f"is not a {NOUNS[kind]} that browsers play: {ALLOWED[kind]}"
    return ""
