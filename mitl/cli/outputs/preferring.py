"""The keys of ``counts`` of preference studies, and what they mean."""

from __future__ import annotations

_ENVIRONMENT = {"environment": "sandbox or live"}

COUNTS: dict[str, dict[str, str]] = {
    "prefer publish": {
        **_ENVIRONMENT,
        "batch": "name of the new batch; null where only earlier HITs were posted",
        "systems": "names of what is compared",
        "hits": "HITs that would be posted (`--dry-run`)",
        "comparisons": "comparisons on the pages, controls left out",
        "alike": "meetings left out because both systems give the same list",
        "hits_posted": "HITs created by this run",
        "hits_adopted": "HITs of an interrupted run, or of an older database, found on the server",
        "hits_again": "HITs that ask again what could not be used",
        "assignments": "assignments of all HITs on the bill",
        "rewards_cents": "all rewards on the bill",
        "fees_cents": "all fees on the bill",
        "total_cents": "the bill, fees included",
        "reward_cents": "reward of the new batch's HITs; null without one",
        "estimate_s": "seconds that one of them is expected to take; null without one",
        "committed_cents": "spent and promised on this environment after posting",
        "balance_cents": "the balance after posting; the sandbox always says 10,000.00",
        "requests": "requests written (`--dry-run`)",
        "largest_question_bytes": "size of the largest page (`--dry-run`); 65,535 are allowed",
    },
    "prefer scores": {
        **_ENVIRONMENT,
        "votes": "preferences that count",
        "workers": "who gave them",
        "queries": "queries that they are about",
        "left_share": "share of the left among those for a side; null where there is none",
        "queued": "submissions that wait for a person and do not count yet",
        "ties": "of the preferences, those that found both equal",
        "systems": "name → score, low, high (percent; the scores sum to 100), wins, losses, ties; best first",
        "preferred": "name → name → how often the first was preferred to the second",
        "equal": "name → name → how often the two were found equal",
        "tie_strength": "Davidson's ν (`--ties davidson`); null without",
        "without_maximum": "resamples in which somebody won nothing or everything",
    },
}
PATHS: dict[str, dict[str, str]] = {
    "prefer publish": {"dry_run": "folder of the requests, the pages and the bill (`--dry-run`)"},
    "prefer scores": {"csv": "the CSV file, with `--csv`"},
}
