"""The explorer: the pairs of database and release, filtered as plain code would filter them, for reading only."""

from __future__ import annotations

import re
import shutil
from html import unescape

import httpx
import numpy as np
import pandas as pd
import pytest
from cli_kit import fails, ok
from hypothesis import given, settings
from hypothesis import strategies as st
from release_kit import world
from text_kit import write_beir
from world_kit import SANDBOX, make_world, run_build, run_propose, run_publish

from mitl.core.arrays import pack_ids
from mitl.crowd_server.serving import RunningServer
from mitl.errors import ReleaseError, UsageError
from mitl.explorer.app import A_PAGE, create_app, explore
from mitl.explorer.pairs import (
    AgreementFilter,
    AnnotationFilter,
    AnswerFilter,
    ExploredItem,
    Filters,
    Finder,
    ShownFirst,
    explored,
    partners,
)
from mitl.explorer.sources import of_project, of_release
from mitl.positives.release import write_release
from mitl.records import Label
from mitl.records.forms import SET_FORMS
from mitl.records.frames import LABELS
from mitl.settings import load
from mitl.stages.evaluating.opened import load as open_release
from mitl.stages.harvesting.harvest import harvest
from mitl.stages.hits.simulate import simulate

HOSTILE = "<script>alert(1)</script> a & b"


@pytest.fixture(scope="module")
def worked(tmp_path_factory):
    """A project with answers, many pairs asked twice of hasty workers, and a release."""
    made = make_world(tmp_path_factory.mktemp("explored") / "p", n_images=12)
    run_propose(made, image_queries=5, caption_queries=12)
    run_publish(made, overlap=0.8)
    simulate(made, SANDBOX, population="hasty", hits_per_worker=2)
    harvest(made, SANDBOX)
    run_build(made)
    return made


def named(of, column):
    """The pairs at which a column is true, by external ids."""
    images, captions = of.sides
    return {
        (of.images[images[row]].name, of.captions[captions[row]].name)
        for row in np.flatnonzero(of.pairs[column].to_numpy())
    }


def ids(table):
    return set(zip(table["image_id"].astype(str), table["caption_id"].astype(str), strict=True))


def test_a_project_and_its_release_show_the_same_positives_and_answers(worked):
    """By external ids; the project knows ranks and open pairs besides, the release neither."""
    project, release = of_project(worked, SANDBOX), of_release(worked.project / "release", worked)
    positives = ids(open_release(worked.project / "release").positives)

    assert named(project, "positive") == named(release, "positive") == positives
    assert project.has_ranks and not release.has_ranks
    assert len(project.pairs) >= len(release.pairs)
    joined = project.pairs.merge(release.pairs, on="pair", suffixes=("", "_too"))
    assert len(joined) == len(release.pairs)
    for column in ("label", "yes", "no", "original", "positive"):
        assert joined[column].tolist() == joined[f"{column}_too"].tolist()
    assert (joined["yes"] + joined["no"]).max() > 1


def test_a_release_stands_alone(worked, tmp_path, monkeypatch):
    """Without a project: ids in their order, no text, no picture; with one of another data set: one clear line."""
    shutil.copytree(worked.project / "release", tmp_path / "release")
    alone = of_release(tmp_path / "release", load(tmp_path, environ={}))

    assert named(alone, "positive") == ids(open_release(tmp_path / "release").positives)
    assert [int(one.name) for one in alone.images] == sorted(int(one.name) for one in alone.images)
    assert not any(one.text for one in alone.captions)
    told = []
    monkeypatch.setattr(
        "mitl.explorer.app.run_server", lambda app, host, port, *, ready: ready("http://here")
    )
    for of in (alone, of_release(worked.project / "release", worked)):
        explore("release", of, host="127.0.0.1", port=0, browser=False, announce=told.append)
    assert [len(one.warnings) for one in told] == [1, 0] and "ids alone" in told[0].warnings[0]
    other = make_world(tmp_path / "other", n_images=2)
    with pytest.raises(ReleaseError, match=r"is of another data set than this project, .*--project"):
        of_release(tmp_path / "release", other)
    manifest = tmp_path / "release" / "manifest.json"  # as versions wrote it that named no data set
    manifest.write_text(re.sub(r'  "dataset_sha256": ".*",\n', "", manifest.read_text("utf-8")), "utf-8")
    with pytest.raises(ReleaseError, match=r"names image_id '\d+', the project has such as '1'"):
        of_release(tmp_path / "release", other)


