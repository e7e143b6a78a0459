"""In: requests to MLflow's scoring server. Out: its answers as plain JSON; what is wrong in words, never a trace."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any, Final

import psutil

from klinepred.serving.complaint import Complaint, complaint

log = logging.getLogger("klinepred.serving")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PATH: Final = "/invocations"
KINDS: Final = ("application/json", "text/csv", "application/vnd.apache.parquet")
DOORS: Final = "POST /invocations, GET /ping, GET /health or GET /version"
LINGER_S: Final = 5.0
"""How long the rest of a body that is refused is read and thrown away: who is still sending would not hear why."""
READ_TIMES: Final = 12
"""Memory that a body takes while it is read, in times of its own size: JSON becomes objects of Python first."""
LONGEST: Final = 2_000
"""Letters of a reason."""
LEFT_OUT: Final[ContextVar[dict[str, str] | None]] = ContextVar("left_out", default=None)
"""Where the model puts the reasons of symbols without a prediction, for the answer to the request at hand."""


class Door:
    """An ASGI application around MLflow's: one request at a time is let in to `/invocations`, whole and not too large.

    Parameters
    ----------
    app
        MLflow's.
    most_bytes
        Of a body; a larger one is refused with status 413, by its Content-Length before any of it is read, else before
        it is read to its end. The connection is closed then.
    """

    def __init__(self, app: App, *, most_bytes: int) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._turn = asyncio.Semaphore(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is no prediction; of predictions make the answer plain."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] != PATH or scope["method"] != "POST":
            await self._elsewhere(scope, receive, send)
            return
        headers = dict(scope["headers"])
        told = headers.get(b"content-type", b"").decode("latin-1")
        kind = told.partition(";")[0].strip().lower()
        if kind not in KINDS:
            await _say(send, 415, _message(Complaint(f"one of the content types {', '.join(KINDS)}", told or "none")))
            return
        length = headers.get(b"content-length", b"")
        declared = int(length) if length.isdigit() else 0
        body = None if self._too_large(declared) else await self._read(receive)
        if body is None or self._too_large(len(body)):
            got = f"one of {declared:,}" if declared else "a larger one"
            limit = min(self._most_bytes, psutil.virtual_memory().available // READ_TIMES)
            do = "send fewer bars a request, or Parquet"
            message = _message(Complaint(f"a body of at most {limit:,} bytes", got, do))
            await _say(send, 413, message, rest=receive if body is None else None)
            return
        async with self._turn:
            left_out: dict[str, str] = {}
            LEFT_OUT.set(left_out)
            status, answer = await self._ask(scope, body)
            if status >= 400 and status != 504:
                answer = {**answer, **await asyncio.to_thread(_reasoned, body, kind, str(answer["message"]))}
        await _say(send, status, {**answer, **({"left_out": left_out} if status == 200 and left_out else {})})

    def _too_large(self, size: int) -> bool:
        return size > self._most_bytes or size * READ_TIMES > psutil.virtual_memory().available

    async def _elsewhere(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is asked at another door; that there is none is said as all else is."""
        refused = 0

        async def tell(message: Message) -> None:
            nonlocal refused
            if message["type"] == "http.response.start" and int(message["status"]) in (404, 405):
                refused = int(message["status"])
                got = f"{scope['method']} {scope['path']}"[:200]
                allow = [(name, text) for name, text in message.get("headers", []) if name.lower() == b"allow"]
                await _say(send, refused, _message(Complaint(DOORS, got, "check method and path")), headers=allow)
            elif not refused:
                await send(message)

        await self._app(scope, receive, tell)

    async def _read(self, receive: Receive) -> bytes | None:
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b""
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most_bytes:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)

    async def _ask(self, scope: Scope, body: bytes) -> tuple[int, dict[str, Any]]:
        """Status and plain answer of MLflow's application."""
        given = False
        status, parts = 500, []

        async def receive() -> Message:
            nonlocal given
            if given:
                await asyncio.Event().wait()  # nobody hangs up: the request is here whole
            given = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def keep(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
            elif message["type"] == "http.response.body":
                parts.append(message.get("body", b""))

        try:
            await self._app(scope, receive, keep)
        except Exception as error:  # MLflow passes on whatever a body it cannot read runs into
            log.warning("a request that could not be read: %s: %s", type(error).__name__, str(error)[:200])
            return 400, {"message": str(error)[:200] or type(error).__name__}
        return plain_answer(status, b"".join(parts))


def plain_answer(status: int, body: bytes) -> tuple[int, dict[str, Any]]:
    """What MLflow answered: numbers that are none as null; of an error its code and its reason.

    An error of MLflow's that blames the server (5xx) is one of the request, except where time ran out.
    """
    try:
        told = json.loads(body, parse_constant=lambda _: None)
    except ValueError:
        told = {"message": body.decode("utf-8", errors="replace")}
    if not isinstance(told, dict):
        told = {"message": str(told)}
    if status < 400:
        return status, told
    if trace := told.get("stack_trace"):
        log.warning("a request could not be answered: %s", next(iter(str(trace).strip().splitlines()[::-1]), ""))
        log.debug("%s", trace)
    answer = {"message": reason_of(str(told.get("message") or told.get("detail") or "no reason"))}
    if "error_code" in told:
        answer = {"error_code": str(told["error_code"]), **answer}
    return (400 if status >= 500 and status != 504 else status), answer


def reason_of(message: str) -> str:
    """A message of MLflow's without the data it repeats."""
    for mark in ("Failed to predict data ", "Failed to enforce schema of data "):
        if message.startswith(mark):
            message = message.rpartition("Error: ")[2]
    message = message.partition("\nInput: ")[0].partition(" IMPORTANT: The MLflow Model scoring protocol")[0]
    return message[:LONGEST]


def _reasoned(body: bytes, kind: str, message: str) -> dict[str, str]:
    """The reason in three parts: what the body's own form shows, else klinepred's message, else MLflow's within ours.

    A body whose form is wrong runs into something later that says less of it: a row that is short lacks its last value.
    """
    found = complaint(body, kind)
    if found is None and "\n  expected: " in message:
        return {"message": message}
    return _message(found or Complaint("bars as docs/serving.md has them", " ".join(message.split())[:600]))


def _message(found: Complaint) -> dict[str, str]:
    return {"message": str(found)[:LONGEST]}


async def _say(
    send: Send,
    status: int,
    answer: dict[str, Any],
    *,
    headers: Sequence[tuple[bytes, bytes]] = (),
    rest: Receive | None = None,
) -> None:
    """Answer; with `rest`, where more of the request may come, and then hang up."""
    body = json.dumps(answer, ensure_ascii=False).encode()
    plain = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode()), *headers]
    close = [(b"connection", b"close")] if rest else []
    await send({"type": "http.response.start", "status": status, "headers": [*plain, *close]})
    await send({"type": "http.response.body", "body": body, "more_body": rest is not None})
    if rest is not None:
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                while (message := await rest())["type"] != "http.disconnect" and message.get("more_body", False):
                    pass
        await send({"type": "http.response.body", "body": b""})
