"""Parts of a fusion on disk, so that a killed one goes on with the part that it was at."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mitl.core.whole_files import one_clear_line, remove_dead_parts, remove_folder, whole_file
from mitl.fusion.evidence import FusionEvidence

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class KeptParts:
    """Each part's arrays by the part's name, in a folder of what they are made from."""

    folder: Path | None = None
    """None keeps nothing."""
    advance: Callable[[int], None] = lambda n: None
    """Told of parts that are done."""

    @classmethod
    def of(cls, around: Path, evidence: FusionEvidence, *settings: object) -> KeptParts:
        """Those of this evidence, these settings and the libraries that compute, below ``around``."""
        libraries = [version(name) for name in ("numpy", "scipy", "scikit-learn")]
        found = hashlib.sha256(repr((settings, libraries, evidence.words)).encode())
        tables = [evidence.ranked.astype({"annotator": "str"}), evidence.answers]
        arrays = [table[name].to_numpy() for table in tables for name in table]
        vectors = [*evidence.texts, *evidence.pictures]
        vectors += [side for joint in evidence.joint for side in (joint.images, joint.captions)]
        arrays += [
            evidence.captions,
            evidence.image_of,
            *(rows for one in vectors for rows in (one.ids, one.rows)),
        ]
        for array in arrays:
            plain = array if array.dtype.kind in "biuf" else array.astype("U")
            found.update(
                repr((plain.dtype.str, plain.shape)).encode() + np.ascontiguousarray(plain).tobytes()
            )
        found.update(repr([one.name for one in vectors]).encode())
        return cls(around / f"{found.hexdigest()[:16]}.parts")

    def kept(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """The part as it was kept; else made, and kept.

        Raises:
            RetrievalError: the disk is full; parts made before stay.
        """
        if self.folder is None:
            return make()
        path = self.folder / f"{name}.npz"
        try:
            with path.open("rb") as source, np.load(source) as file:
                return dict(file)
        except (OSError, ValueError, EOFError, zipfile.BadZipFile):  # not there, or spoiled
            made = make()
        with one_clear_line(path, "the parts made before are kept"), whole_file(path) as sink:
            np.savez(sink, **made)  # type: ignore[arg-type]
        return made

    def remove(self) -> None:
        """Take the folder away, and those that earlier evidence left beside it."""
        if self.folder is not None:
            remove_dead_parts(self.folder.parent)
            for folder in self.folder.parent.glob("[!.]*.parts"):
                remove_folder(folder)


UNKEPT = KeptParts()
