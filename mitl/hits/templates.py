"""The templates of the HIT page: one folder of ``hit_templates`` each, found by name.

A folder holds ``page.html.j2``, ``instructions.html.j2`` and ``hit_type.toml`` (title, description, keywords,
seconds_per_pair, rationale, and ``asks = "rankings"`` where two rankings stand side by side; then the seconds are for
each such comparison). ``[[questions]]`` in it declares what else a page of pairs asks; see docs/publishing.md.
``_shared`` holds what the templates have in common, ``_rankings`` what those of rankings have, and so for every kind
of campaign. A project may have a folder of its own templates; one found there goes before a bundled one of the same
name.
"""

from __future__ import annotations

import functools
import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from mitl import resources
from mitl.datasets.official import OFFICIAL_COLUMNS
from mitl.errors import TemplateError
from mitl.records import BatchKind, Label
from mitl.records.enums import PartKind
from mitl.records.forms import SET_FORMS
from mitl.records.frames import JUDGEMENTS
from mitl.records.questions import LABEL, PLAYED, RATIONALE, TEXT, Choice, Condition, Question, QuestionType

_SHARED = "_shared"
_FILES = ("page.html.j2", "instructions.html.j2", "hit_type.toml")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_TEXT_LIMITS = {"title": 128, "description": 2000, "keywords": 1000}
"""The requester API's own limits, in characters."""
_QUESTION = re.compile(r"[a-z]{1,32}")
_VALUE = re.compile(r"[a-z][a-z0-9_]{0,31}")
"""Of a choice or a column: a name in HTML, SQL, CSV and Parquet alike."""
_QUESTION_KEYS = {
    "name": str,
    "type": str,
    "text": str,
    "choices": list,
    "when": dict,
    "required": bool,
    "column": str,
    "title": str,
    "meaning": str,
}
_CHOICE_KEYS = {"value": str, "text": str, "code": int}
_MOST_CHOICES = 50
_CAMPAIGNS = {form.asks: BatchKind.PAIRS.value for form in SET_FORMS.values()}
"""What a template asks → the kind of campaign that it is for, where that is called otherwise."""
_PLAYED = {form.asks for form in SET_FORMS.values() if form.left_part in (PartKind.AUDIO, PartKind.VIDEO)}
"""What shows a medium that takes time."""
_TAKEN = {LABEL, PLAYED.name, "outcome", "ms", "prefer", *JUDGEMENTS, "image_id", "caption_id"}
"""Names of other fields and columns."""


@dataclass(frozen=True, slots=True)
class HitTemplate:
    """One template of the HIT page, with what its HIT type says to workers who look for work."""

    name: str
    title: str
    description: str
    keywords: str
    seconds_per_pair: int
    questions: tuple[Question, ...]
    """What the page asks at each place besides its main question, in the order of the page."""
    content_hash: str
    """SHA-256 over the template's files and the shared ones; two pages of one hash ask the same."""
    asks: str
    """The kind of campaign that it is a template of."""
    search_path: tuple[Path, ...]
    """Where Jinja looks: the template's folder, then those that hold ``_shared`` or what its kind has in common."""

    @property
    def rationale(self) -> bool:
        """Whether the page asks why a pair does not fully match, or a ranking is better."""
        return TEXT in self.questions


def template_names(extra_folder: Path | None = None, *, asks: str = BatchKind.PAIRS) -> list[str]:
    """The templates of this kind by name, sorted; one whose ``hit_type.toml`` cannot be read counts as of pairs."""
    return sorted(name for name, kind in _kinds(_roots(extra_folder)).items() if kind == asks)


def load_template(
    name: str,
    extra_folder: Path | None = None,
    *,
    asks: str | None = None,
    kind_folder: Path | None = None,
) -> HitTemplate:
    """The template called ``name``, from the project's own folder of templates or from the bundled ones.

    Args:
        asks: what it has to ask; None takes any.
        kind_folder: the templates that the kind of campaign brings itself.

    Raises:
        TemplateError: there is no such template, it asks something else, a file of it is missing, or its
            ``hit_type.toml`` is not right.
    """
    roots = [*_roots(extra_folder), *([] if kind_folder is None else [kind_folder])]
    kinds = _kinds(roots)
    fitting = [known for known, kind in kinds.items() if asks in (None, kind, _CAMPAIGNS.get(kind))]
    if name not in fitting:
        known = ", ".join(sorted(fitting))
        other = f" asks for {kinds[name]}" if name in kinds else ""
        what = f"HIT template {name!r}{other}, not {asks}" if other else f"no HIT template called {name!r}"
        raise TemplateError(f"{what}; known: {known}")
    folder = next(root / name for root in roots if (root / name / "hit_type.toml").is_file())
    missing = [file for file in _FILES if not (folder / file).is_file()]
    if missing:
        raise TemplateError(f"HIT template {name!r} lacks {', '.join(missing)} in {folder}")
    fields = _hit_type(folder / "hit_type.toml", asks)
    # What all templates have in common, and what those of one kind have.
    parts = (_SHARED, f"_{kinds[name]}")
    common = [root / part for part in parts for root in roots if (root / part).is_dir()]
    holders = [root for root in roots if any((root / part).is_dir() for part in parts)]
    return HitTemplate(
        name=name,
        title=str(fields["title"]),
        description=str(fields["description"]),
        keywords=str(fields["keywords"]),
        seconds_per_pair=int(str(fields["seconds_per_pair"])),
        questions=_questions(fields, kinds[name], folder / "hit_type.toml"),
        content_hash=_content_hash([folder, *common]),
        asks=kinds[name],
        search_path=(folder, *holders),
    )


