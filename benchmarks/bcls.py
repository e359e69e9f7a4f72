"""What the losses of BCLS do on generated worlds: ablation, alpha and beta, mining, convergence, agreement with labels.

Two heads of two layers, one a side, learn from scratch on frozen vectors of three minis: so a training takes seconds,
and all that differs between two of them is the loss. Originals alone are matches, every other pair of a batch is a
negative, and continuous labels are a sentence encoder's cosines: what BCLS has. Scores are on another world, against
its known truth (yes or weak yes), over all its queries in both directions. A seed is two worlds, a start and an order
of batches.

    python benchmarks/bcls.py run 0 1 2 3 4 --out build/bcls.csv       (one to two minutes a seed on one core)
    python benchmarks/bcls.py table build/bcls.csv [--figure docs/figures/bcls.svg]

Intervals are 95 % ones of Student's t over seeds; differences are paired by seed.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.stats import kendalltau
from scipy.stats import t as student
from shared_kit import existing, parser_of
from torch import Tensor, nn
from torch.nn import functional as F

from annotators import registry
from annotators.sentences import shared_encoder
from annotators.training.continuous import measured_alpha
from annotators.training.losses import Labels, LossSettings, loss_of
from mitl.datasets.scenes import World, generate, truth_matrix, write_items
from mitl.records import Label

MINIS = ("pvse-mini", "vsrn-mini", "clip-mini")
"""Those that keep vectors."""
TRAINING, HELD_OUT = 600, 200
"""Images."""
BATCH, STEPS, RATE, WIDTH = 96, 400, 1e-3, 96
MARKS = (25, 50, 100, 200, 300, 400)
"""Steps after which the held-out world is scored."""
TAU_QUERIES = 40
"""Of each direction, of which Kendall's tau-b is taken over all items."""

Plan = tuple[str, str, LossSettings]
"""Study, loss, numbers."""
USUAL = LossSettings()
ALPHAS, BETAS = (0.0, 0.1, 0.3, 0.4, 0.6), (0.05, 0.2, 0.4)
PLANS: tuple[Plan, ...] = (
    *(
        ("losses", name, USUAL)
        for name in ("triplet-hn", "triplet-sn", "kendall-sw-hs", "bcls", "hinges", "semi-hard")
    ),
    *(
        ("losses", name, USUAL)
        for name in ("sam", "ladder", "softmax", "softmax-own-outside", "probabilistic")
    ),
    *(("alpha", "bcls", LossSettings(alpha=alpha)) for alpha in ALPHAS),
    *(("beta", "bcls", LossSettings(beta=beta)) for beta in BETAS),
)
NAMES = {
    "triplet-hn": "Triplet-HN (12)",
    "triplet-sn": "Triplet-SN (14)",
    "kendall-sw-hs": "Kendall SW-HS (19) alone",
    "bcls": "both: BCLS",
    "hinges": "sum of hinges (1): no mining",
    "semi-hard": "semi-hard negatives",
    "sam": "SAM-like",
    "ladder": "ladder-like",
    "softmax": "softmax, common form",
    "softmax-own-outside": "softmax as CxC prints it",
    "probabilistic": "probabilistic, graded",
}
SCORES = ("map_at_r", "r_precision", "r_at_1", "tau_pseudo", "tau_truth")


@dataclass(frozen=True, eq=False)
class Encoded:
    """A world as frozen vectors: (I, D) images, (C, D) captions, (C, 384) sentences, (C,) image rows, (I, C) truth."""

    images: Tensor
    captions: Tensor
    sentences: NDArray[np.float32]
    own: NDArray[np.int64]
    truth: NDArray[np.int8]
    """Levels 1 (yes) to 4 (no)."""

    @property
    def match(self) -> NDArray[np.bool_]:
        """(I, C)"""
        return self.truth <= Label.WEAK_YES.code


