"""The numbers of a methods section, for its table and for machines."""

from __future__ import annotations

from typing import Any

from mitl.core.formats import lower_bound
from mitl.core.pricing import format_dollars
from mitl.positives.methods_facts import Facts
from mitl.positives.sheet_audit import machine_counts


def figures(of: Facts) -> dict[str, Any]:
    """The numbers that the section states, by name; what did not happen is not there."""
    summary, origins = of.summary, of.data.origins
    made: dict[str, Any] = {
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
        made |= {
            "workers": origins.crowd.workers,
            "submissions": origins.crowd.submissions,
            "rejected": origins.crowd.rejected,
        }
    if origins.controls is not None:
        kinds = (origins.controls.positive, origins.controls.negative)
        made |= {
            "controls_seen": sum(kind.seen for kind in kinds),
            "controls_passed": sum(kind.passed for kind in kinds),
        }
    if origins.pay is not None:
        pay = origins.pay
        made |= {
            "paid_cents": pay.rewards_cents + pay.bonuses_cents + pay.fees_cents,
            "median_hourly_cents": pay.median_hourly_cents,
        }
    if of.data.has_machine_labels:
        made["machine_labels"] = machine_counts(of.data)[0]
    if of.data.audit is not None:
        proof = of.data.audit.certificate
        made |= {
            "audited": of.data.audit.record.design.sample,
            "recall_at_least": proof.measured.recall,
            "precision_at_least": proof.measured.precision,
        }
    return {name: value for name, value in made.items() if value is not None}


_NAMES = {
    "images": "images",
    "captions": "captions",
    "candidates": "candidate pairs",
    "hits": "HITs",
    "workers": "workers",
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
    "negatives": "refused pairs",
    "positives": "positives",
    "machine_labels": "machine labels",
    "audited": "audited pairs",
    "recall_at_least": "recall at least",
    "precision_at_least": "precision at least",
}


def rows(of: Facts) -> list[tuple[str, str]]:
    """The table: figures in the order of the work, then fingerprints."""
    known = figures(of)
    made = [
        (name, _shown(key, known[key])) for key, name in _NAMES.items() if known.get(key) not in (None, 0)
    ]
    made.append(("content of the data set (SHA-256)", of.dataset_sha256[:16]))
    made += [(f"fingerprint of {one.name}", one.fingerprint[:16]) for one in of.machines]
    return made


def _shown(key: str, value: Any) -> str:
    if key.endswith("_cents"):
        return format_dollars(value)
    if key.endswith("_at_least"):
        return f"{lower_bound(100 * value, 1)} %"
    return f"{value:.3f}" if isinstance(value, float) else f"{value:,}"
