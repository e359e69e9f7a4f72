"""What a release says of rounds that chose pairs and of annotators that learnt, in records and end to end."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_kit import ok
from hypothesis import given
from hypothesis import strategies as st
from publish_kit import proposed
from release_kit import audited_world, world

from mitl.core.arrays import pack_pairs
from mitl.positives.release import release_files, write_release
from mitl.positives.release_input import ChosenRound, Origins, TrainedMachine
from mitl.positives.tables import chosen_columns
from mitl.positives.verifying import verify_release
from mitl.records import Pair
from mitl.records.frames import frame
from mitl.records.rounds import CHOSEN
from mitl.stages.releasing.additions import first_choices

ROUNDS = (ChosenRound(1, "exhaustive", 2, rolled_back=False), ChosenRound(2, "bandit", 1, rolled_back=True))
TRAINED = (TrainedMachine("vsrn", "vsrn-mini", 2, "ab" * 32, 40, 31),)
QUICK = ("--steps", 2, "--head-steps", 1, "--batch", 6, "--sandbox")


def chosen(pairs, strategy):
    packed = np.array(pairs, np.int64)
    rows = (packed, range(1, len(packed) + 1), [0.5] * len(packed), [strategy] * len(packed))
    return frame(CHOSEN, dict(zip(CHOSEN, rows, strict=True)))


def with_rounds(data=None):
    """The world with two rounds, of which the second's annotator learnt."""
    data = data or world()
    first = pack_pairs([Pair(1, 3), Pair(2, 6)])
    second = pack_pairs([Pair(3, 1)])
    return dataclasses.replace(
        data,
        origins=dataclasses.replace(data.origins, rounds=ROUNDS, trained=TRAINED),
        chosen=first_choices([(1, chosen(first, "exhaustive")), (2, chosen(second, "bandit"))]),
    )


def test_each_chosen_pair_names_its_round_and_strategy(tmp_path):
    """In positives and negatives; the pairs that no round chose name none."""
    folder = write_release(tmp_path / "r", with_rounds()).folder
    rows = pd.concat([pd.read_parquet(folder / f"{name}.parquet") for name in ("positives", "negatives")])
    named = rows.dropna(subset="round")

    found = {
        (row.image_id, row.caption_id): (int(row.round), row.strategy)
        for row in named.itertuples(index=False)
    }
    known = {(10, 300): (1, "exhaustive"), (20, 600): (1, "exhaustive"), (30, 100): (2, "bandit")}
    assert found and found.items() <= known.items()
    assert rows.loc[rows["round"].isna(), "strategy"].isna().all() and rows["round"].isna().any()


def test_the_texts_tell_rounds_and_training():
    """Datasheet and Croissant name them, and who was never asked leaves out what rounds chose."""
    files, _ = release_files(with_rounds())
    sheet = files["datasheet.md"].decode()
    machines = json.loads(files["croissant.json"])["rai:machineAnnotationTools"]
    limits = json.loads(files["croissant.json"])["rai:dataLimitations"]

    assert "Round 1 chose 2 pairs to ask, by the strategy exhaustive." in sheet
    assert "strategy bandit, and was taken back later; its answers count." in sheet
    assert "trained in round 2 from vsrn-mini on 40 answers on 31 pairs" in sheet
    assert "Pairs that no machine annotator proposed and no round chose were never asked." in sheet
    assert limits[0].startswith(
        "Pairs that no machine annotator proposed and no round chose were never asked"
    )
    assert [one for one in machines if one.startswith("vsrn (trained in round 2") and "ab" * 32 in one]


def test_a_certified_release_with_rounds_verifies(tmp_path):
    """The further columns are no business of the certificate, which is computed again from the files."""
    found = verify_release(write_release(tmp_path / "r", with_rounds(audited_world())).folder)

    assert found.differences == () and found.certificate is not None


def test_without_rounds_nothing_is_said_of_them():
    """Neither columns nor words, so such a release has the bytes that it had."""
    files, _ = release_files(world())

    for name in ("positives", "negatives"):
        columns = pq.read_schema(pa.BufferReader(files[f"{name}.parquet"])).names
        assert "round" not in columns and "strategy" not in columns
    assert b"ound chose" not in files["datasheet.md"] + files["croissant.json"]
    assert Origins().rounds == () and Origins().trained == ()


@given(st.lists(st.lists(st.integers(0, 30), unique=True, max_size=8), min_size=1, max_size=4), st.data())
def test_a_pair_names_the_first_round_that_chose_it(rounds, data):
    """Whatever the rounds chose, and whatever pairs are looked up, in any order."""
    wanted = np.array(data.draw(st.lists(st.integers(0, 35))), np.int64)
    made = first_choices(
        (number, chosen(pairs, f"s{number}")) for number, pairs in enumerate(rounds, start=1)
    )
    columns = chosen_columns(made, wanted)

    first = {pair: number for number, pairs in reversed([*enumerate(rounds, start=1)]) for pair in pairs}
    assert dict(zip(made["pair"].tolist(), made["round"].tolist(), strict=True)) == first
    if first:
        assert columns["round"].to_pylist() == [first.get(pair) for pair in wanted.tolist()]
        assert columns["strategy"].to_pylist() == [
            f"s{first[pair]}" if pair in first else None for pair in wanted.tolist()
        ]
    else:
        assert columns == {}


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with proposals, in the current folder."""
    settings = proposed(tmp_path / "p")
    monkeypatch.chdir(settings.project)
    return settings.project


def test_a_project_with_rounds_releases_what_they_were(project):
    """Every positive that a round chose names it; the annotator that learnt and proposed is told; it verifies."""
    ok("round", "run", "--sandbox", "--budget", "5.00", "--workers", "careful", "--strategy", "random")
    ok("train", "clip-mini", *QUICK)
    ok("propose", "--annotator", "clip-mini-tuned", "--image-queries", 3, "--caption-queries", 3)
    ok("build-dataset", "--out", "release", "--sandbox")
    ok("verify", "release")

    manifest = json.loads((project / "release" / "manifest.json").read_text())["configuration"]
    (round_,), (trained,) = manifest["rounds"], manifest["trained"]
    positives = pd.read_parquet(project / "release" / "positives.parquet")
    by_round = positives.dropna(subset="round")
    assert (round_["strategy"], round_["rolled_back"]) == ("random", False)
    assert len(by_round) and set(by_round["round"]) == {round_["number"]}
    assert set(by_round["strategy"]) == {"random"}
    judged = positives[positives["sources"].map(lambda sources: "judgement" in list(sources))]
    assert set(judged.index) <= set(by_round.index)
    assert (trained["name"], trained["base"], trained["round"]) == ("clip-mini-tuned", "clip-mini", None)
    assert trained["answers"] >= trained["pairs"] > 0 and len(trained["weights_sha256"]) == 64
    sheet = (project / "release" / "datasheet.md").read_text()
    assert "by the strategy random" in sheet and trained["weights_sha256"] in sheet
