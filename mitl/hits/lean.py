"""Blanks taken out of a page's script, because a question may have 65,535 bytes and no more.

This is no minifier: names stay, so that whoever is shown a page can read what it does.
"""

from __future__ import annotations

import re
from functools import lru_cache

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
