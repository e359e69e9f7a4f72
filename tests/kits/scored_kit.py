"""A release and a model on it in files, with the scores that `mitl evaluate` gives it."""

from __future__ import annotations

import json

import numpy as np
from cli_kit import ok
from release_kit import CAPTIONS, IMAGES, world

from mitl.positives.release import write_release
from mitl.records import IdKind


def tied_vectors(rng, n):
    """(n, 3) embeddings of zeros and ones, none of zeros alone: many of their inner products are equal."""
    return (rng.integers(1, 8, size=(n, 1)) >> np.arange(3) & 1).astype(np.float32)


def make(folder, kind=IdKind.INTEGER, **changes):
    """A release, and a model with many tied similarities in files."""
    folder.mkdir(exist_ok=True)
    write_release(folder / "release", world(kind, **changes))
    prefix = "" if kind is IdKind.INTEGER else "item-"
    rng = np.random.default_rng(0)
    for name, ids in (
        ("images", [f"{prefix}{10 * n:02}" for n in IMAGES]),
        ("captions", [f"{prefix}{100 * n}" for n in CAPTIONS]),
    ):
        np.savez(folder / f"{name}.npz", ids=np.array(ids), embedding=tied_vectors(rng, len(ids)))
    return folder


def scores(folder):
    """What `mitl evaluate` gives, by direction."""
    files = f"m={folder / 'images.npz'},{folder / 'captions.npz'}"
    release = str(folder / "release")
    found = ok("evaluate", "--release", release, "--model", files, "--no-intervals", "--json").out
    return json.loads(found)["counts"]["scores"]["release"]["m"]
