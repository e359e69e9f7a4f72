"""`mitl report --methods`: what a paper says of how the data were made, from what the project knows."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from mitl.core.whole_files import put_file
from mitl.crowd.context import Context, open_context
from mitl.db.session import reading
from mitl.db.store import hits as hit_store
from mitl.db.store import proposals as proposal_store
from mitl.db.store import releases
from mitl.errors import UsageError
from mitl.positives.merging import MergeRules, listed_queries
from mitl.positives.methods import cited, paragraphs
from mitl.positives.methods_facts import Facts, UsedMachine
from mitl.positives.methods_text import as_latex, as_markdown, bibliography, figures
from mitl.positives.summary import summarise
from mitl.records import BatchKind, Environment, JudgementSource, StageResult, several
from mitl.settings import Settings
from mitl.stages.releasing.additions import with_certificate
from mitl.stages.releasing.build_dataset import ReleaseOptions, release_input
from mitl.stages.releasing.origins import release_facts
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
    with open_context(settings, environment, read_only=True) as context, reading(context.session):
        of, warning = facts(context)
    entries = bibliography(of)
    latex = out.suffix == _LATEX
    text = as_latex(of, out.stem) if latex else as_markdown(of)
    counts: MethodsNumbers = {"figures": figures(of), "cited": sorted(cited(paragraphs(of)))}
    warnings = (warning,) if warning else ()
    if out == STDOUT:
        counts |= {"methods": text, "bibliography": entries}
        lines = (text.rstrip("\n"), "", "```bibtex", entries.rstrip("\n"), "```")
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


def facts(context: Context) -> tuple[Facts, str]:
    """What happened, by the rules of the latest release; and in one line why an audit certifies nothing."""
    session, settings = context.session, context.settings
    built = releases.built(session)
    rules = MergeRules(**json.loads(built[-1].rules)) if built else MergeRules()
    known = release_facts(context)
    name = built[-1].name if built else known.dataset.name
    data, uncertified = with_certificate(
        context, release_input(context, known, name, ReleaseOptions(rules)), known.exclusions
    )
    return (
        Facts(
            data=data,
            summary=summarise(data, listed_queries(data.merged, data.queries)),
            dataset_kind=known.dataset.kind,
            dataset_sha256=known.dataset.content_sha256,
            machines=tuple(_machines(context)),
            release=built[-1].name if built else None,
            other_work=_other_work(context),
            scores=evaluation(settings, [row.name for row in proposal_store.annotators(session)]),
            versions=tuple(versions()),
        ),
        uncertified,
    )


def _machines(context: Context) -> list[UsedMachine]:
    from annotators.catalog import MINIS
    from annotators.registry import network_of

    made = []
    for row in proposal_store.annotators(context.session):
        config = json.loads(row.config)
        mini = MINIS.get(row.name) if not config.get("network") else None
        own_files = any(key in config for key in ("embeddings", "rankings", "similarities"))
        network = None if own_files else mini.network if mini is not None else network_of(row.name, config)
        made.append(UsedMachine(row.name, row.kind, row.fingerprint, network, mini is not None))
    return made


def _other_work(context: Context) -> tuple[tuple[str, int], ...]:
    """HITs of other kinds than pairs that were posted."""
    kinds = {
        batch.id: batch.kind
        for batch in hit_store.batches(context.session, context.environment)
        if batch.kind != BatchKind.PAIRS and batch.source is JudgementSource.CROWD
    }
    hits = hit_store.hits(context.session, context.environment, kind=None)
    found = Counter(
        kinds[hit.batch_id] for hit in hits if hit.batch_id in kinds and hit.mturk_hit_id is not None
    )
    return tuple(sorted(found.items()))
