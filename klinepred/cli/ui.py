"""In: the run store of a workspace. Out: MLflow's UI over it on 127.0.0.1, until a signal ends it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType

import click

from klinepred.cli.options import common, say, start
from klinepred.errors import KlinepredError, TrainingError, UsageError
from klinepred.masked import masked
from klinepred.paths import Workspace
from klinepred.training.moved import adopt_moved
from klinepred.training.runs import count_runs, run_store
from klinepred.training.verdict_view import view_paths

HOST = "127.0.0.1"
PATIENCE_S = 120.0


@click.command(epilog="\b\nExample: klinepred ui -w demo-workspace --port 5001", short_help="Open the MLflow UI.")
@click.option("--port", type=click.IntRange(0, 65_535), default=5000, show_default=True, help="0 takes a free one.")
@common
def command(port: int, workspace: Path, quiet: bool, verbose: bool) -> int:
    """Serve the runs of the workspace to a browser on this machine; Ctrl-C ends it.

    MLFLOW_TRACKING_URI wins over the workspace's own store when it is set.
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    uri = run_store(space)
    if uri.startswith(("http://", "https://")):
        click.echo(masked(uri))
        say("MLFLOW_TRACKING_URI names this server: open it in a browser")
        return 0
    if uri == space.tracking_uri and not count_runs(space):
        raise TrainingError(
            f"runs of {space.root}",
            expected="at least one training run",
            got="none yet",
            do="train first: klinepred train, or offline klinepred run -p demo",
        )
    if uri == space.tracking_uri:
        adopt_moved(space)
    return _serve(space, uri, _free_port(port), verbose=verbose)


def _free_port(port: int) -> int:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError as error:
            raise UsageError(
                f"--port {port}",
                expected=f"a port of {HOST} that is free and open to you",
                got=str(error.strerror),
                do="choose another, or --port 0 for any free one",
            ) from error
        return int(probe.getsockname()[1])


def _serve(space: Workspace, uri: str, port: int, *, verbose: bool) -> int:
    level = "info" if verbose else "warning"
    words = ["--host", HOST, "--port", str(port), "--workers", "1"]
    words += ["--default-artifact-root", space.artifacts.as_uri(), "--uvicorn-opts", f"--log-level {level}"]
    settings = {
        "MLFLOW_BACKEND_STORE_URI": uri,  # not among the words, which every user of the machine can read
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    }
    if not verbose:
        settings["PYTHONWARNINGS"] = "ignore"  # of MLflow's own libraries
    caught: list[int] = []
    running: list[subprocess.Popen[bytes]] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        caught.append(number)
        for process in running:
            process.terminate()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        # A session of its own: Ctrl-C reaches the server once, through us, and the exit code is ours to give.
        child = subprocess.Popen(  # noqa: S603  # no shell, and no word of it but a path and a port comes from outside
            [sys.executable, "-m", "mlflow", "server", *words],
            env={**os.environ, **settings},
            stdout=sys.stderr.fileno(),
            start_new_session=True,
        )
        running.append(child)
        if caught:
            child.terminate()
        _await_port(child, port)
        if not caught and child.poll() is None:
            click.echo(f"http://{HOST}:{port}")
            for pipeline, path in (view_paths(space) if uri == space.tracking_uri else {}).items():
                say(f"runs of {pipeline} with their verdicts: http://{HOST}:{port}{path}")
            say(f"MLflow UI of {masked(uri)}; Ctrl-C ends it")
        code = child.wait()
    finally:
        for process in running:
            process.terminate()
        for number, handler in before.items():
            signal.signal(number, handler)
    if caught:
        return 128 + caught[0]
    raise KlinepredError(
        "MLflow UI",
        expected="MLflow's server to run until it is stopped",
        got=f"that it ended by itself with code {code}",
        do="read its message above; klinepred ui -v shows more",
    )


def _await_port(child: subprocess.Popen[bytes], port: int) -> None:
    """Return as soon as the server answers, or has ended, or patience has."""
    limit = time.monotonic() + PATIENCE_S
    while child.poll() is None and time.monotonic() < limit:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) == 0:
                return
        time.sleep(0.2)
