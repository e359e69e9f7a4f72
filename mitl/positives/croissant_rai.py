"""What Croissant's vocabulary for responsible AI asks of a data set, as far as the database and the makers know it.

What nobody knows is said to be unknown where a reader looks for it (who the annotators are), and left out elsewhere.

Source: MLCommons, Croissant RAI specification 1.0.
"""

from __future__ import annotations

from mitl.positives.datasheet import together
from mitl.positives.markdown import listed, percent
from mitl.positives.release_input import ReleaseInput
from mitl.positives.sheet_machines import KINDS
from mitl.positives.sheet_people import agreement
from mitl.positives.summary import Summary
from mitl.records import Environment, PositiveSource, several

SPECIFICATION = "http://mlcommons.org/croissant/RAI/1.0"


def rai(data: ReleaseInput, summary: Summary) -> dict[str, object]:
    """The ``rai:`` properties of a release."""
    machines = _machines(data, summary)
    upkeep = f"Questions and corrections go to {data.card.contact}." if data.card.contact else ""
    optional: dict[str, object] = {"machineAnnotationTools": machines, "dataReleaseMaintenancePlan": upkeep}
    found: dict[str, object] = {
        "dataCollection": _collection(data, summary),
        "dataCollectionType": _kinds_of_collection(data, summary),
        "dataCollectionMissingData": _missing(summary),
        "dataCollectionRawData": f"Images and captions of {data.dataset}, which the release names by their ids and "
        "does not hold.",
        "dataPreprocessingProtocol": _processing(data, summary),
        "dataAnnotationProtocol": _protocol(data),
        "dataAnnotationPlatform": _platforms(data),
        "dataAnnotationAnalysis": [
            together(data.rules),
            agreement(summary.agreement, nameless=data.origins.nameless),
        ],
        "annotationsPerItem": _per_item(summary),
        "annotatorDemographics": [_who(data, summary)],
        "dataBiases": _biases(data, summary),
        "dataLimitations": [
            f"{_unasked(summary)}, so the positives of a query are not complete.",
            "People disagree about what matches; judgements.parquet keeps every answer.",
        ],
        "dataUseCases": [
            "Scoring retrieval between images and captions against pairs that are known to match."
        ],
        "personalSensitiveInformation": _personal(data, summary),
        **{name: value for name, value in optional.items() if value},
    }
    return {f"rai:{name}": value for name, value in sorted(found.items())}


def _unasked(summary: Summary) -> str:
    if summary.proposed_by:
        return "Pairs that no machine annotator proposed were never asked"
    return "Nobody was asked about most pairs"


def _machines(data: ReleaseInput, summary: Summary) -> list[str]:
    kinds = data.origins.kinds
    return [
        f"{name} ({KINDS[kinds[name]]}): {several(count, 'pair')}"
        if name in kinds
        else f"{name}: {several(count, 'pair')}"
        for name, count in summary.proposed_by.items()
    ]


def _collection(data: ReleaseInput, summary: Summary) -> str:
    pairs = f"pairs of an image and a caption of {data.dataset}"
    earlier = ["CxC's ratings"] if summary.by_source[PositiveSource.CXC] else []
    earlier += ["the original annotation"] if data.rules.with_originals else []
    if not summary.judgements:
        return f"Of {pairs}, {listed(earlier) or 'no source'} gave {several(summary.positives, 'positive')}."
    shares = listed(
        [
            f"{summary.by_source[source]:,} {words}"
            for source, words in (
                (PositiveSource.JUDGEMENT, "are confirmed by people"),
                (PositiveSource.CXC, f"are rated {data.rules.cxc_threshold:g} or more by CxC"),
                (PositiveSource.ORIGINAL, "are original pairs"),
            )
            if summary.by_source[source]
        ]
    )
    positives = several(summary.positives, "positive") + (f", of which {shares}" if shares else "")
    asked = (
        f"Machine annotators proposed {pairs}, and people" if summary.proposed_by else f"Of {pairs} people"
    )
    return (
        f"{asked} said whether they match: {several(summary.judgements, 'answer')}, {summary.usable:,} of them "
        f"usable, on {several(summary.pairs_judged, 'pair')}. {listed(['Their answers', *earlier])} gave {positives}."
    )


