"""A methods section as Markdown (with Pandoc's citations) or LaTeX (booktabs); whatever anybody wrote is escaped."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mitl.core.formats import escape_tex
from mitl.positives.markdown import plain, table
from mitl.positives.methods import cited, paragraphs
from mitl.positives.methods_facts import Cite, Facts, Paragraph, Sentence
from mitl.positives.methods_figures import rows
from mitl.positives.references import bibtex

_BRACKETS = str.maketrans({"[": "{[}", "]": "{]}"})
"""A row of a table that began with a bracket would be read as an option of the row before."""


def as_markdown(of: Facts) -> str:
    """The section with its table; citations as ``[@key]``, for Pandoc."""
    found = paragraphs(of)
    told = [f"**{one.title}.** {_text(one, _plain, _cite_markdown)}" for one in found]
    cells = [(_plain(name), _plain(value)) for name, value in rows(of)]
    return "\n\n".join(["## Methods", *told, table(("", ""), cells)]) + "\n"


def as_latex(of: Facts, bibliography: str) -> str:
    """The section with its table and the line that reads the bibliography.

    Args:
        bibliography: name of the .bib file without its ending.
    """
    found = paragraphs(of)
    told = [rf"\paragraph{{{one.title}.}} {_text(one, _tex, _cite_tex)}" for one in found]
    cells = "\n".join(rf"{_tex(name)} & {_tex(value)} \\" for name, value in rows(of))
    figure = "\n".join(
        [
            r"\begin{table}[t]",
            r"\centering",
            r"\caption{What was made, in figures.}",
            r"\begin{tabular}{lr}",
            r"\toprule",
            cells,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
        ]
    )
    reads = "\\bibliographystyle{plain}\n" + rf"\bibliography{{{bibliography}}}"
    end = [reads] if cited(found) else []
    return "\n\n".join(["% needs the package booktabs", r"\section{Methods}", *told, figure, *end]) + "\n"


def bibliography(of: Facts) -> str:
    """BibTeX of what the section cites, and of nothing else."""
    return bibtex(cited(paragraphs(of)))


def _text(paragraph: Paragraph, escape: Callable[[str], str], cite: Callable[[Sequence[str]], str]) -> str:
    return " ".join(_sentence(one, escape, cite) for one in paragraph.sentences)


def _sentence(sentence: Sentence, escape: Callable[[str], str], cite: Callable[[Sequence[str]], str]) -> str:
    return "".join(cite(part.keys) if isinstance(part, Cite) else escape(part) for part in sentence).strip()


def _cite_markdown(keys: Sequence[str]) -> str:
    return " [" + "; ".join(f"@{key}" for key in keys) + "]"


def _cite_tex(keys: Sequence[str]) -> str:
    return rf"~\cite{{{','.join(keys)}}}"


def _plain(text: str) -> str:
    return _edges(text, plain)


def _tex(text: str) -> str:
    return _edges(text, escape_tex).translate(_BRACKETS)


def _edges(text: str, escape: Callable[[str], str]) -> str:
    """The text escaped on one line, without characters that cannot be seen; spaces at its ends stay."""
    seen = "".join(c if c.isprintable() else " " for c in text)
    line = " ".join(seen.split())
    if not line:
        return " " if seen else ""
    return (" " if seen[0] == " " else "") + escape(line) + (" " if seen[-1] == " " else "")
