"""What the commands print with ``--json``: the keys of ``counts`` and ``paths`` and what they mean."""

from __future__ import annotations

from mitl.cli.outputs import analysing, preferring, proposing, releases, server, work

COUNTS: dict[str, dict[str, str]] = {
    **proposing.COUNTS,
    **work.COUNTS,
    **releases.COUNTS,
    **server.COUNTS,
    **analysing.COUNTS,
    **preferring.COUNTS,
}

PATHS: dict[str, dict[str, str]] = {
    "init": {"project": "the project's folder", "config": "its mitl.toml"},
    "annotators check": {"file": "the file that was checked"},
    "propose": {
        "rankings": "folder of the run's ranking files",
        "encodings": "folder of the encoded items",
        "scores": "folder of the pairs' scores",
    },
    "publish": {"dry_run": "folder of the requests, the pages and the bill (`--dry-run`)"},
    "review originals export": {"exclusions": "the CSV file"},
    "build-dataset": {"release": "the release's folder"},
    "compare": {"differences": "the CSV file, with `--differences`"},
    "evaluate": {
        "release": "the release that was scored",
        "csv": "the CSV file, with `--csv`",
        "latex": "the LaTeX file, with `--latex`",
    },
    "report": {"report": "the HTML file"},
    **analysing.PATHS,
    **preferring.PATHS,
    "pay": {"csv": "the CSV file, with `--csv`"},
    "workers": {"csv": "the CSV file, with `--csv`"},
    "crowd panel visits": {"visits": "the CSV file, with `--out`"},
    "crowd keys": {"credentials": "file with the secret keys; with `--export`, the new file"},
    "db backup": {"backup": "the folder or file"},
    "demo": {"release": "the release's folder", "report": "the HTML file"},
}