def _kinds_of_collection(data: ReleaseInput, summary: Summary) -> list[str]:
    """In the words that the specification recommends."""
    kinds = [
        ("Manual Human Curator", summary.judgements > 0),
        ("Software Collection", bool(summary.proposed_by)),
        ("Secondary Data Analysis", bool(summary.by_source[PositiveSource.CXC] or data.origins.past_work)),
    ]
    return [kind for kind, holds in kinds if holds] or ["Others"]


def _missing(summary: Summary) -> str:
    if not summary.judgements:
        return "Nothing was imputed."
    return (
        f"{several(summary.judgements - summary.usable, 'answer')} of {summary.judgements:,} cannot be used: skipped, "
        "without a picture, from pages that were not approved, or from excluded workers. Nothing was imputed."
    )


def _processing(data: ReleaseInput, summary: Summary) -> list[str]:
    taken = several(summary.excluded, "positive")
    return [
        f"Exclusion lists took out {taken}." if data.origins.exclusions else "There are no exclusion lists.",
        "Workers appear under keyed pseudonyms; ids of assignments and HITs and times of day are left out; working "
        "times are given to the nearest second.",
    ]


def _protocol(data: ReleaseInput) -> list[str]:
    if not len(data.judgements):
        return ["Nobody was asked for this release."]
    found = [
        "People saw an image with a caption and chose yes, weak_yes, weak_no or no; the first two are positive."
    ]
    controls = data.origins.controls
    if controls is not None:
        held = "Each page held two" if data.origins.batches else "Pages of past work held"
        found.append(
            f"{held} pairs whose answer is known; the rule: {controls.rule}. Expected answers: "
            f"{percent(controls.positive.passed, controls.positive.seen)} on gold positives, "
            f"{percent(controls.negative.passed, controls.negative.seen)} on gold negatives."
        )
    if data.origins.past_work:
        found.append("For answers that were read from files it is not known here what their pages asked.")
    return found


def _platforms(data: ReleaseInput) -> list[str]:
    money = "practice money" if data.environment is Environment.SANDBOX else "real money"
    found = (
        [f"pages posted over the requester API of Mechanical Turk, for {money}"] if data.origins.crowd else []
    )
    if data.origins.past_work:
        found.append("files of work that was done before, on platforms not known here")
    return found or ["none: nobody was asked"]


def _per_item(summary: Summary) -> str:
    if not summary.pairs_judged:
        return "0"
    mean = summary.usable / summary.pairs_judged
    return f"{mean:.2f} usable answers on a pair on average ({summary.usable:,} on {summary.pairs_judged:,} pairs)"


def _who(data: ReleaseInput, summary: Summary) -> str:
    workers = several(summary.workers, "worker")
    if data.origins.past_work:
        workers += ", as far as files tell them apart"
    return f"Unknown: {workers}; nothing of them is released but their answers and working times."


def _biases(data: ReleaseInput, summary: Summary) -> list[str]:
    found = (
        ["The positives favour models that resemble the machine annotators: say so when scoring one of them."]
        if summary.proposed_by
        else []
    )
    share = data.origins.busiest_share(summary.largest_share)
    if share is not None:
        found.append(f"The busiest worker gave {percent(share)} of the answers.")
    return found


def _personal(data: ReleaseInput, summary: Summary) -> list[str]:
    if data.texts is None:
        words = "What workers wrote in their own words is left out."
    else:
        words = (
            "What workers wrote is in judgements.parquet, after a scan that took addresses, long numbers and ids out; "
            "it knows no names."
        )
    return [
        "No ids of workers, and no hash of one that could be tried: pseudonyms are keyed by a secret that stays with "
        "the makers.",
        words,
        "Images may show people; they are not part of the release.",
    ]
