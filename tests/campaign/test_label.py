"""``mitl label`` on a small project: labels under a bound, twice the same, taken back; and each refusal in one line."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from audit_kit import add_page, submit
from cli_kit import mitl
from process_kit import project_settings
from sqlalchemy import update
from world_kit import ANNOTATORS, SANDBOX, make_world, run_propose

from mitl.audits.machine_labels import Promise
from mitl.core.arrays import distinct, unpack_ids
from mitl.crowd.context import open_context
from mitl.datasets.scenes.files import read_world
from mitl.datasets.scenes.world import truth_matrix
from mitl.db.models import JudgementRow
from mitl.db.store import audits, open_work
from mitl.db.store import items as item_store
from mitl.db.store import rounds as round_store
from mitl.db.store.columns import proposal_columns
from mitl.errors import AuditError
from mitl.records import AuditPurpose, Decision, HitState, Label, PairRole
from mitl.records.audits import FUSED
from mitl.records.frames import frame
from mitl.settings import WORLD_FOLDER, Settings
from mitl.stages.auditing.drawing import AuditRequest, draw_audit
from mitl.stages.auditing.pools import merged_now
from mitl.stages.fusing.scores import FOLDER, KeptScores, sources, stamp
from mitl.stages.labelling.label import _cuts, _siding
from mitl.stages.proposing.propose import ProposeRequest, QueryChoice, propose
from mitl.stages.reporting.provenance import provenance
from mitl.stages.reporting.report import collect

SAMPLE = 150
PAGE = 18
BEFORE = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Proposed, scored well, sampled, and the sample answered by four careful workers."""
    folder = tmp_path_factory.mktemp("label") / "project"
    folder.mkdir()
    settings = make_world(folder)
    run_propose(settings, image_queries=40, caption_queries=120)
    write_scores(settings)
    assert not draw_audit(settings, AuditRequest(AuditPurpose.LABELS, size=SAMPLE), SANDBOX).warnings
    answer_sample(settings)
    return folder


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Iterator[Settings]:
    """A copy to be changed."""
    yield project_settings(Path(shutil.copytree(made, tmp_path / "project")))


