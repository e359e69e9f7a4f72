"""Operations that keep workers from HITs. A qualification that HITs exclude is kinder and does as much."""

from __future__ import annotations

from typing import Any

from mitl.crowd_server.api.qualification_shapes import worker_block
from mitl.crowd_server.api.qualifications import find_worker, tell
from mitl.crowd_server.api.registry import Call, operation, paged
from mitl.crowd_server.store import blocks
from mitl.crowd_server.work import letters


@operation("CreateWorkerBlock", writes=True)
def create_worker_block(call: Call) -> dict[str, Any]:
    """Keep a worker from all HITs; they are told that, though not the reason, which is the requester's note."""
    worker = find_worker(call)
    reason = call.params.text("Reason", longest=1024, required=True)
    if blocks.add(call.connection, worker, reason, call.now):
        tell(call, worker.id, letters.blocked())
    return {}


@operation("DeleteWorkerBlock", writes=True)
def delete_worker_block(call: Call) -> dict[str, Any]:
    """Let a worker take HITs again; nothing happens where they were not blocked."""
    worker = find_worker(call)
    call.params.text("Reason", longest=1024)
    if blocks.remove(call.connection, worker.id):
        tell(call, worker.id, letters.unblocked())
    return {}


@operation("ListWorkerBlocks", writes=False)
def list_worker_blocks(call: Call) -> dict[str, Any]:
    """Who is blocked, and why."""
    after, size = call.page()
    rows = blocks.list_blocks(call.connection, call.environment, after=after, limit=size + 1)
    return paged(call, rows, size, "WorkerBlocks", worker_block)