def declared_questions(templates: Iterable[str], extra_folder: Path | None = None) -> tuple[Question, ...]:
    """What pages of pairs of these templates ask besides the label: the standard questions first, asked or not.

    Raises:
        TemplateError: a template cannot be loaded, or two mean different things by one name.
    """
    questions = {question.name: question for question in RATIONALE}
    columns = {question.column: question for question in RATIONALE}
    for template in dict.fromkeys(templates):
        for question in load_template(template, extra_folder).questions:
            known = {
                questions.setdefault(question.name, question),
                columns.setdefault(question.column, question),
            }
            if known != {question}:
                raise TemplateError(
                    f"HIT template {template!r} declares the question {question.name!r} otherwise than a template that "
                    "was published before; give one of them another name and column"
                )
    return tuple(questions.values())


def _roots(extra_folder: Path | None) -> list[Path]:
    bundled = resources.folder("hit_templates")
    return [bundled] if extra_folder is None else [extra_folder, bundled]


def _kinds(roots: Sequence[Path]) -> dict[str, str]:
    """Template → what it asks; of one name, the first folder counts."""
    kinds: dict[str, str] = {}
    for root in roots:
        for folder in sorted(root.iterdir()) if root.is_dir() else ():
            if _NAME.fullmatch(folder.name) and (folder / "hit_type.toml").is_file():
                kinds.setdefault(folder.name, _kind(folder / "hit_type.toml"))
    return kinds