def candidates(settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Packed candidates, and whether they are matches in truth."""
    with open_context(settings, SANDBOX, read_only=True) as context:
        pairs = distinct(proposal_columns(context.session)["pair"].to_numpy())
        dataset = item_store.dataset(context.session).id
        names = [
            {row: name for name, row in ids.items()} for ids in item_store.id_maps(context.session, dataset)
        ]
    images, captions = (
        [of[row] for row in ids.tolist()] for of, ids in zip(names, unpack_ids(pairs), strict=True)
    )
    world = read_world(settings.project / WORLD_FOLDER)
    codes = truth_matrix(world, sorted(set(images)), sorted(set(captions)))
    at_image = {name: row for row, name in enumerate(sorted(set(images)))}
    at_caption = {name: row for row, name in enumerate(sorted(set(captions)))}
    code = codes[[at_image[name] for name in images], [at_caption[name] for name in captions]]
    return pairs, code <= Label.WEAK_YES.code


def write_scores(
    settings: Settings,
    *,
    made_at: dt.datetime = BEFORE,
    excluded: str = "",
    constant: bool = False,
) -> None:
    """Probabilities as a good model would give them."""
    pairs, match = candidates(settings)
    rng = np.random.default_rng(0)
    logit = np.where(match, 3.0, -3.0) + 1.5 * rng.normal(size=len(pairs))
    probability = np.full(len(pairs), 0.4) if constant else 1 / (1 + np.exp(-2 * logit))
    fused = frame(FUSED, {"pair": pairs, "probability": probability, "fold": np.zeros(len(pairs))})
    with open_context(settings, SANDBOX, read_only=True) as context:
        made_of = sources(context.session)
    about = {
        "environment": "sandbox",
        "runs": made_of,
        "made_at": stamp(made_at),
        "excluded_sha256": excluded,
    }
    (settings.runs / FOLDER).mkdir(parents=True, exist_ok=True)
    KeptScores(settings.runs / FOLDER / f"{made_at:%Y%m%d}.parquet").write(fused, about)


def answer_sample(settings: Settings, workers: tuple[str, ...] = ("A", "B", "C", "D"), skip: int = 0) -> None:
    """The truth on each sampled pair, on pages that workers take in turn; the last ``skip`` pairs stay open."""
    pairs, match = candidates(settings)
    is_match = dict(zip(pairs.tolist(), match.tolist(), strict=True))
    with open_context(settings, SANDBOX) as context:
        (audit,) = audits.audits(context.session, SANDBOX)
        drawn = audits.drawn_pairs(context.session, audit.id)["pair"].tolist()
        drawn = drawn[: len(drawn) - skip]
        for number, start in enumerate(range(0, len(drawn), PAGE)):
            page = drawn[start : start + PAGE]
            hit = add_page(context.session, dict.fromkeys(page, PairRole.CANDIDATE))
            labels = [Label.YES if is_match[pair] else Label.NO for pair in page]
            submit(context.session, hit, workers[number % len(workers)], labels, minute=number)
        context.session.commit()


def label(settings: Settings, *options: str, error: str = "0.08"):
    """``mitl label`` with a tolerance that a small world's sample can show."""
    return mitl("label", "--project", settings.project, "--error", error, "--siding", "0", *options)


def test_labels_are_stored_close_their_pairs_and_the_same_again_is_nothing_to_do(project: Settings) -> None:
    """What is labelled is not open any more, and none of it was sampled."""
    first = label(project, "--json").json
    again = label(project, "--json").json
    assert first["status"] == "done"
    assert again["status"] == "nothing_to_do"
    assert first["counts"] == again["counts"]
    counts = first["counts"]
    assert counts["sampled"] == SAMPLE
    assert counts["labelled"] > 50
    assert sum(one["labelled"] for one in counts["strata"]) == counts["labelled"]
    pairs, match = candidates(project)
    with open_context(project, SANDBOX, read_only=True) as context:
        stored = audits.machine_labels(context.session, SANDBOX)
        drawn = audits.drawn_pairs(context.session, 1)["pair"]
        asked = open_work.asked_pairs(context.session, SANDBOX)
        assert len(audits.labellings(context.session, SANDBOX)) == 1
    assert len(stored) == counts["labelled"]
    assert not stored["pair"].isin(drawn).any()
    assert len(asked) == counts["labelled"] + SAMPLE
    assert counts["labelled"] + counts["left"] + SAMPLE == len(pairs)
    right = match[np.searchsorted(pairs, stored["pair"])] == (stored["label"] <= 1).to_numpy()
    assert (~right).sum() <= 0.08 * len(pairs)


def test_the_table_says_for_each_stratum_what_is_labelled_and_under_which_bound(project: Settings) -> None:
    """For people."""
    told = label(project, "--dry-run", "--lost", "0.2", "--json").json["counts"]["strata"]
    out = label(project, "--dry-run", "--lost", "0.2").out
    assert (
        "at most 8% of a stratum, 20% of those called no match, wrong by machine, with confidence 95%" in out
    )
    assert "by machine" in out
    assert "no match" in out
    for part in told:
        assert part["labelled"] + part["left"] + part["sampled"] == part["pairs"]
        surer = "all" if part["cut"] is None else f"{1 - part['cut']:.3f}"
        assert re.search(
            rf"{re.escape(part['stratum'])} +{part['pairs']} .* {surer} +{part['labelled']} ", out
        )
    assert "would get a machine label; nothing was stored" in out
    with open_context(project, SANDBOX, read_only=True) as context:
        assert not len(audits.machine_labels(context.session, SANDBOX))


def test_a_withdrawal_opens_the_pairs_again_and_a_new_run_labels_them_again(project: Settings) -> None:
    """Withdrawn labels are kept and not read."""
    labelled = label(project, "--json").json["counts"]["labelled"]
    taken = mitl("label", "--withdraw", "--json", "--project", project.project).json
    assert taken["counts"] == {"withdrawn": 1, "labelled": 0}
    none = mitl("label", "--withdraw", "--json", "--project", project.project).json
    assert none["status"] == "nothing_to_do"
    assert label(project, "--json").json["counts"]["labelled"] == labelled
    with open_context(project, SANDBOX, read_only=True) as context:
        runs = audits.labellings(context.session, SANDBOX)
    assert [run.withdrawn_at is None for run in runs] == [False, True]


def test_a_withdrawal_refuses_what_it_could_not_follow(project: Settings) -> None:
    """Options about making labels; nothing is taken back."""
    words = ("--dry-run", "--error", "0.1")
    told = mitl("label", "--withdraw", *words, "--project", project.project)

    assert told.status == 2
    assert (
        "--withdraw takes labels back and makes none, so --error, --dry-run could not be followed" in told.err
    )


def test_candidates_that_came_after_the_draw_are_left_to_people(project: Settings) -> None:
    """As those of another annotator are, or of one that learnt: the sample bounds nothing of them."""
    before = label(project, "--json").json["counts"]
    n_before = len(candidates(project)[0])
    propose(project, ProposeRequest(ANNOTATORS, 8, 10, QueryChoice(40), QueryChoice(120)))
    write_scores(project)

    after = label(project, "--json").json["counts"]

    n_later = len(candidates(project)[0]) - n_before
    assert n_later > 0
    assert after["left"] == before["labelled"] + before["left"] + n_later - after["labelled"]
    assert (
        after["left"] == mitl("status", "--project", project.project, "--json").json["counts"]["pairs_open"]
    )


def test_what_comes_next_is_a_command_that_does_not_refuse(project: Settings) -> None:
    """While a round is open that is the round's, for `mitl publish` refuses then."""
    assert label(project).out.endswith("mitl publish --sandbox --drawn\n")
    with open_context(project, SANDBOX) as context:
        number = item_store.dataset(context.session).id
        round_store.add_round(context.session, number, SANDBOX, "random", {}, context.now())
        context.session.commit()

    told = (label(project), mitl("label", "--withdraw", "--project", project.project))

    assert [one.out.endswith("mitl round run --sandbox\n") for one in told] == [True, True]


def test_answers_that_are_on_their_way_come_before_more_questions(project: Settings) -> None:
    """What nobody has fetched may label or refuse what is still open."""
    with open_context(project, SANDBOX) as context:
        pair = int(candidates(project)[0][0])
        add_page(context.session, {pair: PairRole.CANDIDATE}, state=HitState.POSTED)
        context.session.commit()

    assert label(project).out.endswith("mitl harvest\n")


def test_another_promise_replaces_what_stands(project: Settings) -> None:
    """One labelling is read at a time."""
    label(project)
    more = mitl("label", "--project", project.project, "--error", "0.12", "--siding", "0", "--json").json
    with open_context(project, SANDBOX, read_only=True) as context:
        assert len(audits.machine_labels(context.session, SANDBOX)) == more["counts"]["labelled"]
        assert audits.standing(context.session, SANDBOX).id == 2


def test_levels_may_be_promised_too(project: Settings) -> None:
    """With the ordinal loss."""
    found = label(project, "--loss", "ordinal", "--json", error="0.1").json
    assert found["counts"]["labelled"] > 0


def write_table(settings: Settings, path: Path, **changed: object) -> Path:
    """The project's probabilities as a CSV of external ids; a column's first cell changed."""
    (fused,) = (settings.runs / FOLDER).glob("*.parquet")
    scores = pd.read_parquet(fused)
    with open_context(settings, SANDBOX, read_only=True) as context:
        maps = item_store.id_maps(context.session, item_store.dataset(context.session).id)
    table = pd.DataFrame({"probability": scores["probability"]}, dtype=object)
    sides = unpack_ids(scores["pair"].to_numpy())
    for column, ids, numbers in zip(("image_id", "caption_id"), maps, sides, strict=True):
        names = {row: name for name, row in ids.items()}
        table[column] = [names[number] for number in numbers.tolist()]
    for column, value in changed.items():
        table.loc[0, column] = value
    table.to_csv(path, index=False)
    return path


def test_scores_of_a_file_label_as_fused_ones_do(project: Settings, tmp_path: Path) -> None:
    """The same probabilities give the same labels, and what the bound rests on is told."""
    path = write_table(project, tmp_path / "mine.csv")
    own = label(project, "--dry-run", "--json").json["counts"]

    found = label(project, "--scores", str(path), "--json").json

    assert found["counts"] == own
    assert "mine.csv was made without the sample's answers is taken on your word" in found["warnings"][-1]
    assert label(project, "--scores", str(path), "--json").json["status"] == "nothing_to_do"
    for certain in ("0", "1"):
        assert label(project, "--scores", str(write_table(project, path, probability=certain))).status == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"image_id": "nobody"}, "image_id 'nobody', which is not in the data set"),
        ({"probability": "1.2"}, "holds the probability '1.2'; each is a number from 0 to 1"),
        ({"probability": "sure"}, "holds the probability 'sure'"),
    ],
)
def test_a_file_of_scores_that_does_not_fit_is_refused(project: Settings, tmp_path: Path, changed, message):
    """One line, and nothing is stored."""
    failed = label(project, "--scores", str(write_table(project, tmp_path / "mine.csv", **changed)))

    assert failed.status == 1
    assert message in failed.error
    with open_context(project, SANDBOX, read_only=True) as context:
        assert not len(audits.machine_labels(context.session, SANDBOX))


