"""What the fork server imports once for all its children: everything that stages import late."""

import alembic.command
import once_kit
import PIL.Image
import process_work
import pyarrow.parquet
import torch

import annotators.precomputed
import mitl.analysis.report.render
import mitl.campaign.kinds.pairs.controls
import mitl.crowd_server.app
import mitl.crowd_server.serving
import mitl.retrieval.topk

__all__ = ["PIL", "alembic", "annotators", "mitl", "once_kit", "process_work", "pyarrow", "torch"]
