"""The report as a file: complete, self-contained, the same each time, and safe with hostile input."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_kit import drawn_once  # noqa: F401 - pytest finds it here
from report_sample import HOSTILE, NAMES, sample_input

from mitl.analysis.records import MachineAnalysis
from mitl.analysis.report import views
from mitl.analysis.report.inputs import EvaluationScore, Found, Multiplicity, ReportInput
from mitl.analysis.report.render import SECTIONS, findings, render_report
from mitl.judgements.agreement import Alpha, PairAgreement
from mitl.records import Direction, Environment, StageResult, Table

pytestmark = pytest.mark.usefixtures("drawn_once")


class Page(HTMLParser):
    """Tags with their attributes, texts by tag, and tags left open."""

    VOID = frozenset({"meta", "img", "br"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the tag."""
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag of SVG that closes itself."""
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Close the innermost tag, which must be this one."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Keep what is shown."""
        if self.open and self.open[-1] not in ("script", "style"):
            self.text += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """The attributes of every tag of that name."""
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the sample's pictures are."""
    return tmp_path_factory.mktemp("pictures")


@pytest.fixture(scope="module")
def html(folder: Path, drawn_once: None) -> str:  # noqa: F811
    """The sample's report."""
    return render_report(sample_input(folder))


def empty_input() -> ReportInput:
    """A project right after ``mitl init``."""
    return ReportInput("p", "coco", Environment.LIVE, 5000, 25000, 0, 0)


def test_the_five_numbers_stand_on_top(html: str) -> None:
    """Pairs, judgements, positives, and recall and precision before and after, ahead of the first section."""
    top = " ".join(Page(html[: html.index('<section id="funnel"')] + "</main></body></html>").text.split())
    for part in ("1,842", "2,060", "873", "24.2 % → 77.9 %", "97.5 % → 96.6 %"):
        assert part in top


def test_without_a_truth_the_growth_of_positives_takes_its_place(tmp_path: Path) -> None:
    """Real data has no complete truth: captions and images per query stand on top instead."""
    data = dataclasses.replace(sample_input(tmp_path), truth=None)

    page = Page(render_report(data))

    assert "Captions per image query" in page.text
    assert "Recall of the truth" not in page.text


def test_where_nobody_judges_pairs_no_section_on_them_stands_empty(folder: Path) -> None:
    """As where only ratings are asked: people, money, how to rebuild it, and what else there is to show."""
    full = sample_input(folder)
    ratings = dataclasses.replace(empty_input(), crowd=full.crowd, money=full.money, batches=full.batches)

    page, scored = (
        Page(render_report(data))
        for data in (ratings, dataclasses.replace(ratings, evaluation=full.evaluation))
    )

    shown = {"workers", "money", "provenance"}
    assert {section["id"] for section in page.all("section")} == shown
    assert {section["id"] for section in scored.all("section")} == {*shown, "evaluation"}
    assert {link["href"] for link in page.all("a")} == {f"#{name}" for name in (*shown, "main")}
    assert "Nobody judges pairs here" in page.text
    assert "Candidate pairs" not in page.text


def test_every_tag_is_closed_and_ids_are_unique(html: str) -> None:
    """The page is well formed, with all sections in place and each link of the navigation leading to one."""
    page = Page(html)

    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert page.open == []
    assert len(ids) == len(set(ids))
    assert {section.id for section in SECTIONS} <= set(ids)
    assert {link["href"] for link in page.all("a")} <= {f"#{id}" for id in ids}


def test_the_file_needs_nothing_else(html: str) -> None:
    """No address, no outside script, style, font or picture; the policy forbids them too."""
    page = Page(html)

    assert all((image["src"] or "").startswith("data:image/jpeg;base64,") for image in page.all("img"))
    assert not page.all("link")
    assert not any("src" in script for script in page.all("script"))
    assert set(re.findall(r"https?://[^\s\"'<)]*", html)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }
    assert "default-src 'none'" in html


def test_the_same_data_gives_the_same_bytes(folder: Path, html: str) -> None:
    """Another process with another hash seed renders the same file."""
    code = (
        "import sys, hashlib, pathlib; from report_sample import sample_input\n"
        "from mitl.analysis.report.render import render_report\n"
        "html = render_report(sample_input(pathlib.Path(sys.argv[1])))\n"
        "print(hashlib.sha256(html.encode()).hexdigest())"
    )
    path = os.pathsep.join(sys.path)

    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "4242"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == hashlib.sha256(html.encode()).hexdigest()


