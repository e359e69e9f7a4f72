"""A report's input with hostile names and texts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image, ImageDraw

from mitl.analysis.answer_tables import AnswerCount, RationaleCount
from mitl.analysis.known_truth import DirectionScores, Score
from mitl.analysis.records import (
    Bias,
    Correlations,
    Diversity,
    LabelOrder,
    MachineAnalysis,
    SizeBias,
    SubsetScores,
)
from mitl.analysis.report import loop_plots, machine_plots
from mitl.analysis.report.inputs import (
    AnalysisSection,
    AnnotatorProposals,
    BatchSummary,
    CrowdStats,
    Dispute,
    DisputedPair,
    DisputeKind,
    EvaluationScore,
    ExampleItem,
    ExampleQuery,
    Found,
    FoundPair,
    Frame,
    FunnelCounts,
    GoldStats,
    MoneyStats,
    Multiplicity,
    ProposalPlaces,
    Provenance,
    RebuildStep,
    Reliability,
    ReportInput,
    Section,
    TruthStats,
    WorkerStanding,
    WorkerSummary,
)
from mitl.analysis.report.loop_plots import TrainingCurve
from mitl.audits.chao import Completeness
from mitl.judgements.agreement import Alpha, PairAgreement
from mitl.judgements.calibration import Calibration
from mitl.judgements.wages import WageFigures
from mitl.records import Concept, Direction, Environment, Label, Shortcoming, Table

NAMES = ("pvse-mini", "vsrn-mini", "pcme-mini", "vilt-mini", "clip-mini")


HOSTILE = '<script>alert("caption")</script> & <img src=x onerror=alert(1)>'


def sample_input(
    folder: Path,
    *,
    names: tuple[str, ...] = NAMES,
    caption: str = "two red circles left of a blue square",
    examples: int = 3,
) -> ReportInput:
    """A full report's data; pictures are written to ``folder``; the same arguments give equal data."""
    return ReportInput(
        project="demo",
        dataset="scenes-300",
        environment=Environment.SANDBOX,
        images=300,
        captions=1500,
        image_queries=120,
        caption_queries=120,
        release="scenes-300-r1",
        judgements=2060,
        annotators=tuple(
            AnnotatorProposals(
                name,
                "inner_product",
                1200,
                1108 - 7 * i,
                [1108, 402, 211, 140, 82][i % 5],
                640 + 20 * i,
                1040,
                512 - 30 * i,
            )
            for i, name in enumerate(names)
        ),
        funnel=FunnelCounts(216_000, 1842, 1842, 1836, 1790, 873, 641),
        places=ProposalPlaces(30_000, 6000),
        answers=_answers(names),
        rationale=_rationale(names),
        crowd=_crowd(),
        money=MoneyStats(10_300, 0, 240, 0, wage_floor_cents=1200, cents_a_positive=10_540 / 873),
        batches=(
            BatchSummary("b1", "pairs-rationale", "i2t", 52, 170, _wages("pairs-rationale", 52, 431, 1419)),
            BatchSummary("b2", "pairs-plain", "t2i", 51, 100, _wages("pairs-plain", 51, 322, 1118)),
        ),
        truth=_truth(names),
        evaluation=_evaluation(names),
        multiplicity=_multiplicity(),
        completeness={Direction.I2T: Completeness(5, 480, 200, 120, 613.45, 30.0, 570.0, 690.0)},
        reliability=(_reliability(),),
        found=_found(folder, caption, names) if examples else Found(),
        examples=_examples(folder, caption, examples, names),
        disputes=_disputes(folder, caption, examples, names),
        machines=MachineAnalysis(
            diversity=(_diversity(names),),
            bias=(_bias(names),),
            correlations=Correlations(("R@1 original", "R@1 release"), ((1.0, 0.4), (0.4, 1.0)), names),
            label_order=tuple(LabelOrder(name, Direction.I2T, 0.41, 30, 2) for name in names),
        ),
        analyses=_loop(names),
        provenance=Provenance(
            steps=(
                RebuildStep(
                    "mitl init --dataset scenes --n-images 300 --seed 0", "", (("content", "c668" * 16),)
                ),
                RebuildStep("mitl harvest --sandbox", "people's answers cannot be made again"),
            ),
            seeds=(("queries", "0"), ("packing", "0")),
            versions=(("mitl", "0.1.0"), ("torch", "2.13.0")),
            hashes=(("manifest", "9f2c" * 16),),
        ),
        notes=("Workers were scripted; one in five answered at random.",),
    )


