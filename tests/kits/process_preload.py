"""What the fork server imports and makes once for all its children: what stages import late, statements compiled."""

# ruff: noqa: E402 - to look for garbage takes a quarter of the imports' time

import gc

# A child is over before its garbage matters, and what lies here would have to be copied to be looked through.
gc.disable()

import tempfile
from pathlib import Path

import alembic.command
import matplotlib.backends.backend_svg
import matplotlib.figure
import once_kit
import PIL.Image
import process_work
import psycopg
import pyarrow.parquet
import torch
from world_kit import make_released

import annotators.precomputed
import mitl.analysis.report.render
import mitl.campaign.kinds.pairs.controls
import mitl.crowd_server.app
import mitl.crowd_server.serving
import mitl.retrieval.topk

__all__ = [
    "PIL",
    "alembic",
    "annotators",
    "matplotlib",
    "mitl",
    "once_kit",
    "process_work",
    "psycopg",
    "pyarrow",
    "torch",
]

# Each child has to compile no statement again that the loop needs on SQLite.
make_released(
    Path(tempfile.mkdtemp(prefix="mitl-rehearsal-")), n_images=12, image_queries=5, caption_queries=6
)