def _kind(path: Path) -> str:
    try:
        return _asks(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        return BatchKind.PAIRS  # whoever loads it is told what is wrong with the file


@functools.cache
def _asks(hit_type: str) -> str:
    """A command loads templates dozens of times, and looks through all of them each time."""
    return str(tomllib.loads(hit_type).get("asks", BatchKind.PAIRS))


def _hit_type(path: Path, wanted_kind: str | None) -> dict[str, object]:
    try:
        fields: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise TemplateError(f"{path} is not TOML: {error}") from error
    wanted = {*_TEXT_LIMITS, "seconds_per_pair", "rationale"}
    declared = fields.pop("questions", [])
    asks = fields.pop("asks", BatchKind.PAIRS.value)
    forms = [*BatchKind, *(form for form in _CAMPAIGNS if form != BatchKind.PAIRS)]
    if asks not in (*forms, wanted_kind):
        raise TemplateError(f"asks in {path} is {asks!r}; known: {', '.join(forms)}")
    if set(fields) != wanted:
        raise TemplateError(f"{path} has the keys {sorted(fields)}, but needs exactly {sorted(wanted)}")
    for key, limit in _TEXT_LIMITS.items():
        text = fields[key]
        if not isinstance(text, str) or not 0 < len(text) <= limit:
            raise TemplateError(f"{key} in {path} must be a text of 1 to {limit} characters")
    seconds = fields["seconds_per_pair"]
    if isinstance(seconds, bool) or not isinstance(seconds, int) or seconds < 1:
        raise TemplateError(f"seconds_per_pair in {path} is {seconds!r}, but must be a whole number from 1")
    if not isinstance(fields["rationale"], bool):
        raise TemplateError(f"rationale in {path} is {fields['rationale']!r}, but must be true or false")
    return {**fields, "questions": declared}


def _questions(fields: Mapping[str, object], kind: str, path: Path) -> tuple[Question, ...]:
    """What ``rationale`` and ``[[questions]]`` ask, in the order of the page."""
    declared = fields["questions"]
    if not isinstance(declared, list) or not all(isinstance(table, dict) for table in declared):
        raise TemplateError(f"questions in {path} must be tables; write [[questions]] above each")
    if kind != BatchKind.PAIRS and declared:
        raise TemplateError(f"{path} declares questions, but pages of {kind} ask none beside their own")
    asked = RATIONALE if kind == BatchKind.PAIRS else (TEXT,)
    questions = [*(asked if fields["rationale"] else ()), *((PLAYED,) if kind in _PLAYED else ())]
    for number, table in enumerate(declared, 1):
        questions.append(_question(table, questions, f"question {number} in {path}"))
    return tuple(questions)


def _question(table: dict[str, Any], before: Sequence[Question], where: str) -> Question:
    """One declared question; TemplateError where it could not be asked, kept or released."""

    def refuse(what: str) -> NoReturn:
        raise TemplateError(f"{where} {what}")

    _check_keys(table, _QUESTION_KEYS, ("name", "type", "text"), where)
    name, column = table["name"], table.get("column", table["name"])
    standard = {question.name for question in RATIONALE} | {question.column for question in RATIONALE}
    if not _QUESTION.fullmatch(name) or name in _TAKEN | standard | {question.name for question in before}:
        refuse(f"is called {name!r}; a name has 1 to 32 lower-case letters, and no other field may have it")
    of_others = _TAKEN | standard | {question.column for question in before} | {*OFFICIAL_COLUMNS}
    if not _VALUE.fullmatch(column) or column in of_others:
        refuse(f"has the column {column!r}; write a name of its own in lower-case letters, digits and _")
    if table["type"] not in list(QuestionType):
        refuse(f"has the type {table['type']!r}; known: {', '.join(QuestionType)}")
    kind = QuestionType(table["type"])
    choices = tuple(_choice(choice, place, where) for place, choice in enumerate(table.get("choices", ()), 1))
    if kind is QuestionType.TEXT and choices:
        refuse("is a text, which has no choices")
    if kind is not QuestionType.TEXT and not 2 <= len(choices) <= _MOST_CHOICES:
        refuse(f"has {len(choices)} choices; 2 to {_MOST_CHOICES} can be offered")
    for what, told in (("values", [c.value for c in choices]), ("codes", [c.code for c in choices])):
        if len(set(told)) < len(told):
            refuse(f"has the {what} {told}, but each must differ")
    return Question(
        name=name,
        type=kind,
        text=table["text"],
        choices=choices,
        when=_condition(table["when"], before, where) if "when" in table else None,
        required=table.get("required", False),
        column=column,
        csv="" if kind is QuestionType.TEXT else column,
        title=table.get("title", table["text"]),
        meaning=table.get("meaning", f"Answer to: {table['text']}"),
        noun=f"an answer to {name}",
    )


def _choice(table: object, place: int, where: str) -> Choice:
    if not isinstance(table, dict):
        raise TemplateError(f'{where} has the choice {table!r}; write {{value = "…", text = "…"}}')
    _check_keys(table, _CHOICE_KEYS, ("value", "text"), f"choice {place} of {where}")
    if not _VALUE.fullmatch(table["value"]) or table.get("code", 1) < 1:
        raise TemplateError(
            f"choice {place} of {where} is {table['value']!r} with the code {table.get('code', place)}; a value starts "
            "with a lower-case letter, then has letters, digits and _, and codes count from 1"
        )
    return Choice(table["value"], table["text"], table.get("code", place))


def _condition(table: dict[str, Any], before: Sequence[Question], where: str) -> Condition:
    offers = {LABEL: tuple(Label), **{question.name: question.values for question in before}}
    name, values = next(iter(table.items()), ("", None))
    if len(table) != 1 or not offers.get(name) or not isinstance(values, list) or not values:
        names = ", ".join(name for name, offered in offers.items() if offered)
        raise TemplateError(
            f"when of {where} is {table}; name one question before it and its answers, of: {names}"
        )
    strange = [value for value in values if value not in offers[name]]
    if strange:
        raise TemplateError(f"when of {where} names {strange[0]!r}; {name} offers {', '.join(offers[name])}")
    return Condition(name, tuple(values))


def _check_keys(
    table: Mapping[str, object], known: Mapping[str, type], needed: Sequence[str], where: str
) -> None:
    for key, value in table.items():
        if key not in known:
            raise TemplateError(f"{where} has the key {key!r}; known: {', '.join(known)}")
        if type(value) is not known[key] or value == "":
            raise TemplateError(f"{key} of {where} is {value!r}; write {_KINDS_OF_VALUES[known[key]]}")
    missing = [key for key in needed if key not in table]
    if missing:
        raise TemplateError(f"{where} lacks {', '.join(missing)}")


_KINDS_OF_VALUES = {
    str: "a text",
    list: "a list of choices",
    dict: "{ question = [answers] }",
    bool: "true or false",
    int: "a whole number",
}


def _content_hash(folders: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.startswith("."):
                content = path.read_bytes()
                name = f"{folder.name}/{path.relative_to(folder).as_posix()}"
                digest.update(f"{len(name)}:{name}{len(content)}:".encode())
                digest.update(content)
    return digest.hexdigest()