def picture(path: Path, seed: int, *, size: tuple[int, int] = (480, 360)) -> Path:
    """A picture of a few coloured shapes, written to ``path``."""
    rng = np.random.default_rng(seed)
    image = Image.new("RGB", size, tuple(int(c) for c in rng.integers(150, 245, 3)))
    draw = ImageDraw.Draw(image)
    for _ in range(int(rng.integers(1, 5))):
        x, y = int(rng.integers(0, size[0] - 120)), int(rng.integers(0, size[1] - 120))
        side = int(rng.integers(50, 150))
        colour = tuple(int(c) for c in rng.integers(0, 220, 3))
        (draw.ellipse if rng.random() < 0.5 else draw.rectangle)((x, y, x + side, y + side), fill=colour)
    image.save(path)
    return path


def _answers(names: tuple[str, ...]) -> tuple[AnswerCount, ...]:
    rows = []
    for i, name in enumerate(names):
        for direction in Direction:
            for rank in range(1, 6):
                yes = 0.55 - 0.06 * rank - 0.03 * i
                shares = (yes, 0.26, 0.1 + 0.02 * rank, 1 - yes - 0.36 - 0.02 * rank)
                for label, share in zip(Label, shares, strict=True):
                    rows.append(AnswerCount(name, direction, rank, label, round(118 * share)))
    return tuple(rows)


def _rationale(names: tuple[str, ...]) -> tuple[RationaleCount, ...]:
    rng = np.random.default_rng(3)
    rows = []
    for name in names:
        for shortcoming, mean in zip(Shortcoming, (61, 36, 96, 9), strict=True):
            rows.append(RationaleCount(name, "shortcoming", shortcoming, int(rng.poisson(mean))))
        for concept, mean in zip(Concept, (40, 35, 0, 0, 0, 0, 0, 14, 22, 18), strict=True):
            rows.append(RationaleCount(name, "concept", concept, int(rng.poisson(mean))))
    return tuple(rows)


def _wages(template: str, hits: int, seconds: int, cents: int) -> WageFigures:
    return WageFigures(template, hits, hits, 0, 1000 * seconds, cents, cents, cents, 0)


def _crowd() -> CrowdStats:
    rng = np.random.default_rng(5)
    workers = []
    for number in range(24):
        hits = int(rng.integers(1, 9))
        golds = 2 * hits
        careful = number % 5 != 4
        right = int(rng.binomial(golds, 0.97 if careful else 0.5))
        if golds < 4:
            standing = WorkerStanding.UNPROVEN
        elif (right + 1) / (golds + 2) >= 0.8:
            standing = WorkerStanding.GOOD
        else:
            standing = WorkerStanding.EXCLUDED if number % 2 else WorkerStanding.POOR
        seconds = float(rng.normal(360 if careful else 120, 40))
        workers.append(
            WorkerSummary(
                f"w{number:02d}{int(rng.integers(1e6)):06x}",
                hits,
                golds,
                right,
                standing,
                seconds,
                100 * hits,
            )
        )
    return CrowdStats(
        hits_posted=119,
        submitted=119,
        approved=98,
        queued=0,
        rejected=9,
        dropped=12,
        gold=GoldStats(118, 109, 119, 111, withdrawn=1),
        agreement=PairAgreement(Alpha(0.78, 0.69, 0.86, units=104, answers=240), 81, 95),
        workers=tuple(workers),
    )


