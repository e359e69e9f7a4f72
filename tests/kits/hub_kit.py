"""A stand-in for the hub that huggingface_hub talks to: repositories of data sets, whole commits, one token."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_secretofmine"


class Repository:
    """One data set: its files now, and how many commits made them."""

    def __init__(self, *, private: bool) -> None:
        self.private = private
        self.files: dict[str, bytes] = {".gitattributes": b""}
        self.commits = 1

    @property
    def sha(self) -> str:
        """The newest commit's id."""
        return f"{self.commits:040x}"


class Hub:
    """All repositories of one user, and every request that came."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.asked: list[str] = []
        self.url = ""
        self.refusal: tuple[int, str] | None = None
        """What commits are answered by, where not None."""
        self.lost_reply: bytes | None = None
        """What comes in place of the reply to a commit that was made, where not None; nothing at all where empty."""

    def answer(self, method: str, path: str, token: str | None, body: bytes) -> tuple[int, Any]:
        """Status and what is sent."""
        self.asked.append(f"{method} {path}")
        if token != f"Bearer {TOKEN}":
            return 401, {"error": "Invalid username or password."}
        parts = path.partition("?")[0].strip("/").split("/")
        if parts == ["api", "validate-yaml"]:
            return 200, {"errors": [], "warnings": []}
        if parts == ["api", "repos", "create"]:
            return self._create(json.loads(body))
        if parts[3:4] == ["resolve"]:
            return 200, self.repositories["/".join(parts[1:3])].files[parts[5]]
        name, rest = "/".join(parts[2:4]), parts[4:]
        repository = self.repositories[name]
        if rest[:1] == ["preupload"]:
            return 200, {"files": [self._mode(repository, one["path"]) for one in json.loads(body)["files"]]}
        if rest[:1] == ["commit"]:
            return self.refused() or self._commit(repository, name, body)
        siblings = [{"rfilename": one} for one in repository.files]
        return 200, {"id": name, "sha": repository.sha, "private": repository.private, "siblings": siblings}

    def refused(self) -> tuple[int, Any] | None:
        """The refusal, if commits are refused."""
        return None if self.refusal is None else (self.refusal[0], {"error": self.refusal[1]})

    def _create(self, asked: dict[str, Any]) -> tuple[int, Any]:
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        told = {"url": f"{self.url}/datasets/{name}"}
        assert asked["type"] == "dataset"
        if name in self.repositories:
            return 409, {**told, "error": "You already created this dataset repo"}
        private = asked.get("visibility") == "private" or asked.get("private") is True
        self.repositories[name] = Repository(private=private)
        return 200, told

    @staticmethod
    def _mode(repository: Repository, path: str) -> dict[str, Any]:
        there = repository.files.get(path)
        blob = None if there is None else hashlib.sha1(b"blob %d\0" % len(there) + there).hexdigest()
        return {"path": path, "uploadMode": "regular", "shouldIgnore": False, "oid": blob}

    def _commit(self, repository: Repository, name: str, body: bytes) -> tuple[int, Any]:
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "header" and line["value"].get("parentCommit") != repository.sha:
                return 412, {"error": "A commit has happened since."}
            if line["key"] == "file":
                repository.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            if line["key"] == "deletedFile":
                del repository.files[line["value"]["path"]]
        repository.commits += 1
        url = f"{self.url}/datasets/{name}/commit/{repository.sha}"
        return 200, {"commitUrl": url, "commitOid": repository.sha, "pullRequestUrl": None}


@contextmanager
def running_hub() -> Iterator[Hub]:
    """A hub on a free port of this machine."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            status, told = hub.answer(
                self.command, self.path, self.headers.get("Authorization"), self.rfile.read(length)
            )
            content = told if isinstance(told, bytes) else json.dumps(told).encode()
            if hub.lost_reply is not None and "/commit/" in self.path:
                content = hub.lost_reply
                if not content:
                    self.close_connection = True
                    return
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
