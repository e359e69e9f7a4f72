"""What several benchmarks share: their options, their files, and figures that are the same bytes each time."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

GREY = "#808080"
"""Legible on white and on dark pages."""


def parser_of(text: str | None) -> argparse.ArgumentParser:
    """A parser whose help shows a module's own words as they stand."""
    return argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)


def existing(text: str) -> Path:
    """A file or folder among a command's words, which must be there."""
    if not Path(text).exists():
        raise argparse.ArgumentTypeError(f"there is no {text}")
    return Path(text)


def find_file(folder: Path, name: str) -> Path:
    """The first file of this name under a folder."""
    found = sorted(folder.rglob(name))
    if not found:
        raise SystemExit(f"there is no {name} under {folder}")
    return found[0].absolute()


def coco_files(folder: Path) -> list[Path]:
    """COCO's captions, CxC's ratings of images and captions, and the machine captions."""
    names = ("captions.parquet", "sits_test.csv", "machine_captions.parquet")
    return [find_file(folder, name) for name in names]


def svg_plots() -> Any:
    """``pyplot`` for figures without a screen."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "mitl", "svg.fonttype": "none", "font.size": 8})
    return plt


def grey_frame(axis: Any) -> None:
    """Draw a panel's ticks and edges in grey."""
    axis.tick_params(colors=GREY)
    for spine in axis.spines.values():
        spine.set_color(GREY)


def save_svg(figure: Any, path: Path) -> None:
    """Write a figure with a transparent ground."""
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