WORDS = ("red", "Star", "two", HOSTILE)


@st.composite
def worlds(draw):
    """Pairs of all kinds, with answers and proposals."""
    n_images, n_captions = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    places = [(i, c) for i in range(n_images) for c in range(n_captions)]
    known = draw(st.lists(st.sampled_from(places), unique=True, min_size=1))
    flags = st.booleans()
    rows = [(i, c, draw(st.integers(-1, len(LABELS) - 1)), draw(flags), draw(flags)) for i, c in known]
    answers = [(i, c, draw(flags)) for i, c in known for _ in range(draw(st.integers(0, 3)))]
    proposals = [
        (i, c, draw(st.integers(0, 1)), draw(st.integers(1, 5)))
        for i, c in draw(st.lists(st.sampled_from(places), max_size=8))
    ]
    captions = [
        ExploredItem(str(c), " ".join(draw(st.lists(st.sampled_from(WORDS), max_size=3))))
        for c in range(n_captions)
    ]
    return rows, answers, proposals, ([ExploredItem(str(i)) for i in range(n_images)], captions)


def built(world):
    rows, answers, proposals, items = world

    def pairs(of):
        return pack_ids(
            np.array([one[0] for one in of], np.int64), np.array([one[1] for one in of], np.int64)
        )

    known = pd.DataFrame({"pair": pairs(rows), **{n: [r[k] for r in rows] for k, n in COLUMNS}})
    asked = pd.DataFrame({"pair": pairs(answers), "yes": np.array([one[2] for one in answers], np.bool_)})
    proposed = pd.DataFrame(
        {
            "pair": pairs(proposals),
            "annotator": np.array([p[2] for p in proposals], np.int64),
            "rank": np.array([p[3] for p in proposals], np.int64),
        }
    )
    return explored(known, proposed, asked, items, ("one", "two"))


COLUMNS = ((2, "label"), (3, "original"), (4, "positive"))
FILTERS = st.builds(
    Filters,
    q=st.sampled_from(["", "STAR", "red two", "absent"]),
    kind=st.sampled_from(AnnotationFilter),
    answer=st.sampled_from(AnswerFilter),
    agreement=st.sampled_from(AgreementFilter),
    by=st.sampled_from(["", "one", "two"]),
    rank=st.integers(0, 5),
    order=st.sampled_from(ShownFirst),
)


@settings(max_examples=80)
@given(worlds(), FILTERS)
def test_filters_take_what_a_plain_loop_takes(world, wanted):
    """All filters together, for pairs that were answered, proposed, both or neither; the order is the one asked for."""
    rows, answers, proposals, (_, captions) = world
    of = built(world)
    by_pair = {(i, c): (label, original, positive) for i, c, label, original, positive in rows}
    taken = {}
    for pair in {*by_pair, *((i, c) for i, c, *_ in proposals)}:
        label, original, positive = by_pair.get(pair, (-1, False, False))
        said = [yes for i, c, yes in answers if (i, c) == pair]
        ranks = [r for i, c, a, r in proposals if (i, c) == pair and wanted.by in ("", of.annotators[a])]
        name = LABELS[label].value if label >= 0 else "unanswered"
        match = "match" if label >= 0 and LABELS[label].is_positive else "no-match" if label >= 0 else ""
        kinds = {
            "found": positive and not original,
            "original": original,
            "refused": original and match == "no-match",
            "negative": not original and not positive,
        }
        agrees = {
            "split": len(set(said)) == 2,
            "same": len(said) > 1 and len(set(said)) == 1,
            "one": len(said) == 1,
        }
        text = captions[pair[1]].text.lower()
        if (
            (not wanted.kind or kinds[wanted.kind])
            and (not wanted.answer or wanted.answer in (name, match))
            and (not wanted.agreement or agrees[wanted.agreement])
            and (not (wanted.by or wanted.rank) or any(not wanted.rank or r <= wanted.rank for r in ranks))
            and all(word in text for word in wanted.q.lower().split())
        ):
            best = min((r for i, c, _, r in proposals if (i, c) == pair), default=10**9)
            taken[pair] = {
                "": 0,
                "rank": best,
                "answers": -len(said),
                "doubt": -min(sum(said), len(said) - sum(said)),
            }

    found = [tuple(int(side[row]) for side in of.sides) for row in Finder(of).rows(wanted)]

    assert found == sorted(taken, key=lambda pair: (taken[pair][wanted.order.value], pair))
    for side in (0, 1):
        for place in range(len((of.images, of.captions)[side])):
            own = [row for row in range(len(of.pairs)) if of.sides[side][row] == place]
            assert partners(of, side, place).tolist() == own


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"kind": "odd"}, "kind is 'odd'; it can be: found, original, refused, negative"),
        ({"rank": "-1"}, "rank is '-1', but it is a whole number from 1 to 2,147,483,647"),
        ({"page": "2147483648"}, "page is '2147483648', but it is a whole number from 1 to 2,147,483,647"),
        ({"page": "9" * 40}, "page is"),
        ({"by": "nobody"}, "no annotator is called 'nobody'; there are: one, two"),
    ],
)
def test_an_address_that_cannot_be_is_one_line(given_, words):
    """What was found, and what it can be."""
    with pytest.raises(UsageError, match=re.escape(words)):
        Filters.of(given_, ("one", "two"))


