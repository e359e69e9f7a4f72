"""Text that XML 1.0 can carry."""

from __future__ import annotations

import re

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_safe(text: str) -> str:
    """The text with U+FFFD for what XML 1.0 forbids: controls, lone surrogates, U+FFFE and U+FFFF."""
    return _FORBIDDEN.sub("\ufffd", text)