def test_yes_and_no_are_no_probabilities(project: Settings, tmp_path: Path) -> None:
    """Parquet has columns of them, which would count as 1 and 0."""
    table = pd.read_csv(write_table(project, tmp_path / "mine.csv"))
    table["probability"] = table["probability"] > 0.5
    table.to_parquet(tmp_path / "mine.parquet")

    failed = label(project, "--scores", str(tmp_path / "mine.parquet"))

    assert f"holds the probability '{table['probability'][0]}'; each is a number" in failed.error


def test_a_pair_that_a_file_scores_twice_is_named(project: Settings, tmp_path: Path) -> None:
    """By its own ids, wherever in the file it stands."""
    path = write_table(project, tmp_path / "mine.csv")
    lines = path.read_text().splitlines()
    _, image, caption = lines[7].split(",")
    path.write_text("\n".join([*lines, lines[7]]) + "\n")

    assert f"scores image {image} with caption {caption} twice" in label(project, "--scores", str(path)).error


def test_a_table_that_lacks_a_column_says_what_it_wants(project: Settings, tmp_path: Path) -> None:
    """In words that are a sentence."""
    table = tmp_path / "mine.csv"
    table.write_text("image_id,probability\n1,0.5\n")

    assert label(project, "--scores", str(table)).error == (
        f"{str(table)!r} has no column 'caption_id'; a table of probabilities by image_id and caption_id needs the "
        "columns image_id, caption_id, probability"
    )


