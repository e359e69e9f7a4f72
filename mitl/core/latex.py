"""Text for LaTeX."""

from __future__ import annotations

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
        "×": r"$\times$",
        "α": r"$\alpha$",
        "≥": r"$\geq$",
        "–": "--",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "≤": r"$\leq$",
    }
)


def escape_tex(text: str) -> str:
    """The text with LaTeX's own characters escaped."""
    return text.replace("<=", "≤").translate(_TEX)