def test_hostile_captions_notes_and_names_are_text(tmp_path: Path, html: str) -> None:
    """Markup from captions, workers, annotators and settings shows as written, and no tag comes of it."""
    data = sample_input(tmp_path, caption=HOSTILE, names=(HOSTILE, *NAMES[1:]))
    data = dataclasses.replace(
        data,
        project=HOSTILE,
        release=HOSTILE,
        notes=(HOSTILE,),
        provenance=dataclasses.replace(data.provenance, seeds=((HOSTILE, HOSTILE),)),
    )
    plain = Page(html)

    hostile = render_report(data)

    page = Page(hostile)
    assert "<script>alert" not in hostile
    assert len(page.all("script")) == len(plain.all("script")) == 1
    assert len(page.all("img")) == len(plain.all("img"))
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert HOSTILE in page.text


def test_a_section_without_data_names_the_command_that_fills_it() -> None:
    """A fresh project's report has the strip on top and all sections, each one line and a command, no empty plot."""
    html = render_report(empty_input())

    page = Page(html)
    assert html.count('class="empty"') == len(SECTIONS) + 1
    assert len(page.all("code")) == len(SECTIONS) + 1
    assert not page.all("svg")
    assert "mitl propose" in page.text
    assert "No release is built yet" in page.text


def test_the_page_stays_under_its_size_by_its_pictures(tmp_path: Path) -> None:
    """With room for the text and a few small pictures, the rest is named in words instead of shown."""
    data = sample_input(tmp_path)
    limit = len(render_report(data, max_bytes=0).encode()) + 15_000

    html = render_report(data, max_bytes=limit)

    page = Page(html)
    assert len(html.encode()) <= limit
    assert 0 < len(page.all("img")) < len(views.picture_uses(data))
    assert "not in this file" in page.text


def test_a_missing_picture_is_named_in_words(tmp_path: Path) -> None:
    """An image file that is gone leaves its id, its answer and no broken picture."""
    data = sample_input(tmp_path, examples=1)
    before = Page(render_report(data))
    (tmp_path / "0-0.png").unlink()

    page = Page(render_report(data))

    assert "image 0 (not in this file)" in page.text
    assert len(page.all("img")) == len(before.all("img")) - 1


def test_frames_are_said_in_words_too(html: str) -> None:
    """Original, yes, weak yes and refused do not depend on seeing colours."""
    page = Page(html)

    for words in ("original · judged yes", "judged weak yes", "judged weak no", "judged no", "rated 3.6"):
        assert words in page.text


def test_tables_and_pictures_can_be_read_aloud(html: str) -> None:
    """Every header has a scope, every table a caption, every picture an alternative; landmarks exist."""
    page = Page(html)

    assert all(header.get("scope") in ("col", "row", "colgroup") for header in page.all("th"))
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(image.get("alt") for image in page.all("img"))
    assert all(svg.get("aria-label") for svg in page.all("svg"))
    assert [len(page.all(tag)) for tag in ("main", "nav", "header", "footer", "h1")] == [1, 1, 1, 1, 1]


def test_sentences_on_top_say_what_the_tiles_do_not(html: str) -> None:
    """Growth, refused originals, controls with agreement, cost and pay, and which machine ranks best; each linked."""
    page = Page(html)

    for words in (
        "matching captions on average instead of 5.0",
        "People refused 12 of the 240 original pairs that they judged",
        "hidden controls as expected; on the 104 pairs that several answered, their agreement is α = 0.78",
        "$105.40 were paid; HITs of pairs cost $0.12 for each positive pair.",
        "at least 133 of image queries (Chao's bound), so the recall of what they proposed is at most 78.3 %",
        "1,790 of 1,842 candidates with a usable one",
        "8.3 positives a dollar",
        "original → release, over 2,340 of 2,600 released pairs (90.0 %), those of the queries asked",
        "ranks best",
    ):
        assert words in page.text