def _scores(found: int, positives: int, truth: int) -> DirectionScores:
    half = Score(found * 6 // 10, positives * 6 // 10, truth * 6 // 10)
    rest = Score(found - half.found, positives - half.positives, truth - half.truth)
    return DirectionScores(i2t=half, t2i=rest, together=Score(found, positives, truth))


def _truth(names: tuple[str, ...]) -> TruthStats:
    return TruthStats(
        original=_scores(702, 720, 2900),
        release=_scores(2260, 2340, 2900),
        released=2600,
        by_annotator=tuple(
            (name, _scores(1500 - 90 * i, 1560 - 92 * i, 2900)) for i, name in enumerate(names)
        ),
        hit_rule=_scores(2240, 2420, 2900),
        hit_rule_and_record=_scores(2200, 2270, 2900),
    )


def _loop(names: tuple[str, ...]) -> tuple[AnalysisSection, ...]:
    """Two rounds, and what learnt in the second."""
    counted = ["round", "answered", "paid_cents", "positives", "beyond_originals"]
    rounds = pd.DataFrame([(1, 54, 300, 35, 23), (2, 1080, 6100, 1310, 160)], columns=counted)
    curve = pd.DataFrame(
        {"step": [0, 2, 5, 9], "loss": [np.nan, 0.6, 0.4, 0.2], "map_at_r": [0.4, 0.5, 0.6, 0.5]}
    )
    fused = Calibration(80, 0.03, 0.1, 0.3, *np.array([[0.2, 0.8], [0.25, 0.75], [40, 40]]))
    trainings = {name: [TrainingCurve(f"{name}-r2", curve, 5, stopped=True)] for name in names}
    return (
        AnalysisSection(
            Section("rounds", "Rounds", "What each round asked", "Pairs"),
            tables=(Table("Rounds", ("round", "learnt"), ((1, None), (2, ", ".join(names)))),),
            drawings={"rounds": lambda: loop_plots.rounds_svg(rounds)},
        ),
        AnalysisSection(
            Section("completeness", "Completeness", "How complete it can be at most", "Positives"),
            tables=(Table("matches", ("direction", "found", "all, at least"), (("i2t", 480, 613.3),)),),
        ),
        AnalysisSection(
            Section("training", "Training", "How annotators learnt", "Machines"),
            drawings={"training": lambda: loop_plots.training_svg(trainings)},
        ),
        AnalysisSection(
            Section("fusion", "Fusion", "What annotators and answers say", "Machines"),
            drawings={"reliability": lambda: machine_plots.reliability_svg(fused)},
        ),
    )


def _evaluation(names: tuple[str, ...]) -> tuple[EvaluationScore, ...]:
    rows = []
    for i, name in enumerate(names):
        for direction in Direction:
            for positives, lift in (("original", 0.0), ("release", 0.14)):
                for metric, base in (("R@1", 0.42), ("R@5", 0.71), ("R-Precision", 0.38), ("mAP@R", 0.29)):
                    wave = 0.02 * ((i * 7 + len(metric)) % 5)
                    value = base + lift + wave
                    taught_by = 54 if positives == "release" and name == names[-1] else 0
                    ends = value - 0.04, value + 0.05
                    rows.append(EvaluationScore(name, positives, direction, metric, value, *ends, taught_by))
    return tuple(rows)


def _reliability() -> Reliability:
    stated = np.array((0.15, 0.55, 0.93))
    curve = Calibration(120, 0.031, 0.082, 0.29, stated, stated - 0.03, np.full(3, 40))
    return Reliability("the known truth", "ordinal", curve)


def _diversity(names: tuple[str, ...]) -> Diversity:
    size = range(len(names))
    tau = tuple(tuple(1.0 if i == j else 0.1 * (i + j) - 0.4 for j in size) for i in size)
    rank = tuple(tuple(1.0 if i == j else 4.0 + i + j for j in size) for i in size)
    return Diversity(Direction.T2I, names, 120, 25, tau, tau, rank, rank)


def _bias(names: tuple[str, ...]) -> Bias:
    sizes = tuple(SizeBias(n, 5, 0.3 / n, 0.02, 0.4 / n, -0.2 / n, 0.5) for n in (1, 2))
    everything = SubsetScores(names, tuple(0.5 for _ in names))
    return Bias(
        Direction.T2I,
        "R-Precision",
        names,
        queries=120,
        without_positive=3,
        depth=25,
        capped=0,
        subsets=(everything,),
        by_size=sizes,
        true_scores=everything.scores,
        by_size_truth=sizes,
        by_size_selection=sizes,
    )


def _found(folder: Path, caption: str, names: tuple[str, ...]) -> Found:
    """Six of 641, the last without a picture."""
    files = [picture(folder / f"found-{i}.png", 500 + i) for i in range(5)]
    shown = tuple(
        FoundPair(
            DisputedPair(
                f"{200 + i}",
                f"{1200 + i}",
                f"{caption}, found {i}",
                file,
                (Label.YES, Label.YES),
                Label.YES,
                found_by=((names[0], 1), (names[1], 3)),
            ),
            2,
            (f"{caption}, of the image {i}", "another"),
            f"{300 + i}",
        )
        for i, file in enumerate([*files, None])
    )
    return Found(641, 1600, shown)


def _disputes(folder: Path, caption: str, number: int, names: tuple[str, ...]) -> tuple[Dispute, ...]:
    """One pair of each kind, one kind without any."""
    if not number:
        return ()
    pair = DisputedPair(
        "1001",
        "7001",
        caption,
        folder / "0-1.png",
        (Label.YES, Label.NO, Label.NO),
        Label.NO,
        original=True,
        cxc_score=4.2,
        found_by=tuple((name, 1 + i) for i, name in enumerate(names)),
        shortcomings=(Shortcoming.DESCRIBED_WRONGLY,),
        concepts=(Concept.COLOR,),
        truth=Label.WEAK_YES,
    )
    kinds = tuple(Dispute(kind, 12, 240, (pair,)) for kind in DisputeKind if kind is not DisputeKind.CXC)
    return (*kinds, Dispute(DisputeKind.CXC, 0, 31, ()))


def _multiplicity() -> tuple[Multiplicity, ...]:
    rng = np.random.default_rng(11)
    captions = tuple(int(5 + extra) for extra in rng.negative_binomial(2, 0.15, 120))
    images = tuple(int(1 + extra) for extra in rng.negative_binomial(2, 0.2, 120))
    return (
        Multiplicity(Direction.I2T, (5,) * 120, captions, 120, 2400, 2400),
        Multiplicity(Direction.T2I, (1,) * 120, images, 130, 2600, 2210),
    )


def _examples(folder: Path, caption: str, number: int, names: tuple[str, ...]) -> tuple[ExampleQuery, ...]:
    queries = []
    for q in range(number):
        items = [
            _item(q, i, label, picture(folder / f"{q}-{i}.png", 100 * q + i), names)
            for i, label in enumerate(
                (Label.YES, Label.YES, Label.YES, Label.WEAK_YES, Label.WEAK_NO, Label.NO)
            )
        ]
        totals = ((Frame.YES, 9),)
        queries.append(
            ExampleQuery(Direction.T2I, f"{7000 + q}", tuple(items), text=caption, totals=totals, gained=8)
        )
        lines = [
            _item(q, i, label, None, names, text=f"{caption}, said in way {i}")
            for i, label in enumerate((Label.YES, Label.YES, Label.WEAK_YES, None, Label.WEAK_NO, Label.NO))
        ]
        queries.append(
            ExampleQuery(
                Direction.I2T, f"{90 + q}", tuple(lines), image=picture(folder / f"q{q}.png", 900 + q)
            )
        )
    return tuple(queries)


def _item(
    q: int,
    i: int,
    label: Label | None,
    image: Path | None,
    names: tuple[str, ...],
    *,
    text: str | None = None,
) -> ExampleItem:
    refused = label is not None and not label.is_positive
    return ExampleItem(
        external_id=f"{1000 * q + i}",
        text=text,
        image=image,
        original=i == 0,
        label=label,
        cxc_score=3.6 if label is None else None,
        found_by=tuple((name, 1 + (i + k) % 5) for k, name in enumerate(names[: 1 + i % 3])),
        shortcomings=(Shortcoming.DESCRIBED_WRONGLY,) if refused else (),
        concepts=(Concept.COLOR, Concept.QUANTITY) if refused else (),
        truth=Label.NO if i == 2 else label,
    )