@given(FILTERS.filter(lambda one: one.q != "absent"))
def test_an_address_can_be_shared(wanted):
    """What stands in the address gives the same filters again."""
    assert Filters.of(wanted.given, ("one", "two")) == wanted


def test_pages_show_pairs_and_no_worker(worked):
    """Every page of every item answers; pictures come by their place; no id of a worker is anywhere."""
    of = of_project(worked, SANDBOX)
    with (
        RunningServer(create_app("lab", of)) as server,
        httpx.Client(base_url=server.url, trust_env=False) as browser,
    ):
        first = browser.get("/")
        found = browser.get("/", params={"kind": "found", "order": "rank"})
        pages = [browser.get(f"/image/{at}") for at in range(len(of.images))]
        pages += [browser.get(f"/caption/{at}") for at in range(0, len(of.captions), 7)]
        last = browser.get("/", params={"page": "100000"})
        picture = browser.get("/picture/0")
        odd = [
            browser.get(path).status_code
            for path in (
                "/?kind=odd",
                "/image/999",
                "/other/1",
                "/picture/999",
                f"/?page=000000000001{'9' * 4500}",
            )
        ]
        foreign = browser.get("/", headers={"Host": "evil.example"})

    assert len(re.findall('<li class="pair">', first.text)) == min(A_PAGE, len(of.pairs))
    assert f"of {int((of.pairs['positive'] & ~of.pairs['original']).sum())} pairs" in found.text
    assert all(page.status_code == 200 for page in [*pages, last])
    assert picture.headers["content-type"] == "image/png" and len(picture.content) > 100
    assert odd == [422, 404, 404, 404, 422] and foreign.status_code == 421
    assert "script-src 'self'" in first.headers["content-security-policy"]
    told = "".join(page.text for page in [first, found, *pages])
    assert "worker" not in told and not re.search(r"\bA[0-9A-Z]{12,}\b", told)


def test_documents_and_queries_are_called_so(tmp_path):
    """A set of texts: both sides are read, every original positive is one, and pages are named after the sides."""
    made = write_beir(tmp_path / "texts")
    ok("init", str(tmp_path / "p"), "--dataset", str(made))
    of = of_project(load(tmp_path / "p", environ={}), SANDBOX)
    with (
        RunningServer(create_app("lab", of)) as server,
        httpx.Client(base_url=server.url, trust_env=False) as browser,
    ):
        all_pairs, document, query = (browser.get(path) for path in ("/", "/document/0", "/query/0"))
        missing = browser.get("/image/0")

    qrels = (made / "qrels" / "test.tsv").read_text().splitlines()[1:]
    positive = {tuple(reversed(line.split("\t")[:2])) for line in qrels if not line.endswith("\t0")}
    assert named(of, "original") == named(of, "positive") == positive
    assert "Words of the query" in all_pairs.text and missing.status_code == 404
    assert of.images[0].text.split("\n")[0] in unescape(document.text)
    assert "written for document" in query.text