def test_machines_are_compared_where_all_of_them_are_scored(tmp_path: Path) -> None:
    """One that is scored on the original annotation alone, or in one direction, is not the best before or after."""
    data = sample_input(tmp_path)
    (usual,) = (one.text for one in findings(data) if one.section == "evaluation")
    strangers = (
        *(EvaluationScore("stranger", "original", way, "mAP@R", 0.99) for way in Direction),
        *(EvaluationScore("half", name, Direction.T2I, "mAP@R", 1.0) for name in ("original", "release")),
    )

    told = findings(dataclasses.replace(data, evaluation=(*data.evaluation, *strangers)))

    assert [one.text for one in told if one.section == "evaluation"] == [usual]


def test_a_machine_that_was_best_before_and_after_is_not_said_to_have_overtaken(tmp_path: Path) -> None:
    """Two that tied on the original annotation were both best there."""
    data = sample_input(tmp_path)
    best = {
        ("vit", "original"): 0.5,
        ("clip", "original"): 0.5,
        ("clip", "release"): 0.9,
        ("vit", "release"): 0.1,
    }
    scores = tuple(
        EvaluationScore(name, positives, Direction.I2T, "mAP@R", value)
        for (name, positives), value in best.items()
    )

    (found,) = (
        one.text
        for one in findings(dataclasses.replace(data, evaluation=scores))
        if one.section == "evaluation"
    )

    assert found.startswith("clip ranks best by mAP@R, before and after")


def test_agreement_without_an_interval_is_no_headline(tmp_path: Path) -> None:
    """Of so few pairs alpha says nothing; the section on workers shows it with the reason."""
    data = sample_input(tmp_path)
    shared = PairAgreement(Alpha(0.0, None, None, units=1, answers=2), 0, 1)

    text = Page(
        render_report(dataclasses.replace(data, crowd=dataclasses.replace(data.crowd, agreement=shared)))
    ).text

    assert "hidden controls as expected." in text
    assert "too few pairs for an interval" in text


def test_found_matches_stand_under_the_numbers_with_what_the_annotation_holds(html: str) -> None:
    """The rule that chose them, pictures or their lack, answers, annotators, and whose caption it was."""
    text = " ".join(Page(html).text.split())
    strip = text[text.index("Matches that the annotation lacks") : text.index("matching captions on average")]

    for words in (
        "Of 641 such pairs the first 6 by a fixed rule: most plain yes",
        "no image and no caption twice",
        "two red circles left of a blue square, found 0 2 people: yes, yes found by pvse-mini #1, vsrn-mini #3",
        "image 205 (no file at hand)",
        "annotated: image 205 with two red circles left of a blue square, of the image 5 and 1 more; "
        "caption 1205 with image 305 alone",
    ):
        assert words in strip
    assert text.index("beyond the originals") < text.index(strip)


def test_without_a_found_match_one_line_says_how_many_pairs_were_answered() -> None:
    """Nobody asked and nothing found are not the same."""
    page = Page(render_report(dataclasses.replace(empty_input(), found=Found(of=1200))))

    words = "None of the 1,200 answered pairs beyond the original annotation is a match that a release keeps."
    assert words in page.text


def test_disagreements_show_every_answer_and_what_contradicts_them(html: str) -> None:
    """Answers one by one, the original annotation, CxC, the machines' ranks, the truth; and kinds without a case."""
    page = Page(html)

    for words in (
        "12 of 240 (5.0 %)",
        "0 of 31 (0.0 %)",
        "yes, no, no; together no",
        "original pair · rated 4.2",
        "truth: weak yes",
        "mitl review originals",
    ):
        assert words in " ".join(page.text.split())


def test_a_long_gallery_says_how_much_it_leaves_out(html: str) -> None:
    """Three items of nine are shown, and the page says so."""
    assert "2 of 9" in " ".join(Page(html).text.split())


def test_scores_stand_with_their_intervals_and_sort_by_their_value(html: str) -> None:
    """The table's cell carries the number apart from its interval."""
    assert re.search(r'data-value="0\.4[0-9]*">4\d\.\d<small>3\d\.\d–4\d\.\d</small>', html)


def test_sets_that_a_drawing_has_no_mark_for_are_named(tmp_path: Path, html: str) -> None:
    data = sample_input(tmp_path)
    more = [dataclasses.replace(data.evaluation[0], positives=f"official-{n}") for n in range(5)]

    page = render_report(dataclasses.replace(data, evaluation=(*data.evaluation, *more)))

    assert "where they were made. In the tables alone: official-3, official-4.<" in page
    assert "In the tables alone" not in html