def test_disputes_that_nobody_is_asked_about_are_told(project: Settings, tmp_path: Path) -> None:
    """Who is asked again was settled by the guess at the draw; a later score may call pairs otherwise."""
    table = pd.read_csv(
        write_table(project, tmp_path / "turned.csv"), dtype={"image_id": str, "caption_id": str}
    )
    table["probability"] = 1 - table["probability"]
    table.to_csv(tmp_path / "turned.csv", index=False)

    usual = label(project, "--dry-run", "--json").json
    turned = label(project, "--scores", str(tmp_path / "turned.csv"), "--json", error="0.999").json

    assert usual["warnings"][0].endswith("two more answers on each may lower the bound")
    n_disputed = SAMPLE - usual["counts"]["disputed"]
    assert turned["counts"]["disputed"] == n_disputed
    assert f"but {n_disputed} of them will get none" in turned["warnings"][0]
    assert label(project, "--dry-run").out.endswith("mitl publish --sandbox --drawn\n")


def test_after_a_release_of_people_alone_the_report_and_audits_speak_of_that_release(
    project: Settings,
) -> None:
    """What it left out is neither told as its own nor planned for as its positives."""
    label(project)
    builds = ("build-dataset", "--project", project.project, "--sandbox", "--out")
    told = []
    for name, *flags in (("all",), ("humans", "--humans-only", "--with-texts")):
        built = mitl(*builds, project.project / name, *flags, "--json").json["counts"]
        methods = mitl("report", "--project", project.project, "--methods", "-", "--json").json["counts"]
        with open_context(project, SANDBOX, read_only=True) as context:
            merged = merged_now(context)
        assert methods["figures"]["positives"] == built["positives"] == len(merged.where("kept"))
        told.append("**Machine labels.**" in methods["methods"])
    rebuilt = [step.command for step in provenance(collect(project).project, (), evaluated=False).steps]

    mitl(*builds, project.project / "all")
    again = mitl("report", "--project", project.project, "--methods", "-").out

    assert told == [True, False]
    assert "The release all is built" in again and "**Machine labels.**" in again
    assert rebuilt[-2].endswith("--name humans --sandbox --humans-only --with-texts")


