"""OpenAI's files and batches on the loopback interface, as their documentation describes them, with faults on demand.

https://platform.openai.com/docs/guides/batch and /docs/api-reference/batch. A batch is done after as many looks as
``looks`` says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from server import Reply, Seen, answer, error

# From a request's body, and how often its custom id was asked before, to a reply; None: the batch has no answer.
Answering = Callable[[dict[str, Any], int], Reply | None]


def echo(body: dict[str, Any], times: int) -> Reply:
    return answer(f"echo of {body['messages'][-1]['content']}")


@dataclass
class Batches:
    """The plan of a :class:`server.FakeEndpoint`: ``FakeEndpoint(Batches())``."""

    answering: Answering = echo
    looks: int = 2
    status: str = "completed"
    errors: list[dict[str, str]] = field(default_factory=list)
    held: bool = False
    """Whether batches stay in progress for now."""
    files: dict[str, bytes] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: dict[str, int] = field(default_factory=dict)
    """How often each custom id was handed in with a batch that began."""
    looked: dict[str, int] = field(default_factory=dict)
    direct: list[Any] = field(default_factory=list)
    before: Callable[[Seen], Reply | None] = lambda _seen: None
    """Faults: a reply that comes in place of the right one."""

    def __call__(self, number: int, seen: Seen) -> Reply:
        if (fault := self.before(seen)) is not None:
            return fault
        path, query = urlsplit(seen.path).path.removeprefix("/v1"), parse_qs(urlsplit(seen.path).query)
        match seen.method, *path.strip("/").split("/"):
            case "POST", "chat", "completions":
                self.direct.append(seen.body)
                return answer("ok")
            case "POST", "files":
                return self._upload(seen)
            case "POST", "batches":
                return self._begin(seen.body)
            case "GET", "batches":
                return self._list(query)
            case "GET", "batches", name:
                return self._look(name)
            case "GET", "files", name, "content":
                return Reply(self.files[name], headers={"Content-Type": "application/octet-stream"})
        return error(404, "Not found")

    def _upload(self, seen: Seen) -> Reply:
        kind = seen.headers["content-type"]
        boundary = re.fullmatch(r"multipart/form-data; boundary=(.+)", kind)
        assert boundary, kind
        parts = seen.body.split(b"--" + boundary[1].encode())
        assert any(b'name="purpose"' in part and b"batch" in part for part in parts)
        content = next(part for part in parts if b'name="file"' in part).partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
        name = f"file-{len(self.files)}"
        self.files[name] = content
        return _reply({"id": name, "object": "file", "purpose": "batch"})

    def _begin(self, body: dict[str, Any]) -> Reply:
        assert body["endpoint"] == "/v1/chat/completions"
        assert body["completion_window"] == "24h"
        name = f"batch_{len(self.batches)}"
        lines = [json.loads(line) for line in self.files[body["input_file_id"]].splitlines()]
        assert all(line["method"] == "POST" and line["url"] == body["endpoint"] for line in lines)
        assert len({line["custom_id"] for line in lines}) == len(lines)
        self.batches[name] = {"id": name, "status": "in_progress", "lines": lines, "metadata": body["metadata"]}
        for line in lines:
            self.asked[line["custom_id"]] = self.asked.get(line["custom_id"], 0) + 1
        return _reply(self._shown(name))

    def _list(self, query: dict[str, list[str]]) -> Reply:
        """The newest first, one a page."""
        names = [*reversed(self.batches)]
        names = names[names.index(query["after"][0]) + 1 :] if "after" in query else names
        return _reply({"data": [self._shown(name) for name in names[:1]], "has_more": len(names) > 1})

    def _look(self, name: str) -> Reply:
        self.looked[name] = self.looked.get(name, 0) + 1
        batch = self.batches[name]
        if self.looked[name] >= self.looks and batch["status"] == "in_progress" and not self.held:
            self._finish(batch)
        return _reply(self._shown(name))

    def _finish(self, batch: dict[str, Any]) -> None:
        batch["status"] = self.status
        if self.status == "failed":
            batch["errors"] = {"object": "list", "data": self.errors}
            return
        good, bad = [], []
        for line in batch["lines"]:
            key = line["custom_id"]
            reply = self.answering(line["body"], self.asked[key] - 1)
            if reply is None:
                bad.append({"custom_id": key, "response": None, "error": {"code": "batch_expired"}})
                continue
            document = {"status_code": reply.status, "request_id": "r", "body": json.loads(reply.body)}
            (good if reply.status == 200 else bad).append({"custom_id": key, "response": document, "error": None})
        for name, lines in (("output_file_id", good), ("error_file_id", bad)):
            if lines:
                batch[name] = f"{batch['id']}-{name}"
                self.files[batch[name]] = "\n".join(map(json.dumps, reversed(lines))).encode()

    def _shown(self, name: str) -> dict[str, Any]:
        batch = self.batches[name]
        done = 0 if batch["status"] == "in_progress" else len(batch["lines"])
        shown = {key: value for key, value in batch.items() if key != "lines"}
        return {"object": "batch", **shown, "request_counts": {"total": len(batch["lines"]), "completed": done}}


def _reply(document: dict[str, Any]) -> Reply:
    return Reply(json.dumps(document).encode())