def encode(world: World) -> Encoded:
    """The world through the minis and the sentence encoder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        images, captions = write_items(world, folder)
        sides: tuple[list[Tensor], list[Tensor]] = ([], [])
        for mini in MINIS:
            annotator = registry.build(mini)
            for side, encoded in zip(
                sides, (annotator.encode_images(images), annotator.encode_captions(captions)), strict=True
            ):
                side.append(torch.from_numpy(encoded.arrays["embedding"]).flatten(1).float())
    places = {item.id: row for row, item in enumerate(images)}
    return Encoded(
        torch.cat(sides[0], 1),
        torch.cat(sides[1], 1),
        shared_encoder("cpu").vectors([caption.text for caption in captions], 1),
        np.array([places[caption.image_id] for caption in captions]),
        truth_matrix(world, list(world.scenes), list(world.captions)).astype(np.int8),
    )


def head(inside: int) -> nn.Module:
    """(N, inside) -> (N, 96), not yet unit vectors."""
    return nn.Sequential(nn.Linear(inside, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH))


def train(world: Encoded, held_out: Encoded, plan: Plan, seed: int) -> list[dict[str, object]]:
    """A row for each mark."""
    study, name, settings = plan
    torch.manual_seed(seed)
    draw = np.random.default_rng([seed, 3])
    heads = nn.ModuleList([head(world.images.shape[1]), head(world.captions.shape[1])])
    optimizer = torch.optim.Adam(heads.parameters(), lr=RATE)
    losses, rows, seconds = [], [], 0.0
    by_image = np.argsort(world.own, kind="stable").reshape(len(world.images), -1)
    for step in range(1, STEPS + 1):
        started = time.process_time()
        images = draw.choice(len(world.images), BATCH, replace=False)
        captions = by_image[images, draw.integers(by_image.shape[1], size=BATCH)]
        sentences = torch.from_numpy(world.sentences[captions])
        own = torch.eye(BATCH, dtype=torch.bool)
        relevance = (sentences @ sentences.T).clamp(-1, 1).masked_fill(own, 1.0)
        labels = Labels(own, relevance, torch.ones_like(own))
        similarities = compare(heads, world.images[images], world.captions[captions])
        loss = loss_of(name, settings)(similarities, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds += time.process_time() - started
        if step in MARKS:
            with torch.inference_mode():
                found = compare(heads, held_out.images, held_out.captions).numpy()
            rows.append(
                {
                    "study": study,
                    "loss": name,
                    "alpha": settings.alpha,
                    "beta": settings.beta,
                    "seed": seed,
                    "step": step,
                    "mean_loss": float(np.mean(losses)),
                    "seconds": round(seconds, 2),
                    **scores(found, held_out, tau=step == STEPS),
                }
            )
            losses = []
    return rows


def compare(heads: nn.ModuleList, images: Tensor, captions: Tensor) -> Tensor:
    """(I, C) cosines."""
    left, right = (
        F.normalize(head(each), dim=1) for head, each in zip(heads, (images, captions), strict=True)
    )
    return left @ right.T


def scores(similarities: NDArray[np.float32], world: Encoded, *, tau: bool) -> dict[str, float]:
    """Means over both directions' queries; tau is NaN where it is not wanted."""
    ways = ((similarities, world.match), (similarities.T, world.match.T))
    found = np.mean([ranked_scores(s, match) for s, match in ways], axis=0)
    agreement = taus(similarities, world) if tau else (np.nan, np.nan)
    return dict(zip(SCORES, (*found, *agreement), strict=True))


def ranked_scores(similarities: NDArray[np.float32], match: NDArray[np.bool_]) -> tuple[float, float, float]:
    """mAP@R, R-Precision and R@1 over the queries (rows) that have a match."""
    rows = match.any(1)
    order = np.argsort(-similarities[rows], axis=1, kind="stable")
    hits = np.take_along_axis(match[rows], order, 1)
    ranks = np.arange(1, hits.shape[1] + 1)
    count = match[rows].sum(1)
    within = hits & (ranks <= count[:, None])
    precision = np.cumsum(hits, 1) / ranks
    return (
        float(((precision * within).sum(1) / count).mean()),
        float((within.sum(1) / count).mean()),
        float(hits[:, 0].mean()),
    )


def taus(similarities: NDArray[np.float32], world: Encoded) -> tuple[float, float]:
    """Kendall's tau-b with pseudo-labels (the mean over an image's own captions) and with the levels of truth."""
    products = world.sentences @ world.sentences.T
    mean = np.stack([products[world.own == row].mean(0) for row in range(len(similarities))])
    levels = -world.truth.astype(np.int64)
    rng = np.random.default_rng(0)
    found: tuple[list[float], list[float]] = ([], [])
    for s, labels, truth in ((similarities, mean, levels), (similarities.T, mean.T, levels.T)):
        for row in rng.choice(len(s), TAU_QUERIES, replace=False):
            found[0].append(kendalltau(s[row], labels[row]).statistic)
            found[1].append(kendalltau(s[row], truth[row]).statistic)
    return float(np.nanmean(found[0])), float(np.nanmean(found[1]))