def test_a_release_says_that_answers_of_the_sample_are_lost(project: Settings) -> None:
    """As of a worker who was excluded after the labels were given."""
    label(project)
    built = ("build-dataset", "--project", project.project, "--sandbox", "--json", "--out")
    before = mitl(*built, project.project / "before").json["warnings"]
    with open_context(project, SANDBOX) as context:
        pairs = audits.drawn_pairs(context.session, 1)["pair"].to_numpy()[:PAGE]
        rows = audits.pair_rows(context.session, pairs).tolist()
        context.session.execute(
            update(JudgementRow).where(JudgementRow.pair_id.in_(rows)).values(usable=False)
        )
        context.session.commit()

    after = mitl(*built, project.project / "after").json["warnings"]

    assert not any("sampled pair" in line for line in before)
    assert any(
        f"{PAGE} sampled pairs that the bound of the machine labels rests on have no" in line
        for line in after
    )
    assert "so the bound is not proved now" in (project.project / "after" / "datasheet.md").read_text()


def test_a_sample_too_small_says_how_many_answers_are_wanted(project: Settings) -> None:
    """One line."""
    failed = mitl("label", "--project", project.project, "--error", "0.005", "--siding", "0")
    assert failed.status == 1
    assert "too few to promise at most 0.5% wrong labels" in failed.error
    assert "more are wanted" in failed.error
    assert ", and a sample cannot grow once its answers are known: raise --error" in failed.error
    drawing = ("audit", "draw", "--project", project.project, "--sandbox", "--for", "labels", "--size")
    grown = mitl(*drawing, str(SAMPLE + 1))
    assert "another sample would be drawn after looking" in grown.error
    assert mitl(*drawing, str(SAMPLE)).out.endswith("mitl publish --sandbox --drawn\n")


def test_workers_of_whom_nothing_is_known_may_all_but_side_with_the_machine(project: Settings) -> None:
    """Nobody was asked twice: half of the workers are reckoned with."""
    words = ("label", "--project", project.project, "--error", "0.25", "--dry-run")
    found, given = mitl(*words), mitl(*words, "--siding", "0.25")
    assert "up to 50.0% of the workers side with the machine when it is wrong (measured)" in found.out
    assert "up to 25.0% of the workers side with the machine when it is wrong (as given)" in given.out


def test_without_a_sample_or_a_score_it_says_what_is_missing(tmp_path: Path) -> None:
    """One line each."""
    settings = make_world(tmp_path, n_images=12)
    run_propose(settings)
    assert "run `mitl audit draw --for labels --size N`" in label(settings).error
    (warning,) = draw_audit(settings, AuditRequest(AuditPurpose.LABELS, size=20), SANDBOX).warnings
    assert "run `mitl fuse` and draw again" in warning
    assert "run `mitl fuse` first" in label(settings).error
    write_scores(settings)
    assert "no usable answer yet on 20 of the 20 sampled pairs" in label(settings).error
    answer_sample(settings, workers=("A",), skip=3)
    assert "rest on one person" in label(settings).error


