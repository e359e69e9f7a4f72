"""The annotators that learnt in a project, as settings: whoever ranks finds them without an entry in mitl.toml."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from annotators import registry
from annotators.catalog import BEGINNERS, NETWORKS
from mitl.errors import AnnotatorError
from mitl.settings import Settings

if TYPE_CHECKING:
    from mitl.db.store.rounds import TrainedRow

FOLDER = "trained"
"""Of the project: weights and curves of what learnt here, and checkpoints of what is not finished."""

_OF_OTHER_WEIGHTS = (
    *("weights", "vocabulary", "wordpieces", "bpe", "activation", "pooling", "shift", "negative_scale"),
)
"""Settings of a base that its trained weights bring themselves."""


def trained_rows(settings: Settings) -> list[TrainedRow]:
    """All that learnt here, withdrawn ones among them, oldest first; where nothing did, no database is opened."""
    if not (settings.project / FOLDER).is_dir():
        return []
    # Late, so that the list of annotators needs no SQLAlchemy outside a project.
    from mitl.db.session import open_database
    from mitl.db.store import rounds

    with open_database(settings.db_url, read_only=True) as session:
        return rounds.trained(session, withdrawn=True)


def with_trained(settings: Settings, names: Sequence[str] = ()) -> Settings:
    """The settings with a table for each annotator that learnt here; what mitl.toml says of one goes before.

    Raises:
        AnnotatorError: one of ``names`` was withdrawn.
    """
    config, usable = dict(settings.annotator_config), dict(settings.annotator_config)
    for row in trained_rows(settings):
        # Others may have learnt from one that was withdrawn.
        configured = settings.annotator_config.get(row.name, {})
        config[row.name] = {**_table(row, config, settings.project), **configured}
        if row.withdrawn_at is None:
            usable[row.name] = config[row.name]
        elif row.name in names:
            raise AnnotatorError(
                f"annotator {row.name!r} was withdrawn when its round was rolled back; name another, such as "
                f"{row.base!r}, from which it learnt"
            )
    return replace(settings, annotator_config=usable)


def _table(row: TrainedRow, config: Mapping[str, Mapping[str, Any]], folder: Path) -> dict[str, Any]:
    base = config.get(row.base, {})
    kept = {key: value for key, value in base.items() if key not in _OF_OTHER_WEIGHTS}
    network = base.get("network") or registry.NETWORK_OF_MINI.get(row.base, row.base)
    if not base and network not in (*NETWORKS, *BEGINNERS):
        # The base's table is gone from mitl.toml. Late, for torch takes a second.
        from annotators.training.files import metadata_of

        with suppress(AnnotatorError):  # where the file is gone, whoever builds it says so
            network = metadata_of(folder / row.file).get("network", network)
    if network == "towers" or "towers" in base or row.base in BEGINNERS:
        return {**kept, "towers": str(folder / row.file)}
    threads = {"threads": 1} if row.base in registry.NETWORK_OF_MINI else {}
    return {**threads, **kept, "network": network, "weights": str(folder / row.file)}
