"""A question that a project's own template declares: one folder, and it is asked, kept, shown, released, reported."""

from __future__ import annotations

import json
import shutil

import pyarrow.parquet as pq
import pytest
from cli_kit import ok
from desk_kit import open_desk
from world_kit import SANDBOX, make_world, run_propose, run_publish

from mitl import resources
from mitl.crowd.answers import parse_answers
from mitl.db.session import open_database
from mitl.db.store import columns, judgements
from mitl.errors import TemplateError
from mitl.hits.rendering import PagePair, render_page
from mitl.hits.templates import declared_questions, load_template
from mitl.hits.validation import PageChecker, fields_of
from mitl.protocol.answer_xml import answers_xml
from mitl.records import Label
from mitl.records.questions import CONCEPT, RATIONALE, SHORTCOMING
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate
from mitl.stages.releasing.build_dataset import ReleaseOptions, build_dataset
from mitl.stages.reporting.report import report
from mitl.stages.reviewing.show import show

pytest_plugins = ("browser_fixtures", "hit_page_fixtures")

BUNDLED = resources.folder("hit_templates")
QUESTIONS = """
[[questions]]
name = "readable"
type = "choice"
text = "Is the picture readable?"
required = true
title = "Readable pictures"
meaning = "Whether the worker could make out the picture."
choices = [
  {value = "clear", text = "Yes"},
  {value = "barely", text = "Barely", code = 5},
  {value = "not_at_all", text = "No", code = 9},
]

[[questions]]
name = "blur"
type = "text"
text = "What is hard to see?"
when = {readable = ["barely", "not_at_all"]}
"""


def add_template(folder, questions=QUESTIONS, base="pairs-plain", name="pairs-readable"):
    """A project's own template: a bundled one's folder, with further questions in its ``hit_type.toml``."""
    own = folder / "hit_templates" / name
    shutil.copytree(BUNDLED / base, own)
    with (own / "hit_type.toml").open("a", encoding="utf-8") as file:
        file.write(questions)
    return folder / "hit_templates"


@pytest.mark.slow
def test_a_new_question_runs_from_its_folder_to_the_report(tmp_path):
    """Published, answered over HTTP by scripted workers, harvested, reviewed, released, described, reported."""
    settings = make_world(tmp_path, n_images=14)
    add_template(tmp_path)
    run_propose(settings, image_queries=3, caption_queries=5)
    run_publish(settings, template="pairs-readable")
    simulate(settings, SANDBOX, population="random", hits_per_worker=2)
    harvested = harvest(settings, SANDBOX)
    assert harvested.counts["queued"]

    with open_database(settings.db_url, read_only=True) as session:
        stored = judgements.judgements(session, SANDBOX)
        questions = declared_questions(["pairs-readable"], settings.wordings)
        frame = columns.judgement_columns(session, SANDBOX, questions=questions, with_texts=True)
        waiting = {row.assignment_id for row in stored}
    given = [one.record.given for one in stored]
    assert {answers["readable"] for answers in given} == {("clear",), ("barely",), ("not_at_all",)}
    assert all(("blur" in answers) == (answers["readable"] != ("clear",)) for answers in given)
    assert sorted(set(frame["readable"])) == [1, 2, 4]
    assert frame["blur"].notna().sum() == sum("blur" in answers for answers in given)

    number = min(waiting)
    reasons = [row[4] for row in show(settings, number, SANDBOX).tables[0].rows]
    assert any(cell.startswith("readable: barely, blur: a scripted") for cell in reasons)
    with open_desk(settings) as desk:
        assert "readable: barely" in desk.get(f"/queue/{number}").text

    ok("review", "settle", "--project", tmp_path)
    simulate(settings, SANDBOX, population="careful")
    run_publish(settings, template="pairs-readable")
    simulate(settings, SANDBOX, population="careful")
    harvest(settings, SANDBOX)
    build_dataset(settings, tmp_path / "release", SANDBOX, options=ReleaseOptions(with_texts=True))
    table = pq.read_table(tmp_path / "release" / "judgements.parquet")
    names = table.schema.names
    reasons = ["shortcomings", "concepts", "readable"]
    assert names[names.index("outcome") + 1 : -1] == [*reasons, "active_ms", "usable", "text"]
    assert names[-1] == "blur"
    assert set(table["readable"].to_pylist()) == {"clear", "barely", "not_at_all"}
    header, *lines = (tmp_path / "release" / "mturk_parsed.csv").read_text().splitlines()
    assert header == "model,ranking,score,cid,iid,annotation,shortcoming,shortcoming2,readable"
    assert {line.rpartition(",")[2] for line in lines} == {"1", "5", "9"}
    described = json.loads((tmp_path / "release" / "croissant.json").read_text())
    fields = [field for records in described["recordSet"] for field in records["field"]]
    (readable,) = [field for field in fields if field["name"] == "judgements/readable"]
    assert readable["description"] == "Whether the worker could make out the picture."
    report(settings, tmp_path / "report.html", SANDBOX)
    assert "Readable pictures, percent of ticks." in (tmp_path / "report.html").read_text()


def test_what_a_template_declares_is_on_its_page_and_checked_there(tmp_path):
    """Choices and texts with their conditions; a page that leaves a declared field out is not posted."""
    template = load_template("pairs-readable", add_template(tmp_path))
    html = render_page(template, [PagePair(1, "/i/a.jpg", "A cat.")])

    assert "<legend>Is the picture readable?</legend>" in html
    assert "<input type=radio name=p01_readable value=barely>Barely" in html
    assert 'data-when="readable barely not_at_all"' in html
    fields = [("label", tuple(Label)), *fields_of(template.questions)]
    PageChecker().check(html, [1], [], "pairs-readable", fields)
    for part, named in ((" value=barely", "p01_readable with barely"), (" name=p01_blur", "p01_blur, so")):
        with pytest.raises(TemplateError, match=named):
            PageChecker().check(html.replace(part, ""), [1], [], "pairs-readable", fields)


