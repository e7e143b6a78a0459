"""In: requests to the door, a stand-in behind it. Out: too large ones refused by their header, errors in our words."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from klinepred.serving import door
from klinepred.serving.door import Door, Message, Receive, Scope, Send, plain_answer, reason_of

MOST = 1_000


async def stand_in(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers 404 as FastAPI does, /invocations with what it was told, or fails."""
    status, body = 404, b'{"detail":"Not Found"}'
    if scope["path"] == "/invocations":
        told = (await receive())["body"] if scope["method"] == "POST" else b""
        if told == b"fail":
            raise ValueError("no\n such thing")
        status, body = (405, b"{}") if scope["method"] != "POST" else (200, told)
    await send({"type": "http.response.start", "status": status, "headers": [(b"allow", b"POST")]})
    await send({"type": "http.response.body", "body": body})


async def ask(*parts: bytes, length: int | None = None, path: str = "/invocations", method: str = "POST") -> Any:
    """Status, headers, answer, and how many parts of the body were taken."""
    headers = [(b"content-type", b"application/json")]
    headers += [] if length is None else [(b"content-length", str(length).encode())]
    taken, sent = 0, []

    async def receive() -> Message:
        nonlocal taken
        if taken == len(parts):
            await asyncio.Event().wait()
        taken += 1
        return {"type": "http.request", "body": parts[taken - 1], "more_body": taken < len(parts) or length == 10**13}

    async def send(message: Message) -> None:
        sent.append((taken, message))

    scope = {"type": "http", "path": path, "method": method, "headers": headers}
    await Door(stand_in, most_bytes=MOST)(scope, receive, send)
    (at, start), *rest = sent
    body = b"".join(message["body"] for _, message in rest)
    assert not rest[-1][1].get("more_body", False)
    return start["status"], dict(start["headers"]), json.loads(body), at


def test_a_body_too_large_by_its_header_is_refused_before_any_of_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "LINGER_S", 0.01)
    status, headers, answer, taken = asyncio.run(ask(b"x", b"y", length=10**13))
    assert (status, taken) == (413, 0)
    assert headers[b"connection"] == b"close"
    assert "at most 1,000 bytes" in answer["message"]
    assert "one of 10,000,000,000,000" in answer["message"]


def test_a_body_without_a_length_is_read_to_the_limit_and_the_rest_thrown_away() -> None:
    parts = [b" " * 600, b" " * 600, b"more", b"the last"]
    status, headers, answer, taken = asyncio.run(ask(*parts))
    assert (status, taken) == (413, 2)
    assert headers[b"connection"] == b"close"
    assert "a larger one" in answer["message"]


def test_a_body_within_the_limit_goes_through_and_the_connection_stays() -> None:
    status, headers, answer, _ = asyncio.run(ask(b'{"predictions": []}', length=19))
    assert (status, answer) == (200, {"predictions": []})
    assert b"connection" not in headers


def test_what_the_server_behind_runs_into_comes_out_in_three_parts() -> None:
    status, _, answer, _ = asyncio.run(ask(b"fail", length=4))
    assert status == 400
    assert answer["message"].startswith("request\n  expected: ")
    assert "not JSON" in answer["message"]


@pytest.mark.parametrize(("path", "method", "want"), [("/elsewhere", "GET", 404), ("/invocations", "PUT", 405)])
def test_another_door_is_refused_in_three_parts(path: str, method: str, want: int) -> None:
    status, headers, answer, _ = asyncio.run(ask(path=path, method=method))
    assert status == want
    assert headers[b"allow"] == b"POST"
    assert answer["message"].splitlines() == [
        "request",
        "  expected: POST /invocations, GET /ping, GET /health or GET /version",
        f"  got:      {method} {path}",
        "  do this:  check method and path",
    ]


def test_reasons_come_without_the_data_and_without_a_trace() -> None:
    told = {
        "error_code": "BAD_REQUEST",
        "message": "Failed to predict data '  a\n0 1'. \nError: no close",
        "stack_trace": "x",
    }
    assert plain_answer(500, json.dumps(told).encode()) == (400, {"error_code": "BAD_REQUEST", "message": "no close"})
    assert plain_answer(200, b'{"predictions": [{"p_up": NaN}]}') == (200, {"predictions": [{"p_up": None}]})
    assert plain_answer(504, b"too long")[0] == 504
    assert reason_of("Ensure that it is. Error: 'x'\nInput: \n{") == "Ensure that it is. Error: 'x'"
    assert len(reason_of("x" * 9_999)) == 2_000
