"""Operations on workers: messages to many, and blocks; a qualification that HITs exclude is kinder than a block."""

from __future__ import annotations

from typing import Any

from mitl.crowd_server.api import notifications
from mitl.crowd_server.api.notifications import Letter, tell
from mitl.crowd_server.api.params import Params
from mitl.crowd_server.api.qualifications import find_worker
from mitl.crowd_server.api.registry import Call, operation, paged
from mitl.crowd_server.api.shapes import worker_block
from mitl.crowd_server.protocol.errors import invalid, missing, out_of_range
from mitl.crowd_server.store import messages, workers

MAX_WORKERS = 100


@operation("NotifyWorkers", writes=True)
def notify_workers(call: Call) -> dict[str, Any]:
    """Write to workers whose work was approved or rejected; the reply names those who were not reached."""
    subject = call.params.text("Subject", longest=200, required=True)
    text = call.params.text("MessageText", longest=4096, required=True)
    wanted = _workers(call.params)
    known = messages.acquaintances(call.connection, call.environment, wanted)
    failures: list[dict[str, str]] = []
    for mturk_id in wanted:
        own_id, decided, waits = known.get(mturk_id, (0, False, False))
        if decided:
            tell(call, own_id, Letter(subject, text))
        else:
            failures.append(_failure(mturk_id, joined=mturk_id in known, waits=waits))
    return {"NotifyWorkersFailureStatuses": failures}


def _workers(params: Params) -> list[str]:
    """The ids, each once, in their order."""
    given = params.raw("WorkerIds")
    if given is None or given == []:
        raise missing("WorkerIds")
    if not isinstance(given, list):
        raise invalid("WorkerIds", "it must be a list of worker ids")
    if len(given) > MAX_WORKERS:
        raise out_of_range("WorkerIds", f"{len(given)} workers long", f"at most {MAX_WORKERS}")
    return list(dict.fromkeys(Params({"WorkerIds": one}).worker("WorkerIds") for one in given))


def _failure(mturk_id: str, *, joined: bool, waits: bool) -> dict[str, str]:
    """Soft where trying later can help."""
    if not joined:
        message = f"No worker {mturk_id} has joined this server in this environment."
    elif waits:
        message = f"You have not approved or rejected work of worker {mturk_id} yet."
    else:
        message = f"Worker {mturk_id} has no work that you approved or rejected."
    return {
        "NotifyWorkersFailureCode": "SoftFailure" if waits else "HardFailure",
        "NotifyWorkersFailureMessage": message,
        "WorkerId": mturk_id,
    }


@operation("CreateWorkerBlock", writes=True)
def create_worker_block(call: Call) -> dict[str, Any]:
    """Keep a worker from all HITs; they are told that, though not the reason, which is the requester's note."""
    worker = find_worker(call)
    reason = call.params.text("Reason", longest=1024, required=True)
    if workers.block(call.connection, worker, reason, call.now):
        tell(call, worker.id, notifications.blocked())
    return {}


@operation("DeleteWorkerBlock", writes=True)
def delete_worker_block(call: Call) -> dict[str, Any]:
    """Let a worker take HITs again; nothing happens where they were not blocked."""
    worker = find_worker(call)
    call.params.text("Reason", longest=1024)
    if workers.unblock(call.connection, worker.id):
        tell(call, worker.id, notifications.unblocked())
    return {}


@operation("ListWorkerBlocks", writes=False)
def list_worker_blocks(call: Call) -> dict[str, Any]:
    """Who is blocked, and why."""
    after, size = call.page()
    rows = workers.list_blocks(call.connection, call.environment, after=after, limit=size + 1)
    return paged(call, rows, size, "WorkerBlocks", worker_block)
