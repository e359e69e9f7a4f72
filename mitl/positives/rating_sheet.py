"""The datasheet of a release of ratings, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mitl.judgements.similarity import Aggregation
from mitl.positives.datasheet import rights
from mitl.positives.markdown import listed, percent, plain, table
from mitl.positives.rating_files import RATINGS, task_file
from mitl.positives.rating_input import AskedWording, ControlRecord, RatingInput, RatingSummary
from mitl.positives.sheet_people import texts_told, time_and_pay, workers
from mitl.records import Environment, several
from mitl.records.similarity import METHODS, Likeness, SamplingMethod, SimilarityRole

_RATED: Mapping[Likeness, str] = {
    Likeness.STS: "two captions",
    Likeness.SIS: "two images",
    Likeness.SITS: "an image and a caption",
}
_CHOSEN: Mapping[SamplingMethod, str] = {
    SamplingMethod.C2C_ISIM: "two captions, one each of two images that a machine finds alike",
    SamplingMethod.C2C_COCAPTION: "two captions of one image",
    SamplingMethod.I2I_CSIM: "two images whose captions a machine finds alike",
    SamplingMethod.C2I_INTRASIM: "an image and the caption of another one, from the ratings of two captions or of two "
    "images",
    SamplingMethod.C2I_ORIGINAL: "an image and a caption that was written for it",
}
_STANDS_FOR: Mapping[SamplingMethod, str] = {
    SamplingMethod.C2C_ISIM: "CxC: Graph-RISE",
    SamplingMethod.I2I_CSIM: "CxC: Universal Sentence Encoder and averaged GloVe vectors",
}
_METHODS: Mapping[Aggregation, str] = {
    Aggregation.MEAN: "A pair's score is the plain mean of its ratings, as in CxC.",
    Aggregation.TRIMMED: "A pair's score is the mean of its ratings without a fifth of them at each end, rounded down: "
    "of five the middle three.",
    Aggregation.STANDARDISED: "Each rating was told in standard deviations from its rater's mean and put back on the "
    "scale of all raters; a pair's score is the mean of these. Raters with few ratings were taken for average ones.",
    Aggregation.MODEL: "A pair's score comes from a model in which each rater has an offset and a scale, learned with "
    "the scores themselves; both are pulled towards those of an average rater where there are few ratings.",
}


def rating_sheet(data: RatingInput, summary: RatingSummary) -> str:
    """How the ratings came to be, what they are and what to keep in mind, in Markdown."""
    card, origins = data.card, data.origins
    parts = [
        f"# Datasheet of {plain(data.name)}",
        plain(card.description) or f"How alike items of {plain(data.dataset)} are, as people see it.",
        "## What it is for",
        "Models of texts, of images and of both give similarities; here people rated pairs from 0 to 5, so that the "
        "two can be compared, and pairs that people find alike can be searched for. The design and the layout "
        "of the CSVs are those of Crisscrossed Captions (Parekh et al., EACL 2021), of which these are not a part.",
        "## What it holds",
        _composition(data, summary),
        "## How pairs were sampled",
        _sampling(data),
        "## How pairs were rated",
        _rating(data),
        "### Controls",
        _controls(data.controls, data.rule),
        "### Workers",
        workers(origins.crowd),
        "### Time and pay",
        time_and_pay(origins, card, data.environment, summary.median_active_s),
        "### Agreement",
        _agreement(data),
        "### Words of the workers",
        texts_told(data.texts, RATINGS),
        "## How ratings became scores",
        _scores(data, summary),
        "## What to keep in mind",
        _cautions(data, summary),
        "## Rights, contact, upkeep",
        rights(card, "ratings and scores"),
        "`manifest.json` holds the configuration, seeds and versions that rebuild these files, and their hashes.",
    ]
    return "\n\n".join(parts) + "\n"


def _composition(data: RatingInput, summary: RatingSummary) -> str:
    money = "practice money" if data.environment is Environment.SANDBOX else "real money"
    of_task = [
        (
            f"`{task_file(Likeness(task), data.split)}`" if found["rows"] else "–",
            _RATED[Likeness(task)],
            f"{found['pairs']:,}",
            f"{found['rows']:,}",
            _number(found["mean"]),
            f"{percent(found['positive_share'] or 0)} (from {found['positive_from']:g})",
            f"{found['incomplete']:,}",
        )
        for task, found in summary.counts["tasks"].items()
    ]
    by_method = [
        (f"`{method}`", _CHOSEN[SamplingMethod(method)], f"{row['rows']:,}", _number(row["mean"]))
        for found in summary.counts["tasks"].values()
        for method, row in found["by_method"].items()
    ]
    return "\n\n".join(
        [
            table(("file", "rates", "pairs", "rows", "mean score", "positive", "pairs left out"), of_task),
            "A pair that was sampled in both orders is a pair with two rows of the same score. By sampling method:",
            table(("method", "pairs of", "rows", "mean score"), by_method),
            f"`{RATINGS}` holds {several(summary.counts['ratings'], 'rating')} of sampled pairs, "
            f"{summary.counts['ratings_counted']:,} of them counted, by "
            f"{several(summary.counts['workers'], 'worker')}. Environment: "
            f"{data.environment.value} ({money}). Images and captions are named and are not part of the release.",
        ]
    )


def _sampling(data: RatingInput) -> str:
    rows = [
        (
            f"`{method.value}`",
            listed([f"{plain(name)} ({several(count, 'pair')})" for name, count in encoders.items() if name])
            or "none",
            _STANDS_FOR.get(method, "–"),
        )
        for method in METHODS
        if (encoders := data.encoders.get(method))
    ]
    told = (
        "Pairs of one modality were chosen by how alike their partners in the other one are, so that what is rated was "
        "not chosen by a model of itself; pairs of an image and a caption were chosen from the ratings of the first "
        "phase and from the original pairs."
    )
    if not rows:
        return told
    return (
        f"{told} These encoders stand where CxC has its own:\n\n"
        + table(("method", "chosen by", "in place of"), rows)
        + "\n\nSay so when scoring one of them."
    )


def _rating(data: RatingInput) -> str:
    parts = [
        "People set a slider from 0 to 5 in steps of 0.01, whose number they did not see; a slider that was never "
        "touched is no answer. "
        + (
            f"{several(data.min_ratings, 'rating')} by different workers make a score."
            if data.min_ratings > 1
            else "One rating is enough for a score."
        )
    ]
    for task, wordings in data.asked.items():
        for wording in wordings:
            parts.append(f"{task.value.upper()}, {_RATED[task]}: {_wording(wording)}")
    return "\n\n".join(parts)


def _wording(wording: AskedWording) -> str:
    told = f"wording `{plain(wording.template)}`, “{plain(wording.title)}”"
    if not wording.levels:
        return f"{told}."
    levels = "\n".join(f"- {value}: {plain(level)}" for value, level in enumerate(wording.levels))
    return f"{told}. The levels:\n\n{levels}"


_EXPECTED: Mapping[SimilarityRole, tuple[str, str]] = {
    SimilarityRole.IDENTICAL: ("an item beside itself, or an image beside its caption", "mean score"),
    SimilarityRole.RANDOM: ("two items that have nothing to do with each other", "mean score"),
    SimilarityRole.REPEATED: ("a pair of the page once more", "mean distance from the first rating"),
}


def _controls(controls: tuple[ControlRecord, ...], rule: str) -> str:
    rows = [
        (_EXPECTED[one.role][0], f"{one.ratings:,}", f"{_EXPECTED[one.role][1]}: {_number(one.figure)}")
        for one in controls
        if one.ratings
    ]
    if not rows:
        return "None of the rated pages held a control, a pair whose score is known beforehand."
    told = f" The rule: {plain(rule)}." if rule else ""
    return (
        "Pages held pairs that check the worker, at places that workers could not tell. A page that failed went to a "
        f"person, and nothing was rejected by rule.{told}\n\n"
        + table(("control", "ratings", "what came of it"), rows)
        + f"\n\nRatings of the first two are in none of these files; those of the third are in `{RATINGS}`, marked, "
        "and never count."
    )


def _agreement(data: RatingInput) -> str:
    if not data.agreements:
        return "Nothing is known of it."
    parts = [
        "ICC after Shrout and Fleiss (1979): ICC(1) takes raters of each pair as drawn anew; ICC(2) and ICC(3) are of "
        "pairs that the same people rated, page by page. Intervals are of 95 %, for alpha by bootstrap over pairs; "
        "they take workers as independent from page to page. All ratings that count are in it, those of "
        "pairs left out too."
    ]
    for task, agreed in data.agreements.items():
        rows = [
            (agreed.words[name], _number(found.value) if found.value is not None else plain(found.reason))
            + (
                (f"{found.low:.3f} to {found.high:.3f}",)
                if found.low is not None and found.high is not None
                else ("–",)
            )
            for name, found in agreed.estimates.items()
        ]
        parts.append(table((task.value.upper(), "value", "interval"), rows))
    return "\n\n".join(parts)


def _scores(data: RatingInput, summary: RatingSummary) -> str:
    lines = [
        _METHODS[data.method],
        "Scores are rounded to two decimals. A worker's first rating of a pair counts, controls never do, nor does "
        "work that was not kept or of workers who were excluded.",
    ]
    lines += [f"The fit of {task.value.upper()} {fit.text}." for task, fit in data.fits.items()]
    left = sum(found["incomplete"] for found in summary.counts["tasks"].values())
    if left:
        lines.append(
            f"{several(left, 'pair')} with fewer than {several(data.min_ratings, 'rating')} "
            f"{'is' if left == 1 else 'are'} left out and listed in `incomplete.csv`."
        )
    return " ".join(lines)


def _cautions(data: RatingInput, summary: RatingSummary) -> str:
    share = data.origins.busiest_share(summary.largest_share)
    posted = data.origins.crowd is not None
    said = [
        (
            True,
            "Pairs were sampled to be more alike than chance; means and shares say nothing of all pairs of the set.",
        ),
        (True, f"People differ in what they call alike. `{RATINGS}` keeps every rating as given."),
        (
            data.min_ratings < 5,
            "CxC has five ratings of each pair; scores of fewer are less sure, and vary from pair to pair in that.",
        ),
        (
            posted and data.environment is Environment.SANDBOX,
            "The ratings were given for practice money. Scripted workers (`mitl simulate`) rate there as people do, "
            "and nothing in these files tells them apart.",
        ),
        (share is not None and share > 0.2, "More than a fifth of the ratings come from one worker."),
    ]
    return "\n".join(f"- {words}" for holds, words in said if holds)


def _number(value: Any) -> str:
    return "–" if value is None else f"{value:.3f}"
