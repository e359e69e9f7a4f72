"""Parts of a fusion on disk, so that a killed one goes on with the part that it was at."""

from __future__ import annotations

import fcntl
import hashlib
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
        digest = hashlib.sha256(repr((settings, libraries, evidence.words)).encode())
        tables = [evidence.ranked.astype({"annotator": "str"}), evidence.answers]
        arrays = [table[name].to_numpy() for table in tables for name in table]
        vectors = [*evidence.texts, *evidence.pictures]
        vectors += [side for joint in evidence.joint for side in (joint.images, joint.captions)]
        arrays += [
            evidence.captions,
            evidence.image_of,
            *(rows for unit_vectors in vectors for rows in (unit_vectors.ids, unit_vectors.rows)),
        ]
        for array in arrays:
            plain = array if array.dtype.kind in "biuf" else array.astype("U")
            digest.update(
                repr((plain.dtype.str, plain.shape)).encode() + np.ascontiguousarray(plain).tobytes()
            )
        digest.update(repr([unit_vectors.name for unit_vectors in vectors]).encode())
        return cls(around / f"{digest.hexdigest()[:16]}.parts")

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
            part = make()
        with one_clear_line(path, "the parts made before are kept"), whole_file(path) as sink:
            np.savez(sink, **part)  # type: ignore[arg-type]
        return part

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the folder from the ``remove`` of other calls, which may be at work on other evidence beside this one.

        Raises:
            RetrievalError: the folder cannot be made.
        """
        if self.folder is None:
            yield
            return
        with one_clear_line(self.folder, "nothing was made"):
            handle = _hold(self.folder)
        try:
            yield
        finally:
            os.close(handle)

    def remove(self) -> None:
        """Take the folder away, and those that earlier evidence left beside it; not those that a call holds."""
        if self.folder is not None:
            remove_dead_parts(self.folder.parent)
            for folder in self.folder.parent.glob("[!.]*.parts"):
                with suppress(FileNotFoundError):
                    handle = os.open(folder, os.O_RDONLY)
                    if _is_locked(handle, folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
                        remove_folder(folder)
                    os.close(handle)


def _hold(folder: Path) -> int:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            if _is_locked(handle, folder, fcntl.LOCK_SH):
                return handle
            os.close(handle)


def _is_locked(handle: int, folder: Path, how: int) -> bool:
    """Whether the lock is ours, on the folder that is there now: another call may have taken the opened one away."""
    try:
        fcntl.flock(handle, how)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        pass
    return folder.is_dir() and os.path.samestat(os.fstat(handle), folder.stat())


UNKEPT = KeptParts()
