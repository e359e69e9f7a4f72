"""The keys of ``counts`` and ``paths`` of the analyses, and what they mean."""

from __future__ import annotations

COUNTS: dict[str, dict[str, str]] = {
    "analyse": {
        "analyses": "analysis → its numbers; docs/analysis.md says what they are. Shares and scores are from 0 to 1, "
        "what is not defined is null",
        "left_out": "analysis → why it could not be made",
        "tables_written": "files of `--csv` that were not there exactly so already",
        "drawings_written": "files of `--plots`, the same",
    },
}

PATHS: dict[str, dict[str, str]] = {
    "analyse": {
        "csv": "folder of the CSV files, with `--csv`",
        "plots": "folder of the SVG files, with `--plots`",
    },
}