def run(seeds: list[int], out: Path) -> None:
    """All trainings of these seeds; the file is written after each of them."""
    rows: list[dict[str, object]] = []
    for seed in seeds:
        world = encode(generate(TRAINING, seed=seed, split="bcls-train"))
        held_out = encode(generate(HELD_OUT, seed=seed, split="bcls-held-out"))
        alpha = measured_alpha(world.sentences, world.own)
        print(f"seed {seed}: alpha measured {alpha:.3f}; {held_out.match.mean():.3f} of held-out pairs match")
        for plan in PLANS:
            rows += train(world, held_out, plan, seed)
            last = rows[-1]
            print(
                f"  {plan[0]:7} {plan[1]:20} alpha {plan[2].alpha:.2f} beta {plan[2].beta:.2f}  mAP@R "
                f"{last['map_at_r']:.4f}  tau {last['tau_pseudo']:.3f}  {last['seconds']} s",
                flush=True,
            )
        out.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_csv(out, index=False)


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and half the width of its 95 % interval over seeds."""
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(half)


def table(rows: pd.DataFrame) -> None:
    """The figures of the last step, a line a loss, then alpha, beta, and the way there."""
    last = rows[rows["step"] == STEPS]
    losses = last[last["study"] == "losses"].pivot(index="seed", columns="loss")
    print(f"{len(losses)} seeds; mean ± half of a 95 % interval; last: mAP@R less Triplet-HN's, paired")
    base = losses["map_at_r"]["triplet-hn"]
    for name, words in NAMES.items():
        cells = ["{:.3f} ± {:.3f}".format(*interval(losses[score][name].to_numpy())) for score in SCORES]
        gain = "{:+.4f} ± {:.4f}".format(*interval((losses["map_at_r"][name] - base).to_numpy()))
        print(f"| {words} | {' | '.join(cells)} | {gain if name != 'triplet-hn' else ''} |")
    for study in ("alpha", "beta"):
        for value, map_at_r, tau, seconds in curve(rows, study):
            shown = "mAP@R {:.3f} ± {:.3f}, tau {:.3f} ± {:.3f}".format(*map_at_r, *tau)
            print(f"{study} {value}: {shown}, {seconds:.1f} s")
    mean = rows[rows["study"] == "losses"].groupby(["loss", "step"])[["mean_loss", "map_at_r"]].mean()
    for name in ("triplet-hn", "triplet-sn", "kendall-sw-hs", "bcls"):
        way = [mean.loc[(name, step)] for step in MARKS]
        cells = [f"{at['map_at_r']:.3f} ({at['mean_loss']:.3f})" for at in way]
        print(f"{name}, mAP@R and loss after {MARKS}: {', '.join(cells)}")


def curve(
    rows: pd.DataFrame, study: str
) -> list[tuple[str, tuple[float, float], tuple[float, float], float]]:
    """For each value, mAP@R and tau with pseudo-labels, each with half an interval, and seconds."""
    last = rows[rows["step"] == STEPS]
    usual = last[(last["study"] == "losses") & (last["loss"] == "bcls")]
    both = pd.concat([last[last["study"] == study], usual])
    both = both.assign(value=[f"{v:g}" for v in both[study]])
    found = []
    for value, group in both.groupby("value"):
        of = [interval(group[name].to_numpy()) for name in ("map_at_r", "tau_pseudo")]
        found.append((str(value), of[0], of[1], float(group["seconds"].mean())))
    return found


def draw_figure(rows: pd.DataFrame, path: Path) -> None:
    """mAP@R on the way, over alpha, over beta."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "bcls"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(11, 3.4))
    mean = rows[rows["study"] == "losses"].groupby(["loss", "step"])["map_at_r"].mean()
    for name in ("triplet-hn", "triplet-sn", "kendall-sw-hs", "bcls"):
        axes[0].plot(MARKS, [mean.loc[(name, step)] for step in MARKS], marker=".", label=NAMES[name])
    axes[0].set_xlabel("steps")
    axes[0].set_ylabel("mAP@R, held out")
    axes[0].legend(frameon=False, fontsize=7)
    for axis, study in zip(axes[1:], ("alpha", "beta"), strict=True):
        points = curve(rows, study)
        places = range(len(points))
        for column, label in ((1, "mAP@R"), (2, "tau with pseudo-labels")):
            means = [point[column][0] for point in points]  # type: ignore[index]
            halves = [point[column][1] for point in points]  # type: ignore[index]
            axis.errorbar(places, means, yerr=halves, marker=".", capsize=2, label=label)
        axis.set_xticks(list(places), [point[0] for point in points], fontsize=7)
        axis.set_xlabel(study)
        axis.legend(frameon=False, fontsize=7)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Train, or print what was found."""
    parser = parser_of(__doc__)
    steps = parser.add_subparsers(dest="command", required=True)
    training = steps.add_parser("run")
    training.add_argument("seeds", type=int, nargs="+")
    training.add_argument("--out", type=Path, required=True)
    printing = steps.add_parser("table")
    printing.add_argument("files", type=existing, nargs="+")
    printing.add_argument("--figure", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.command == "run":
        run(given.seeds, given.out)
        return
    rows = pd.concat([pd.read_csv(path) for path in given.files], ignore_index=True)
    table(rows)
    if given.figure is not None:
        draw_figure(rows, given.figure)


if __name__ == "__main__":
    main()
