"""`mitl report --methods`: what a paper says of how the data were made, from what the project knows.

As Markdown (with Pandoc's citations) or LaTeX (booktabs), with a table of its numbers; what anybody wrote is escaped.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from mitl.core.formats import escape_tex, lower_bound
from mitl.core.pricing import format_dollars
from mitl.core.whole_files import put_file
from mitl.crowd.context import Context, open_context
from mitl.db.session import reading
from mitl.db.store import audits as audit_store
from mitl.db.store import hits as hit_store
from mitl.db.store import proposals as proposal_store
from mitl.db.store import releases
from mitl.errors import UsageError
from mitl.positives.markdown import plain, release_words, table
from mitl.positives.merging import listed_queries
from mitl.positives.methods import Cite, Facts, Paragraph, UsedMachine, bibtex, cited, paragraphs
from mitl.positives.sheet_audit import machine_counts
from mitl.positives.summary import summarise
from mitl.records import AuditPurpose, BatchKind, Environment, JudgementSource, StageResult, several
from mitl.records.forms import of_form
from mitl.settings import Settings
from mitl.stages.reporting.certified import released_now
from mitl.stages.reporting.provenance import versions
from mitl.stages.reporting.report import MethodsNumbers, MethodsPaths, evaluation

STDOUT = Path("-")
_LATEX, _MARKDOWN = ".tex", ".md"


def methods(settings: Settings, out: Path, environment: Environment | None = None) -> StageResult:
    """Write the section and its bibliography, or print both.

    Args:
        out: a file that ends in .md or .tex, with the bibliography beside it as .bib; ``-`` prints Markdown.

    Raises:
        UsageError: the file ends in neither.
        ReleaseError: nobody judged or rated anything.
    """
    if out != STDOUT and out.suffix not in (_LATEX, _MARKDOWN):
        raise UsageError(
            f"--methods is {str(out)!r}; give a file that ends in {_MARKDOWN} or {_LATEX}, or - to print"
        )
    unposted = Environment.LIVE  # as of a release
    with (
        open_context(settings, environment, read_only=True, unposted=unposted) as context,
        reading(context.session),
    ):
        of, warnings = facts(context)
    entries = bibliography(of)
    latex = out.suffix == _LATEX
    text = as_latex(of, out.stem) if latex else as_markdown(of)
    counts: MethodsNumbers = {"figures": figures(of), "cited": sorted(cited(paragraphs(of)))}
    if out == STDOUT:
        counts |= {"methods": text, "bibliography": entries}
        cites = ("", "```bibtex", entries.rstrip("\n"), "```") if entries.strip() else ()
        lines = (text.rstrip("\n"), *cites)
        return StageResult(counts=counts, warnings=warnings, lines=tuple("\n".join(lines).split("\n")))
    beside = out.with_suffix(".bib")
    changed = [put_file(file, content.encode()) for file, content in ((out, text), (beside, entries))]
    paths: MethodsPaths = {"methods": str(out), "bibliography": str(beside)}
    return StageResult(
        status="done" if any(changed) else "nothing_to_do",
        counts=counts,
        paths=paths,
        warnings=warnings,
        lines=(
            f"methods: {out}, and {several(len(counts['cited']), 'reference')} in {beside}"
            if any(changed)
            else f"nothing to do: {out} and {beside} hold exactly this already",
        ),
    )


def facts(context: Context) -> tuple[Facts, tuple[str, ...]]:
    """What happened, by the rules of the latest release; and what to know of it, a line each."""
    session, settings = context.session, context.settings
    built = releases.built(session, context.environment)
    released, data, uncertified = released_now(context)
    summary = summarise(data, listed_queries(data.merged, data.queries))
    release, later = built[-1].name if built else None, ""
    if release is not None and built[-1].held not in (None, summary.held):
        later = (
            f"this tells of what is known today, but the {release_words(release)} was built of other answers, "
            "exclusion lists or queries; build it again"
        )
        release = None
    return (
        Facts(
            data=data,
            summary=summary,
            dataset_kind=released.dataset.kind,
            machines=tuple(_machines(context)),
            release=release,
            other_work=_other_work(context),
            audit_answers=len(
                {
                    answer  # two samples may have drawn one pair
                    for audit in audit_store.audits(session, context.environment)
                    if audit.purpose is AuditPurpose.RECALL
                    for answer in audit_store.audit_answers(session, audit.id)
                    .filter(["pair", "worker"])
                    .itertuples(index=False, name=None)
                }
            ),
            scores=evaluation(
                settings,
                [row.name for row in proposal_store.annotators(session)],
                context.environment if hit_store.environments(session) else None,
            ),
            versions=tuple(versions()),
        ),
        tuple(line for line in (*data.warnings, uncertified, later) if line),
    )


def _machines(context: Context) -> list[UsedMachine]:
    from annotators.catalog import MINIS
    from annotators.registry import network_of

    machines, marks = [], proposal_store.fingerprints(proposal_store.runs(context.session))
    for row in proposal_store.annotators(context.session):
        config = json.loads(row.config)
        mini = MINIS.get(row.name) if not config.get("network") else None
        own_files = any(key in config for key in ("embeddings", "rankings", "similarities"))
        network = None if own_files else mini.network if mini is not None else network_of(row.name, config)
        machines.append(
            UsedMachine(row.name, row.kind, marks.get(row.name, row.fingerprint), network, mini is not None)
        )
    return machines


def _other_work(context: Context) -> tuple[tuple[str, int], ...]:
    """HITs of other kinds than pairs that were posted."""
    kinds = {
        batch.id: batch.kind
        for batch in hit_store.batches(context.session, context.environment)
        if batch.kind != BatchKind.PAIRS and batch.source is JudgementSource.CROWD
    }
    hits = hit_store.hits(context.session, context.environment, kind=None)
    counts = Counter(
        kinds[hit.batch_id] for hit in hits if hit.batch_id in kinds and hit.mturk_hit_id is not None
    )
    return tuple(sorted(counts.items()))


def figures(of: Facts) -> dict[str, Any]:
    """The numbers that the section states, by name; what did not happen is not there."""
    summary, origins = of.summary, of.data.origins
    numbers: dict[str, Any] = {
        "images": len(of.data.image_ids),
        "captions": len(of.data.caption_ids),
        "candidates": summary.proposed,
        "positives": summary.positives,
        "negatives": summary.negatives,
        "answers": summary.judgements,
        "answers_usable": summary.usable,
        "pairs_judged": summary.pairs_judged,
        "hits": of.hits,
        "alpha": summary.agreement.alpha.alpha,
    }
    if origins.crowd is not None:
        numbers |= {
            "workers": origins.crowd.workers,
            "submissions": origins.crowd.submissions,
            "rejected": origins.crowd.rejected,
        }
    if origins.controls is not None:
        kinds = (origins.controls.positive, origins.controls.negative)
        numbers |= {
            "controls_seen": sum(kind.seen for kind in kinds),
            "controls_passed": sum(kind.passed for kind in kinds),
        }
    if origins.pay is not None:
        pay = origins.pay
        numbers |= {
            "paid_cents": pay.rewards_cents + pay.bonuses_cents + pay.fees_cents,
            "median_hourly_cents": pay.median_hourly_cents,
        }
    if of.data.has_machine_labels:
        numbers["machine_labels"] = machine_counts(of.data)[0]
    if of.data.audit is not None:
        proof = of.data.audit.certificate
        numbers |= {
            "audited": of.data.audit.record.design.sample,
            "recall_at_least": proof.measured.recall,
            "precision_at_least": proof.measured.precision,
        }
    return {name: value for name, value in numbers.items() if value is not None}


_NAMES = {
    "images": "images",
    "captions": "captions",
    "candidates": "proposed pairs",
    "hits": "HITs",
    "workers": "workers who submitted",
    "submissions": "submissions",
    "rejected": "rejected submissions",
    "controls_seen": "answers on controls",
    "controls_passed": "as expected",
    "answers": "answers",
    "answers_usable": "usable answers",
    "pairs_judged": "pairs with a usable answer",
    "alpha": "Krippendorff's alpha",
    "paid_cents": "paid",
    "median_hourly_cents": "an hour's pay, median",
    "negatives": "pairs called no match",
    "positives": "positives",
    "machine_labels": "machine labels",
    "audited": "audited pairs",
    "recall_at_least": "recall at least",
    "precision_at_least": "precision at least",
}


def rows(of: Facts) -> list[tuple[str, str]]:
    """The table: figures in the order of the work, then fingerprints."""
    numbers = figures(of)
    lines = [
        (of_form(name, of.data.form), _shown(key, numbers[key]))
        for key, name in _NAMES.items()
        if numbers.get(key) not in (None, 0)
    ]
    lines.append(("content of the data set (SHA-256)", of.data.dataset_sha256[:16]))
    lines += [(f"fingerprint of {machine.name}", machine.fingerprint[:16]) for machine in of.machines]
    return lines


def _shown(key: str, value: Any) -> str:
    if key.endswith("_cents"):
        return format_dollars(value)
    if key.endswith("_at_least"):
        return f"{lower_bound(100 * value, 1)} %"
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}"


_BRACKETS = str.maketrans({"[": "{[}", "]": "{]}"})
"""A row of a table that began with a bracket would be read as an option of the row before."""


def as_markdown(of: Facts) -> str:
    """The section with its table; citations as ``[@key]``, for Pandoc."""
    parts = paragraphs(of)
    told = [f"**{paragraph.title}.** {_text(paragraph, _plain, _cite_markdown)}" for paragraph in parts]
    cells = [(_plain(name), _plain(value)) for name, value in rows(of)]
    return "\n\n".join(["## Methods", *told, table(("", ""), cells)]) + "\n"


def as_latex(of: Facts, bibliography: str) -> str:
    """The section with its table and the line that reads the bibliography.

    Args:
        bibliography: name of the .bib file without its ending.
    """
    parts = paragraphs(of)
    told = [rf"\paragraph{{{paragraph.title}.}} {_text(paragraph, _tex, _cite_tex)}" for paragraph in parts]
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
    end = [reads] if cited(parts) else []
    return "\n\n".join(["% needs the package booktabs", r"\section{Methods}", *told, figure, *end]) + "\n"


def bibliography(of: Facts) -> str:
    """BibTeX of what the section cites, and of nothing else."""
    return bibtex(cited(paragraphs(of)))


def _text(paragraph: Paragraph, escape: Callable[[str], str], cite: Callable[[Sequence[str]], str]) -> str:
    return " ".join(
        "".join(cite(part.keys) if isinstance(part, Cite) else escape(part) for part in sentence).strip()
        for sentence in paragraph.sentences
    )


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
