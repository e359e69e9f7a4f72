"""What is wrong with a written text, by rules that its worker was told; and whether a review's controls were passed.

The rules decide whether a text is used. They never decide about pay: a submission that breaks one waits for a person.
A language is told by its letters and its most usual words, and by nothing else. That is no recogniser. It catches texts
in another alphabet, letters struck at random, and whole sentences of another language; it lets a text pass that mixes
languages, or that has none of these words because it is short.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from functools import partial

from mitl.crowd.answer_parts import (
    FindingLog,
    active_time,
    one_choice,
    outcome_beside,
    own_words,
    parse_page,
    shown,
    single,
)
from mitl.records import CollectionRole, Finding, Label, Outcome, PairRole, several
from mitl.records.collection import EXAMPLES, CollectionQuestion, GivenText, TextRules
from mitl.records.questions import TEXT, GoldRule

PICK = "pick"
MOST_OFFERED = 12
_BLANKS = re.compile(r"\s+")


def _answer(place: int, fields: dict[str, list[str]], findings: FindingLog) -> GivenText | None:
    text = _BLANKS.sub(" ", own_words(place, fields.get(TEXT.name, []), findings)).strip()
    picks = tuple(map(str, range(MOST_OFFERED + 1)))
    pick = one_choice(place, PICK, fields, picks, findings)
    label = single(place, "label", fields, Label, findings)
    has_answer = bool(text) or pick is not None or label is not None
    outcome = outcome_beside(place, fields, shown(text) if has_answer else None, findings)
    if outcome is None:
        return None
    if outcome is not Outcome.ANSWERED:
        text, pick, label = "", None, None
    return GivenText(
        place=place,
        outcome=outcome,
        text=text,
        pick=None if pick is None else int(pick),
        label=label,
        active_ms=active_time(place, fields.get("ms", []), findings),
    )


parse_texts = partial(parse_page, kinds=(TEXT.name, PICK, "label"), answer_of=_answer)
"""As ``parse_page``, of a page that collects."""

ANY = "any"
LEAST_LETTERS = 0.9
"""Of a text's letters, the share that must be of the language's alphabet."""
TOLD_BY_WORDS = 5
"""Words from which a text has at least one of the usual ones."""

USUAL_WORDS: Mapping[str, str] = {
    "en": "a an the of in on at to and with is are by from over under near above below it its that this two three one "
    "for as into through behind beside",
    "de": "ein eine einen einem einer der die das den dem des und mit in im auf an am ist sind von vor über unter "
    "neben zwei drei aus zu zum zur",
    "fr": "un une des le la les de du et avec dans sur est sont en au aux à sous près par deux trois qui",
    "es": "un una unos unas el la los las de del y con en sobre es son al a bajo cerca por dos tres que",
}
"""By the language's code; all four are written in Latin letters."""

_NAMES = {"en": "English", "de": "German", "fr": "French", "es": "Spanish"}


def language_rule(language: str) -> dict[str, object]:
    """What :func:`is_in` goes by, for a page that tells its worker the same; empty for ``any``."""
    if language == ANY:
        return {}
    return {
        "name": _NAMES[language],
        "usual": USUAL_WORDS[language],
        "letters": LEAST_LETTERS,
        "told_by": TOLD_BY_WORDS,
    }


_WORD = re.compile(r"[^\W\d_]+")


def is_in(text: str, language: str) -> bool:
    """Whether a text may be in this language (a key of ``USUAL_WORDS``); always for ``any``."""
    if language == ANY:
        return True
    letters = [letter for letter in text if letter.isalpha()]
    n_latin = sum(unicodedata.name(letter, "").startswith("LATIN") for letter in letters)
    if not letters or n_latin < LEAST_LETTERS * len(letters):
        return False
    words = [word.casefold() for word in _WORD.findall(text)]
    return len(words) < TOLD_BY_WORDS or not set(words).isdisjoint(USUAL_WORDS[language].split())


TOO_SHORT = "text_too_short"
TOO_LONG = "text_too_long"
LANGUAGE = "text_language"
START = "text_start"
COPY = "text_copy"
DUPLICATE = "text_duplicate"
CONTROL_FAILED = "review_control_failed"
CONTROL_MISSING = "review_control_missing"
NO_ANSWER = "no_text"

_WORDS = re.compile(r"[^\W_][^\s'’-]*(?:['’-][^\W_][^\s'’-]*)*")


_APART = re.compile(
    "[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f"
    "\U00020000-\U0003fffd]"
)
"""Chinese and Japanese characters."""


def words_of(text: str) -> list[str]:
    """The words of a text: runs of letters, their marks and digits, joined by an apostrophe or a hyphen or not.

    Chinese and Japanese put no blanks between words; each of their characters counts as one.
    """
    kinds = ((letter, unicodedata.category(letter)[0]) for letter in text)
    told = "".join(a if kind in "LMN" or a in "'’-" else " " for a, kind in kinds)
    return _WORDS.findall(_APART.sub(r" \g<0> ", told))


def normalised(text: str) -> str:
    """A text without case, punctuation and further blanks: what two equal texts have in common."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(words_of(unicodedata.normalize("NFKC", folded)))


def check_text(text: str, rules: TextRules) -> list[Finding]:
    """What is wrong with a text by itself; nothing where it keeps to the rules."""
    words, plain = words_of(text), normalised(text)
    findings = []
    if len(words) < rules.least_words:
        findings.append(
            Finding(TOO_SHORT, f"{several(len(words), 'word')}, but {rules.least_words} are the fewest")
        )
    if len(words) > rules.most_words:
        findings.append(
            Finding(TOO_LONG, f"{several(len(words), 'word')}, but {rules.most_words} are the most")
        )
    if len(text) > rules.most_characters:
        findings.append(
            Finding(TOO_LONG, f"{len(text)} characters, but {rules.most_characters} are the most")
        )
    if not is_in(text, rules.language):
        findings.append(Finding(LANGUAGE, f"does not read as {rules.language!r}"))
    start = next((s for s in rules.forbidden_starts if f"{plain} ".startswith(f"{normalised(s)} ")), None)
    if start is not None:
        findings.append(Finding(START, f"begins with {start!r}"))
    if plain in {normalised(example) for example in EXAMPLES}:
        findings.append(Finding(COPY, "is an example of the instructions"))
    return findings


def check_beside(text: str, own_before: Collection[str], of_dataset: Collection[str]) -> list[Finding]:
    """Whether a text was given before.

    Args:
        own_before: what the same worker wrote before, normalised.
        of_dataset: the data set's captions, normalised.
    """
    plain = normalised(text)
    if plain in own_before:
        return [Finding(DUPLICATE, "the same worker wrote it before")]
    if plain in of_dataset:
        return [Finding(DUPLICATE, "the data set has it")]
    return []


def check_controls(
    page: Sequence[CollectionQuestion], given: Mapping[int, Label | None], rule: GoldRule
) -> list[Finding]:
    """Which controls of a page of reviews were not passed.

    Args:
        given: place → label; None where nothing was answered.
    """
    findings = []
    for question in page:
        if question.role is not CollectionRole.CONTROL:
            continue
        label = given.get(question.place)
        role = PairRole.GOLD_POSITIVE if question.matches else PairRole.GOLD_NEGATIVE
        if label is None:
            findings.append(Finding(CONTROL_MISSING, f"place {question.place} was not answered"))
        elif not rule.passed(role, label):
            truth = "matches" if question.matches else "does not match"
            findings.append(
                Finding(CONTROL_FAILED, f"place {question.place}: {label.value}, though it {truth}")
            )
    return findings
