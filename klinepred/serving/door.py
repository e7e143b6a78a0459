"""In: requests to MLflow's scoring server. Out: its answers as plain JSON; what is wrong in words, never a trace."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any, Final

import psutil

log = logging.getLogger("klinepred.serving")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

PATH: Final = "/invocations"
KINDS: Final = ("application/json", "text/csv", "application/vnd.apache.parquet")
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
        Of a body; a larger one is refused with status 413 before it is read to its end.
    """

    def __init__(self, app: App, *, most_bytes: int) -> None:
        self._app = app
        self._most_bytes = most_bytes
        self._turn = asyncio.Semaphore(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is no prediction; of predictions make the answer plain."""
        if scope["type"] != "http" or scope["path"] != PATH or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        kind = dict(scope["headers"]).get(b"content-type", b"").decode("latin-1")
        if kind.partition(";")[0].strip().lower() not in KINDS:
            await _say(send, 415, {"message": _three(f"one of the content types {', '.join(KINDS)}", kind or "none")})
            return
        body = await self._read(receive)
        free = psutil.virtual_memory().available
        if body is None or len(body) * READ_TIMES > free:
            most = self._most_bytes if body is None else free // READ_TIMES
            reason = _three(
                f"a body of at most {most:,} bytes", "a larger one", "send fewer bars a request, or Parquet"
            )
            await _say(send, 413, {"message": reason})
            return
        async with self._turn:
            left_out: dict[str, str] = {}
            LEFT_OUT.set(left_out)
            status, answer = await self._ask(scope, body)
        await _say(send, status, {**answer, **({"left_out": left_out} if status == 200 and left_out else {})})

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
            return 400, {"message": _three("bars as MLflow's scoring protocol has them", str(error)[:200])}
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


def _three(expected: str, got: str, do: str = "see docs/serving.md, or the model's input example") -> str:
    return f"request\n  expected: {expected}\n  got:      {got}\n  do this:  {do}"


async def _say(send: Send, status: int, answer: dict[str, Any]) -> None:
    body = json.dumps(answer, ensure_ascii=False).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