def test_standard_questions_stay_first_and_keep_their_codes(tmp_path):
    """``rationale = true`` and own questions together; the official codes are the places from 1."""
    folder = add_template(tmp_path, base="pairs-rationale")

    asked = load_template("pairs-readable", folder).questions

    assert asked[:3] == RATIONALE
    assert [choice.code for choice in CONCEPT.choices] == list(range(1, 11))
    assert [choice.code for choice in SHORTCOMING.choices] == [1, 2, 3, 4]
    assert declared_questions(["pairs-plain", "pairs-readable"], folder) == asked


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "readable"', 'name = "concept"', "question 1 in .* is called 'concept'; a name has 1 to 32"),
        ('name = "readable"', 'name = "ms"', "is called 'ms'; .* no other field may have it"),
        ('type = "choice"', 'type = "rating"', "has the type 'rating'; known: choice, choices, text"),
        ('type = "choice"', 'type = "text"', "is a text, which has no choices"),
        ('value = "barely", ', 'value = "clear", ', "has the values .* but each must differ"),
        ("code = 5", "code = 1", "has the codes .* but each must differ"),
        ('value = "barely"', 'value = "Barely"', "choice 2 of question 1 .* starts with a lower-case letter"),
        ("required = true", "required = 1", "required of question 1 .* is 1; write true or false"),
        ("required = true", "require = true", "question 1 .* has the key 'require'; known: name, type"),
        (
            "when = {readable",
            "when = {label",
            "when of question 2 .* names 'barely'; label offers yes, weak_yes",
        ),
        (
            "when = {readable",
            "when = {blur",
            "name one question before it and its answers, of: label, readable",
        ),
        ('text = "What is hard to see?"', "", "question 2 in .* lacks text"),
        ('type = "choice"', 'type = "choice"\ncolumn = "pair"', "has the column 'pair'"),
        ('name = "readable"', 'name = "score"', "has the column 'score'"),  # the CSV's own, of a ranking
    ],
)
def test_a_faulty_declaration_is_one_line(tmp_path, old, new, message):
    """Which question of which file, what was found, what would be right."""
    assert old in QUESTIONS
    folder = add_template(tmp_path, QUESTIONS.replace(old, new, 1))

    with pytest.raises(TemplateError, match=message):
        load_template("pairs-readable", folder)


def test_rankings_take_no_questions_and_one_name_has_one_meaning(tmp_path):
    """What would be ignored is refused, as are two templates that a release could not tell apart."""
    add_template(tmp_path, base="rankings-plain", name="rankings-readable")
    with pytest.raises(TemplateError, match="pages of rankings ask none beside their own"):
        load_template("rankings-readable", tmp_path / "hit_templates")
    folder = add_template(tmp_path)
    add_template(tmp_path, QUESTIONS.replace("Barely", "Hardly"), name="pairs-hardly")
    with pytest.raises(TemplateError, match="'pairs-hardly' declares the question 'readable' otherwise"):
        declared_questions(["pairs-readable", "pairs-hardly"], folder)


def test_a_declared_question_insists_and_opens_its_follow_up(open_page, site, tmp_path):
    """In the browser: a pair is done once it is answered, and what follows is asked only where its condition is met."""
    template = load_template("pairs-readable", add_template(tmp_path))
    site.pages["/own"] = render_page(template, [PagePair(n, f"/i/{n}.png", f"Text {n}.") for n in (1, 2)])
    page = open_page("/own" + site.query())

    page.check("[name=p01_label][value=yes]")
    assert page.text_content("#count") == "0 of 2" and page.is_hidden("#p01 [name=p01_blur]")
    page.check("[name=p01_readable][value=barely]")
    assert page.text_content("#count") == "1 of 2" and page.is_visible("#p01 [name=p01_blur]")
    page.fill("[name=p01_blur]", "the sign")
    page.check("[name=p02_label][value=no]")
    page.check("[name=p02_readable][value=not_at_all]")
    page.fill("[name=p02_blur]", "all")
    page.check("[name=p02_readable][value=clear]")
    page.click("#send")
    page.wait_for_selector("#thanks")

    ((_, fields),) = site.posted
    parsed = parse_answers(answers_xml(fields), places=[1, 2], questions=template.questions)
    assert parsed.findings == ()
    assert [answer.given for answer in parsed.answers] == [
        {"readable": ("barely",), "blur": ("the sign",)},
        {"readable": ("clear",)},
    ]


def test_a_declared_choice_may_be_called_as_an_outcome_is(open_page, site, tmp_path):
    """Answers and skips set the outcome, and tick nothing that the worker did not tick."""
    named = (
        QUESTIONS.replace("clear", "answered")
        .replace("barely", "skipped")
        .replace("not_at_all", "image_failed")
    )
    template = load_template("pairs-readable", add_template(tmp_path, named.replace("required = true", "")))
    site.pages["/own"] = render_page(template, [PagePair(n, f"/i/{n}.png", f"Text {n}.") for n in (1, 2)])
    page = open_page("/own" + site.query())

    for key in "sk1si":
        page.keyboard.press(key)

    sent = page.evaluate(
        "[...new FormData(mturk_form)].filter(([name]) => /_(label|readable|outcome)$/.test(name))"
    )
    assert sent == [["p01_label", "yes"], ["p01_outcome", "answered"], ["p02_outcome", "image_failed"]]
