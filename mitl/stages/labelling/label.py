"""Labels that a machine gives to open pairs, under a bound that a sample of people's answers proves.

They rest on fused probabilities, or on a file of ones that were made elsewhere.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from mitl.audits.certificate import MOST_OF_ONE
from mitl.audits.machine_labels import (
    SIDING_SHARE,
    LabelledStratum,
    Loss,
    MachineLabels,
    Promise,
    label_pairs,
    level_cuts,
    refusal,
    siding_upper,
)
from mitl.campaign.standing import takes_in
from mitl.core.arrays import Ints, contains, distinct, pack_ids, pack_pairs, places
from mitl.core.formats import percent, percent_at_most, upper_bound
from mitl.crowd.context import Context, named, open_context
from mitl.datasets.files import read_rows
from mitl.db.store import audits as audit_store
from mitl.db.store import columns, open_work
from mitl.db.store import items as item_store
from mitl.db.store.audits import AuditRow
from mitl.db.store.rounds import pairs_command
from mitl.errors import AuditError, DatasetError
from mitl.progress import Progress, no_progress
from mitl.records import (
    PAIRS_COMMAND,
    AuditPurpose,
    Environment,
    StageResult,
    Table,
    several,
)
from mitl.records.audits import FUSED
from mitl.records.frames import counts as speaks
from mitl.records.frames import frame
from mitl.records.results import printed_by
from mitl.settings import Settings
from mitl.stages.fusing.scores import kept_scores, sources


class StratumCounts(TypedDict):
    """One stratum as ``--json`` prints it."""

    stratum: str
    pairs: int
    sampled: int
    loss: float
    cut: float | None
    labelled: int
    left: int
    bound: float
    bound_among_labelled: float
    wanted: int | None


@printed_by("label")
class LabelCounts(TypedDict, total=False):
    """What machines labelled, or what was taken back."""

    labelled: Annotated[int, "pairs with a machine label now"]
    left: Annotated[int, "open pairs that are left to people, those proposed after the draw among them"]
    sampled: Annotated[int, "pairs of the sample that bounds the error"]
    disputed: Annotated[
        int, "of these, whose first answer contradicts the machine and that lack two further ones"
    ]
    siding: Annotated[float, "share of workers, at most, who side with the machine where it is wrong"]
    strata: Annotated[
        list[StratumCounts],
        "each with its pairs, audited loss, cut of the uncertainty (null where all or none stand), pairs labelled and "
        "left, bound of the loss as a share of all its pairs and of those labelled, and the sample wanted where it "
        "is too small",
    ]
    withdrawn: Annotated[int, "runs whose labels were taken back"]


def label(
    settings: Settings,
    environment: Environment | None,
    promise: Promise,
    *,
    scores: Path | None = None,
    dry_run: bool = False,
    progress: Progress = no_progress,
) -> StageResult:
    """Label what can be labelled; what stood before is replaced, and where it would be the same nothing is done.

    Args:
        scores: a table of image_id, caption_id and probability, made without the sample's answers; the newest fused
            probabilities where None.

    Raises:
        DatasetError: the file of scores cannot be read or does not fit.
        AuditError: no sample or no score, a score that has read the sample, a sample that is incomplete, too small or
            one worker's.
    """
    with open_context(settings, environment, read_only=dry_run, progress=progress) as context:
        audit = _sample(context)
        audited = audit_store.audited(context.session, audit.id)
        sampled = distinct(audited["pair"].to_numpy())
        read = _score(context, audit, sampled) if scores is None else read_scores(context, scores)
        about, fused = read
        if scores is None:  # what only withdrawn annotators proposed is open no more, drawn or not
            audited = audited[contains(fused["pair"].to_numpy(), audited["pair"].to_numpy())]
        _check_workers(context, audit)
        judgements = columns.judgement_columns(context.session, context.environment)
        judgements = judgements[speaks(judgements)]
        cuts = _cuts(judgements, fused, sampled)
        asked = pack_pairs(
            {
                *open_work.live_pairs(context.session, context.environment),
                *open_work.usable_workers(context.session, context.environment),
            }
        )
        labelled = label_pairs(
            _open(context, audit, fused, sampled, asked),
            audited,
            audit.design,
            promise,
            siding=_siding(judgements, sampled, promise),
            cuts=cuts,
        )
        line = refusal(labelled, promise, audit.design)
        if line is not None:
            raise AuditError(line)
        config = _config(promise, labelled, cuts, about, len(audited))
        same = _stands(context, audit, config, labelled)
        if not dry_run and not same:
            audit_store.withdraw(context.session, context.environment, context.now())
            audit_store.add_labelling(
                context.session, context.environment, audit.id, config, labelled.labels, context.now()
            )
            context.session.commit()
        proposed = distinct(columns.proposal_columns(context.session)["pair"].to_numpy())
        done = distinct(np.concatenate([asked, labelled.labels["pair"].to_numpy()]))
        left_out = open_work.left_out(context.session, context.environment, proposed)
        left = int((~contains(done, proposed) & ~left_out).sum())
        build = f"mitl build-dataset{named(context.session, context.environment)} --out DIR"
        following = _following(context) if left else build
    settled = audit_store.as_guessed(audit.design, audited)
    n_settled = int(np.isin(labelled.disputed, audited["pair"].to_numpy()[settled]).sum())
    result = _result(labelled, promise, (left, len(audited), n_settled), dry_run=dry_run, same=same)
    result = replace(result, next=following)
    if scores is None:
        return result
    taken = f"that {scores.name} was made without the sample's answers is taken on your word; the bound rests on it"
    return replace(result, warnings=(*result.warnings, taken))


def _following(context: Context) -> str:
    """What comes next while pairs are open: the answers that are on their way, else asking."""
    session, environment = context.session, context.environment
    if on_their_way := takes_in(session, environment):
        return on_their_way
    command = pairs_command(session, environment)  # an open round asks what is disputed itself
    is_disputed = command == PAIRS_COMMAND and audit_store.disputes(session, environment)
    return f"{command} --{environment}{' --drawn' if is_disputed else ''}"


def withdraw(settings: Settings, environment: Environment | None = None) -> StageResult:
    """Take back the machine labels that stand; they are kept and not read, and their pairs are open again."""
    with open_context(settings, environment) as context:
        n_labels = len(audit_store.machine_labels(context.session, context.environment))
        runs = audit_store.withdraw(context.session, context.environment, context.now())
        context.session.commit()
        following = _following(context)
    taken: LabelCounts = {"withdrawn": runs, "labelled": 0}
    if not runs:
        return StageResult.nothing("no machine labels stand", taken)
    return StageResult(
        counts=taken,
        lines=(f"{several(n_labels, 'machine label')} taken back; their pairs are open again",),
        next=following,
    )


def _sample(context: Context) -> AuditRow:
    audit = audit_store.current(context.session, context.environment, AuditPurpose.LABELS)
    if audit is None:
        raise AuditError(
            "no sample bounds machine labels of this data set and these queries; run `mitl audit draw --for labels "
            "--size N`"
        )
    return audit


def _score(context: Context, audit: AuditRow, sampled: Ints) -> tuple[Mapping[str, Any], pd.DataFrame]:
    """What is said of the newest probabilities, and ``FUSED``; AuditError where they may have read the sample."""
    for about, kept in kept_scores(context.settings, context.environment, sources(context.session)):
        fused = kept.read()
        if fused is None:
            continue
        blind = about.get("excluded_sha256") == hashlib.sha256(sampled.tobytes()).hexdigest()
        made_at = dt.datetime.fromisoformat(about["made_at"])
        if not blind and made_at >= audit.drawn_at:
            raise AuditError(
                f"the probabilities of {made_at:%Y-%m-%d %H:%M} may have been learnt from the sample's own answers, so "
                "it cannot bound them; run `mitl fuse` again, which leaves the sample out"
            )
        return about, fused
    raise AuditError("there are no probabilities to label by; run `mitl fuse` first, or give --scores FILE")


def _check_workers(context: Context, audit: AuditRow) -> None:
    shares = audit_store.worker_shares(context.session, audit.id)
    worker, share = next(iter(shares.items()), ("", 0.0))
    if share > MOST_OF_ONE:
        raise AuditError(
            f"worker {worker!r} gave {percent_at_most(share)} of the sample's answers, so the bound would rest on one "
            f"person; at most {percent(MOST_OF_ONE, 0)} are taken. Let people answer the open pairs, and set "
            "max_hits_per_worker before the sample of another pool, as after further queries"
        )


def _open(context: Context, audit: AuditRow, fused: pd.DataFrame, sampled: Ints, asked: Ints) -> pd.DataFrame:
    """Pair, probability and stratum of the pairs drawn from that nobody was asked about, and of the sampled ones."""
    listed = audit_store.listed(context.session, audit.id)
    pairs = listed["pair"].to_numpy()
    at = places(fused["pair"].to_numpy(), pairs)
    kept = (at >= 0) & (~contains(asked, pairs) | contains(sampled, pairs))
    probability = fused["probability"].to_numpy()[at[kept]]
    return pd.DataFrame(
        {"pair": pairs[kept], "probability": probability, "stratum": listed["stratum"].to_numpy()[kept]}
    )


def _siding(judgements: pd.DataFrame, sampled: Ints, promise: Promise) -> float:
    """As promised, or measured on pairs outside the sample that two workers answered."""
    if promise.siding is not None:
        return promise.siding
    others = judgements[~contains(sampled, judgements["pair"].to_numpy())]
    first_answers = others.drop_duplicates(["pair", "worker"]).sort_values("pair", kind="stable")
    number = first_answers.groupby("pair").cumcount().to_numpy()
    second = np.flatnonzero(number == 1)  # the first answer on its pair stands right before it
    labels = first_answers["label"].to_numpy()
    return siding_upper(labels[second - 1], labels[second], (1 - promise.confidence) * SIDING_SHARE)


def _cuts(judgements: pd.DataFrame, fused: pd.DataFrame, sampled: Ints) -> tuple[float, float, float]:
    """Where levels part, by the answers outside the sample."""
    pairs = judgements["pair"].to_numpy()
    at = places(fused["pair"].to_numpy(), pairs)
    kept = (at >= 0) & ~contains(sampled, pairs)
    labels: NDArray[np.int8] = judgements["label"].to_numpy()[kept]
    return level_cuts(fused["probability"].to_numpy()[at[kept]], labels)


def _config(
    promise: Promise,
    found: MachineLabels,
    cuts: tuple[float, float, float],
    about: Mapping[str, Any],
    n_answered: int,
) -> str:
    score = {
        name: about.get(name)
        for name in ("answers_sha256", "excluded_sha256", "runs", "seed", "version", "file", "sha256")
    }
    return json.dumps(
        {
            "error": promise.error,
            "lost": promise.lost,
            "confidence": promise.confidence,
            "loss": promise.loss.value,
            "siding": found.siding,
            "answered": n_answered,
            "cuts": cuts,
            "strata": [_stratum(part) for part in found.strata],
            "score": score,
        },
        sort_keys=True,
    )


def _stands(context: Context, audit: AuditRow, config: str, found: MachineLabels) -> bool:
    """Whether this very labelling stands already."""
    standing = audit_store.standing(context.session, context.environment)
    if standing is None or (standing.audit_id, standing.config) != (audit.id, config):
        return False
    kept = audit_store.machine_labels(context.session, context.environment)
    return bool(
        np.array_equal(kept["pair"], found.labels["pair"])
        and np.array_equal(kept["label"], found.labels["label"])
    )


def _stratum(part: LabelledStratum) -> StratumCounts:
    threshold = part.threshold
    return {
        "stratum": part.name,
        "pairs": threshold.pairs,
        "sampled": threshold.audited,
        "loss": threshold.loss,
        "cut": threshold.cut if np.isfinite(threshold.cut) else None,
        "labelled": threshold.labelled,
        "left": threshold.pairs - threshold.audited - threshold.labelled,
        "bound": threshold.bound,
        "bound_among_labelled": threshold.bound_among_labelled,
        "wanted": threshold.wanted,
    }


def _result(
    found: MachineLabels, promise: Promise, n_pairs: tuple[int, int, int], *, dry_run: bool, same: bool
) -> StageResult:
    """What is told; ``n_pairs`` are left to people, sampled, and disputed but not asked again."""
    left, n_sampled, n_settled = n_pairs
    strata = [_stratum(part) for part in found.strata]
    counts: LabelCounts = {
        "labelled": len(found.labels),
        "left": left,
        "sampled": n_sampled,
        "disputed": len(found.disputed),
        "siding": found.siding,
        "strata": strata,
    }
    heads = (
        "stratum",
        "pairs",
        "sampled",
        "loss seen",
        "surer than",
        "by machine",
        "to people",
        "bound",
        "among them",
    )
    rows = tuple(
        (
            stratum["stratum"],
            stratum["pairs"],
            stratum["sampled"],
            round(stratum["loss"], 2) if promise.loss is Loss.ORDINAL else int(stratum["loss"]),
            _surer(part),
            stratum["labelled"],
            stratum["left"],
            f"{upper_bound(100 * stratum['bound'], 2)}%",
            f"{upper_bound(100 * stratum['bound_among_labelled'], 2)}%",
        )
        for part, stratum in zip(found.strata, strata, strict=True)
    )
    lost = f", {100 * promise.lost:.12g}% of those called no match," if promise.lost is not None else ""
    title = (
        f"at most {100 * promise.error:.12g}% of a stratum{lost} wrong by machine, with confidence "
        f"{100 * promise.confidence:.12g}%"
    )
    lines = [_about_workers(found, promise)]
    if same:
        lines.append("nothing to do: these labels stand already")
    elif dry_run:
        lines.append(f"{several(len(found.labels), 'pair')} would get a machine label; nothing was stored")
    warnings: tuple[str, ...] = ()
    if len(found.disputed):
        warnings = (
            f"{several(len(found.disputed), 'sampled pair')} contradicted by one worker alone and taken for errors; "
            "two more answers on each may lower the bound"
            + (
                f", but {n_settled:,} of them will get none: the answer is what was guessed when the sample was drawn"
                if n_settled
                else ""
            ),
        )
    return StageResult(
        "nothing_to_do" if same else "done",
        counts,
        warnings=warnings,
        tables=(Table(title, heads, rows),),
        lines=tuple(lines),
    )


def _surer(part: LabelledStratum) -> str:
    """In words, the probability of its label from which it stands."""
    threshold = part.threshold
    if threshold.refused:
        return f"needs {threshold.wanted:,} answers"
    if threshold.cut == np.inf:
        return "all"
    return f"{1 - threshold.cut:.3f}" if threshold.labelled else "none"


def _about_workers(found: MachineLabels, promise: Promise) -> str:
    if promise.loss is Loss.ORDINAL:
        return "the loss is against the answers as given: a third for each level, against the middle one of three"
    if not found.siding:
        return "bounded are the errors that this way of asking shows; those that a first worker agrees with are not"
    source = "measured" if promise.siding is None else "as given"
    share = upper_bound(100 * found.siding, 1)
    return f"allowed for: up to {share}% of the workers side with the machine when it is wrong ({source})"


_COLUMNS = ("image_id", "caption_id", "probability")
_HOLDS = "a table of probabilities by image_id and caption_id"


def read_scores(context: Context, path: Path) -> tuple[dict[str, Any], pd.DataFrame]:
    """What is said of the file, and ``FUSED``, with one fold: nobody knows here what the scores have read.

    Raises:
        DatasetError: the file is missing or malformed, names what the data set lacks or a pair twice, or a probability
            is not from 0 to 1.
    """
    rows = pd.DataFrame(read_rows(path, _HOLDS, _COLUMNS), columns=list(_COLUMNS))
    ids: list[Ints] = []
    known_ids = item_store.id_maps(context.session, item_store.dataset(context.session).id)
    for column, id_of in zip(_COLUMNS[:2], known_ids, strict=True):
        numbers = rows[column].astype(str).map(id_of)
        if numbers.isna().any():
            name = rows.loc[numbers.isna(), column].iloc[0]
            raise DatasetError(
                f"{str(path)!r} scores {column} {str(name)!r}, which is not in the data set; take ids from "
                "`mitl export` or the data set's own files"
            )
        ids.append(np.asarray(numbers, np.int64))
    probability = pd.to_numeric(rows["probability"], errors="coerce").to_numpy(np.float64)
    wrong = ~((probability >= 0) & (probability <= 1))
    wrong |= [isinstance(cell, bool) for cell in rows["probability"]]  # of Parquet
    if wrong.any():
        worst = rows["probability"].iloc[int(wrong.argmax())]
        raise DatasetError(
            f"{str(path)!r} holds the probability {str(worst)!r}; each is a number from 0 to 1"
        )
    # In pandas 3.0 what to_numeric reads may lack the last bit.
    probability = rows["probability"].astype("float64").to_numpy()
    pairs = pack_ids(ids[0], ids[1])
    order = np.argsort(pairs, kind="stable")
    if (np.diff(pairs[order]) == 0).any():
        twice = rows.iloc[order[int((np.diff(pairs[order]) == 0).argmax())]]
        raise DatasetError(
            f"{str(path)!r} scores image {twice['image_id']} with caption {twice['caption_id']} twice; give each pair "
            "one row"
        )
    about = {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
    columns = {"pair": pairs[order], "probability": probability[order], "fold": np.zeros(len(pairs))}
    return about, frame(FUSED, columns)