def test_probabilities_diversity_and_bias_have_plots_and_tables(html: str) -> None:
    """The sections of the machines and of the probabilities are filled, with a reason where they cannot be."""
    page = " ".join(Page(html).text.split())
    empty = Page(
        render_report(
            dataclasses.replace(empty_input(), machines=MachineAnalysis(left_out={"bias": "no answers"}))
        )
    )
    why = "bias takes two annotators, but there are i2t rankings of 'clip' alone"
    alone = Page(
        render_report(dataclasses.replace(empty_input(), machines=MachineAnalysis(left_out={"bias": why})))
    )

    answered, fused = (
        html[html.index(f'<section id="{name}"') :].split("</section>")[0]
        for name in ("reliability", "fusion")
    )
    assert "against the known truth: stated" in answered
    assert "against what people found" in fused
    assert "Calibration error" in page
    assert "two metrics' orders of 5 models" in page
    assert "graded answers, mean over the queries" in page
    assert "Mean τ-b over the items of either list, top 25 of 120 queries." in page
    assert "from the truth" in page
    assert "No answers; mitl harvest" in empty.text
    assert "'clip' alone; mitl propose" in alone.text


def test_the_steps_of_the_rebuilding_stand_in_order_with_their_hashes(html: str) -> None:
    """Commands as typed, what they cannot say, and what they must come to."""
    text = Page(html).text

    assert (
        text.index("mitl init --dataset scenes") < text.index("c668") < text.index("mitl harvest --sandbox")
    )


def test_only_the_busiest_of_many_workers_are_listed(tmp_path: Path) -> None:
    """A thousand rows that nobody reads would only slow the page; a command writes them all."""
    data = sample_input(tmp_path, examples=0)
    assert data.crowd is not None
    many = dataclasses.replace(data.crowd, workers=data.crowd.workers * 40)

    html = render_report(dataclasses.replace(data, crowd=many))

    assert "The 200 busiest of 960 workers" in html
    assert "mitl workers --csv FILE" in html
    assert html.count(data.crowd.workers[0].pseudonym) <= 200


def test_a_preference_study_stands_with_the_scores(html: str, tmp_path: Path) -> None:
    """Its rows and what to know of them; nothing where nobody was asked, the reason where it cannot be scored."""
    data = sample_input(tmp_path, examples=0)
    table = Table("Scores in percent", ("system", "score"), (("clip <b>", "70.85"),))
    scored = StageResult(tables=(table,), lines=("12 preferences count",))
    asked = Page(render_report(dataclasses.replace(data, preference=scored)))
    unscored = StageResult(lines=("the scores have no maximum",))
    without = Page(render_report(dataclasses.replace(data, evaluation=(), preference=unscored)))

    assert "What people preferred" not in html
    assert "clip <b>" in asked.text
    assert "12 preferences count." in asked.text
    assert "The scores have no maximum." in without.text


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ((1, 1, 1), (1, 3, 2), ("1.0", "2.0")),
        ((1,) * 50, (1,) * 48 + (2, 2), ("1.00", "1.04")),
        ((1, 1), (1, 1), ("1.0", "1.0")),
    ],
)
def test_a_mean_that_grew_never_looks_as_if_it_had_not(
    before: tuple[int, ...], after: tuple[int, ...], shown: tuple[str, str]
) -> None:
    """From 1.0 to 1.0 at 1.04 times as many would read as a mistake."""
    counts = Multiplicity(Direction.T2I, before, after, len(before), len(before), len(before))

    (row,) = views.multiplicity_rows([counts])

    assert row.means == shown


def test_commands_in_lines_of_an_analysis_are_code_and_nothing_else_is_markup(tmp_path: Path) -> None:
    """Lines may quote names that strangers chose."""
    data = sample_input(tmp_path)
    said = dataclasses.replace(data.analyses[0], lines=(f"{HOSTILE}; see `mitl audit plan`",))

    page = render_report(dataclasses.replace(data, analyses=(said,)))

    assert "<code>mitl audit plan</code>" in page
    assert HOSTILE not in page


def test_captions_are_read_from_the_side_of_their_letters(tmp_path: Path) -> None:
    """A caption in Hebrew keeps its marks at its own end, wherever it stands."""
    html = render_report(sample_input(tmp_path, caption="שלום"))

    assert set(re.findall(r"<[^<>]*>(?=שלום)", html)) == {"<bdi>", '<q dir="auto">'}
