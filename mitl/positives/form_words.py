"""What a release of another form says in place of images and captions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict
from typing import Any

from mitl.positives.markdown import plain
from mitl.positives.release_input import ReleaseCard
from mitl.records.form_words import of_form, phrases
from mitl.records.forms import TEXTS, SetForm

_SAID = frozenset(phrases(TEXTS))
"""Of these words alone nobody is the maker."""


def makers_words(card: ReleaseCard, *names: str) -> frozenset[str]:
    """What the makers of a data set wrote, as it is and as Markdown; their words are theirs."""
    given = [*names, *card.creators, *(value for value in asdict(card).values() if isinstance(value, str))]
    return frozenset(
        form for value in given if value and value not in _SAID for form in (value, plain(value))
    )


def described_of_form(value: Any, form: SetForm, makers: Collection[str] = ()) -> Any:
    """The same of every description within Croissant's JSON-LD."""
    if isinstance(value, Mapping):
        return {
            key: of_form(one, form, makers)
            if _is_told(key) and isinstance(one, str)
            else described_of_form(one, form, makers)
            for key, one in value.items()
        }
    return [described_of_form(one, form, makers) for one in value] if isinstance(value, list) else value


def _is_told(key: str) -> bool:
    return key == "description" or key.startswith("rai:")
