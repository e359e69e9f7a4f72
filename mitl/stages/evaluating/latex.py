"""The figures as LaTeX."""

from __future__ import annotations

from collections.abc import Sequence

from mitl.stages.evaluating.figures import Figure
from mitl.stages.evaluating.tables import digits_of, scaled, unit

_TEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "ζ": r"$\zeta$",
        "τ": r"$\tau$",
        "→": r"$\rightarrow$",
        "–": "--",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "≤": r"$\leq$",
    }
)


def to_latex(figures: Sequence[Figure]) -> str:
    """A tabular for each set in the style of the package booktabs: a row a model, the directions side by side."""
    return "\n".join(
        _tabular(positives, [one for one in figures if one.positives == positives])
        for positives in dict.fromkeys(one.positives for one in figures)
    )


def escape_tex(text: str) -> str:
    """The text with LaTeX's own characters escaped."""
    return text.replace("<=", "≤").translate(_TEX)


def _tabular(positives: str, figures: Sequence[Figure]) -> str:
    directions = list(dict.fromkeys(one.direction for one in figures))
    columns = [
        (direction, metric)
        for direction in directions
        for metric in dict.fromkeys(one.metric for one in figures if one.direction == direction)
    ]
    known = {(one.model, one.direction, one.metric): one for one in figures}
    heads, rules, first = [], [], 2
    for direction in directions:
        width = sum(one == direction for one, _ in columns)
        heads.append(rf"\multicolumn{{{width}}}{{c}}{{{escape_tex(direction)}}}")
        rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
        first += width
    metrics = [metric for _, metric in columns]
    lines = [
        f"% {positives}, {unit(figures, metrics)}".replace("\n", " "),
        rf"\begin{{tabular}}{{l{'r' * len(columns)}}}",
        r"\toprule",
        " & ".join(["", *heads]) + r" \\",
        "".join(rules),
        " & ".join(["model", *(escape_tex(metric) for metric in metrics)]) + r" \\",
        r"\midrule",
    ]
    for model in dict.fromkeys(one.model for one in figures):
        cells = [_tex_cell(known.get((model, *column))) for column in columns]
        lines.append(" & ".join([escape_tex(model), *cells]) + r" \\")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", ""])


def _tex_cell(figure: Figure | None) -> str:
    if figure is None:
        return "--"
    digits = digits_of(figure.metric)
    value = f"{scaled(figure.metric, figure.value):.{digits}f}"
    if figure.low is None or figure.high is None:
        return value
    low, high = (scaled(figure.metric, end) for end in (figure.low, figure.high))
    return rf"{value} {{\scriptsize [{low:.{digits}f}, {high:.{digits}f}]}}"