@pytest.mark.parametrize("sides", SET_FORMS)
def test_a_release_of_any_kind_is_explored(tmp_path, sides):
    """By the names of its own sides."""
    write_release(tmp_path / "release", world(sides=sides))
    of = of_release(tmp_path / "release", load(tmp_path, environ={}))

    assert of.names == sides
    table = open_release(tmp_path / "release").positives[[f"{side}_id" for side in sides]]
    assert named(of, "positive") == set(table.astype(str).itertuples(index=False, name=None))


def test_only_what_people_refused_is_called_so():
    """A recipe leaves out originals that nobody judged, and an exclusion list matches: nobody said no to them."""
    yes, no = LABELS.index(Label.YES), LABELS.index(Label.NO)
    rows = [
        (0, 0, -1, True, False),
        (0, 1, no, True, False),
        (0, 2, yes, False, False),
        (0, 3, no, False, False),
        (0, 4, -1, False, False),
    ]
    of = built((rows, [], [], ([ExploredItem("1")], [ExploredItem(str(c), f"word{c}") for c in range(5)])))
    with (
        RunningServer(create_app("lab", of)) as server,
        httpx.Client(base_url=server.url, trust_env=False) as browser,
    ):
        item, refused = browser.get("/image/0").text, browser.get("/", params={"kind": "refused"}).text

    said = r"<h2>(.*?) <small>|(word\d)|>(original[\w, ]*)<"
    assert [part for parts in re.findall(said, item) for part in parts if part] == [
        *("The original annotation", "word0", "original, left out", "word1", "original, refused"),
        *("Refused: near misses", "word3"),
        *("Answered as a match, and left out of a release", "word2"),
        *("Not answered yet", "word4"),  # and nobody proposed it: a rating alone names it
    ]
    assert re.findall(r"word\d", refused) == ["word1"]


def test_the_first_image_of_a_composed_query_is_shown_from_where_it_lies():
    """An address where the data set names one in place of a file."""
    image = ExploredItem("1", url="https://example.org/1.jpg")
    of = built(([(0, 0, -1, True, True)], [], [], ([image], [ExploredItem("1", "redder", reference_at=0)])))
    with (
        RunningServer(create_app("lab", of)) as server,
        httpx.Client(base_url=server.url, trust_env=False) as browser,
    ):
        pages = [browser.get(path).text for path in ("/", "/caption/0")]

    assert all('<img src="https://example.org/1.jpg" alt="first image 1"' in page for page in pages)


def test_hostile_texts_stay_texts():
    """Captions and names are anybody's."""
    of = built(
        (
            [(0, 0, 0, False, True)],
            [(0, 0, True)],
            [(0, 0, 0, 1)],
            ([ExploredItem(HOSTILE)], [ExploredItem("1", HOSTILE)]),
        )
    )
    with (
        RunningServer(create_app(HOSTILE, of)) as server,
        httpx.Client(base_url=server.url, trust_env=False) as browser,
    ):
        pages = [browser.get(path).text for path in ("/", "/image/0", "/caption/0", f"/?q={HOSTILE}")]

    assert all("&lt;script&gt;" in page and "<script" not in page for page in pages)


def test_bad_calls_are_one_line(worked, tmp_path, monkeypatch):
    """No project, no release, a foreign address, an environment beside a release."""
    monkeypatch.chdir(tmp_path)
    assert "run `mitl init` first" in fails(1, "explore", "--no-browser")
    (tmp_path / "empty").mkdir()
    assert "manifest" in fails(1, "explore", "empty", "--no-browser")
    monkeypatch.chdir(worked.project)
    assert "on this machine alone" in fails(2, "explore", "--host", "0.0.0.0", "--no-browser")
    assert "holds its own" in fails(2, "explore", "release", "--live", "--no-browser")


def test_labels_have_words():
    """Each answer is named on the pages."""
    assert {label.value for label in Label} <= {one.value for one in AnswerFilter}