def test_a_score_that_may_have_read_the_sample_is_refused(project: Settings) -> None:
    """One that left it out is not."""
    later = dt.datetime.now(dt.UTC) + dt.timedelta(days=1)
    write_scores(project, made_at=later)
    assert "may have been learnt from the sample's own answers" in label(project).error
    with open_context(project, SANDBOX, read_only=True) as context:
        drawn = np.sort(audits.drawn_pairs(context.session, 1)["pair"].to_numpy())
    write_scores(project, made_at=later, excluded=hashlib.sha256(drawn.tobytes()).hexdigest())
    assert label(project).status == 0


def test_labels_of_an_earlier_sample_are_taken_back_before_another_sample_is_drawn(project: Settings) -> None:
    """Those by the new sample would replace them, and label none of their pairs again."""
    labelled = label(project, "--json").json["counts"]["labelled"]
    run_propose(project, image_queries=40, caption_queries=180)
    wish = AuditRequest(AuditPurpose.LABELS, size=SAMPLE)

    with pytest.raises(AuditError, match=f"^{labelled} machine labels of an earlier sample would give way"):
        draw_audit(project, wish, SANDBOX)

    mitl("label", "--withdraw", "--project", project.project)
    assert draw_audit(project, wish, SANDBOX).counts["pool"] == len(candidates(project)[0]) - SAMPLE


def test_a_page_that_failed_before_the_draw_answers_nothing_of_the_sample(tmp_path: Path) -> None:
    """So that another sample may replace it, as after fusing."""
    settings = make_world(tmp_path, n_images=16)
    run_propose(settings)
    failed = candidates(settings)[0][:PAGE].tolist()
    with open_context(settings, SANDBOX) as context:
        hit = add_page(context.session, dict.fromkeys(failed, PairRole.CANDIDATE))
        submit(context.session, hit, "A", [Label.YES] * PAGE, decision=Decision.REJECT)
        context.session.commit()
    draw_audit(settings, AuditRequest(AuditPurpose.LABELS, size=40), SANDBOX)

    assert draw_audit(settings, AuditRequest(AuditPurpose.LABELS, size=50), SANDBOX).counts["audit"] == 2


def test_sampled_pairs_that_nothing_ranks_any_more_want_no_answer(project: Settings, tmp_path: Path) -> None:
    """As after a round was taken back whose annotators alone proposed them; a file has to score them all."""
    (stored,) = (project.runs / FOLDER).glob("*.parquet")
    fused = pd.read_parquet(stored)
    with open_context(project, SANDBOX) as context:
        gone = audits.drawn_pairs(context.session, 1)["pair"].to_numpy()[:3]
        rows = audits.pair_rows(context.session, gone).tolist()
        context.session.execute(
            update(JudgementRow).where(JudgementRow.pair_id.in_(rows)).values(usable=False)
        )
        context.session.commit()
    fused[~fused["pair"].isin(gone)].to_parquet(stored, index=False)

    found = label(project, "--json").json["counts"]

    assert found["sampled"] == SAMPLE - 3
    assert found["labelled"] > 50
    without = write_table(project, tmp_path / "mine.csv")
    assert (
        "no usable answer yet on 3 of the 150 sampled pairs" in label(project, "--scores", str(without)).error
    )


def test_a_constant_score_is_refused(project: Settings) -> None:
    """One line."""
    write_scores(project, constant=True)
    assert "have the same probability" in label(project).error


def test_neither_the_cuts_nor_what_is_said_of_workers_has_read_the_sample() -> None:
    """Else the sample's own answers would loosen or tighten the bound that they prove."""
    pairs = np.arange(80)
    labels = np.where(pairs[:, None] < 40, [0, 0], [0, 3])  # in the sample, all second workers differ
    answers = pd.DataFrame(
        {"pair": pairs.repeat(2), "worker": [1, 2] * 80, "label": labels.ravel().astype(np.int8)}
    )
    others, sampled, nothing = answers[answers["pair"] < 40], pairs[40:], pairs[:0]
    fused = pd.DataFrame({"pair": pairs, "probability": np.linspace(0.9, 0.1, 80)})

    assert _siding(answers, sampled, Promise()) == _siding(others, nothing, Promise()) < 0.5
    assert _cuts(answers, fused, sampled) == _cuts(others, fused, nothing) != _cuts(answers, fused, nothing)
