"""Data sets that Hugging Face's ``datasets`` library has prepared on this machine, found by the name on the hub."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from mitl.datasets.files import readable
from mitl.errors import UsageError

_NAME = re.compile(r"(?:(?P<owner>[\w.-]+)/)?(?P<name>[\w.-]+)(?::(?P<config>[\w.-]+))?")
_UPPER = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def cached_folder(given: str, environ: Mapping[str, str] | None = None) -> Path | None:
    """The folder with the Arrow files of ``owner/name`` or ``owner/name:configuration``; None where there is none.

    The newest where several versions were prepared.

    Args:
        environ: names the cache by HF_DATASETS_CACHE, HF_HOME or XDG_CACHE_HOME, as the library reads them; the
            process's by default.

    Raises:
        UsageError: there are several configurations and none of them is named.
        DatasetError: a folder may not be read.
    """
    match = _NAME.fullmatch(given)
    if match is None:
        return None
    # The library writes a name in lower case, with a line before each capital: My-Data as my-_data, PhotoChat as
    # photo_chat.
    name = _UPPER.sub("_", match["name"]).lower()
    folder = _cache(os.environ if environ is None else environ) / "___".join(
        filter(None, (match["owner"], name))
    )
    with readable(folder, "data sets that the datasets library prepared"):
        found: dict[str, list[Path]] = {}
        for info in folder.glob("*/*/*/dataset_info.json"):
            if any(info.parent.glob("*.arrow")):
                found.setdefault(info.parents[2].name, []).append(info)
    if not found:
        return None
    config = match["config"]
    # One that was made of files that a user named has their hash behind its name.
    fits = [name for name in found if config is None or name == config or name.startswith(f"{config}-")]
    if len(fits) != 1:
        raise UsageError(
            f"{given!r} is in the cache with the configurations {', '.join(sorted(found))}; name one, as "
            f"{given.partition(':')[0]}:{min(found)}"
        )
    return max(found[fits[0]], key=lambda info: info.stat().st_mtime).parent


def _cache(environ: Mapping[str, str]) -> Path:
    if own := environ.get("HF_DATASETS_CACHE"):
        return Path(own).expanduser()
    home = environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(home).expanduser() / "datasets"
