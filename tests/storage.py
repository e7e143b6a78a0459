"""In: nothing. Out: a server of object storage on this machine with a bucket, and the environment that finds it."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.training.ranked import free_port

BUCKET = "desk"
SECRETS = {"AWS_ACCESS_KEY_ID": "OPEN-SESAME-ID", "AWS_SECRET_ACCESS_KEY": "open-sesame-secret"}


@contextmanager
def storage_server() -> Iterator[dict[str, str]]:
    """The variables of the environment by which the server is found, for the length of a block."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        address = f"http://127.0.0.1:{port}"
        _make_bucket(address, server)
        yield {**SECRETS, "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": address}
    finally:
        server.terminate()
        server.wait(timeout=30.0)


def _make_bucket(address: str, server: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120.0
    while True:
        try:
            urllib.request.urlopen(urllib.request.Request(f"{address}/{BUCKET}", method="PUT"), timeout=30.0).close()  # noqa: S310
        except OSError:
            assert server.poll() is None, "the server has ended"
            assert time.monotonic() < until, "the server does not answer"
            time.sleep(0.1)
        else:
            return
