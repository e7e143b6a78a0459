"""In: the champion of a pipeline, or a model's folder. Out: MLflow's model server over it, until a signal ends it."""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
from pathlib import Path
from types import FrameType

import click

from klinepred.cli.options import common, complete_models, pipeline_option, read_pipeline, say, start
from klinepred.errors import UsageError

log = logging.getLogger("klinepred.serving")


@click.command(
    epilog="\b\nExample: klinepred serve -p demo --port 5001\n"
    "then:    curl 127.0.0.1:5001/invocations -H 'Content-Type: application/json' -d @bars.json",
    short_help="Serve the champion over HTTP.",
)
@pipeline_option
@click.option(
    "--model",
    "model",
    help="Name or folder of a model (default: the pipeline's champion in MLflow).",
    shell_complete=complete_models,
)
@click.option("--port", type=click.IntRange(0, 65_535), default=5001, show_default=True, help="0 takes a free one.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--max-rows",
    "max_rows",
    type=click.IntRange(1),
    help="Most bars of a request (default: all that 10,000 symbols need).",
)
@common
def command(
    pipeline: str,
    model: str | None,
    port: int,
    host: str,
    max_rows: int | None,
    workspace: Path,
    quiet: bool,
    verbose: bool,
) -> int:
    """Answer POST /invocations with the rows of klinepred predict, from the bars that are sent; Ctrl-C ends it.

    It is MLflow's model server (also /ping and /version), in this process and on this machine only. Bars come as JSON,
    CSV or Parquet; a request that cannot be answered gets a status of 4xx and the reason. docs/serving.md has examples.
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    run = read_pipeline(pipeline, (), space)
    if not _is_loopback(host):
        log.warning("%s can be reached from other machines, and nobody is asked for a password", host)
    with _listen(host, port) as listening:
        from klinepred.serving.served import Served, champion_of, model_in, usual_rows
        from klinepred.serving.server import application, serve

        if model is None:
            loaded = champion_of(space, run.name)
        else:
            from klinepred.model.shelf import find_model

            loaded = model_in(find_model(space, model))
        most = max_rows or usual_rows(loaded)
        app = application(Served(loaded, most_rows=most), most_rows=most)
        caught: list[int] = []

        def stop(number: int, _frame: FrameType | None) -> None:
            caught.append(number)

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            click.echo(f"http://{_shown(host)}:{listening.getsockname()[1]}")
            name = (loaded.metadata.metadata or {}).get("bundle", "")
            say(f"model {name}, at most {most:,} rows a request; Ctrl-C ends it")
            serve(app, listening, verbose=verbose)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
    return 128 + caught[0] if caught else 0


def _listen(host: str, port: int) -> socket.socket:
    """A socket that listens, so that a port in use is said before the model is loaded.

    Raises
    ------
    UsageError
        The address is not this machine's, or the port is not free.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as error:
        raise UsageError(
            f"--host {host} --port {port}",
            expected="an address of this machine, and a port that is free and open to you",
            got=str(error.strerror or error),
            do="choose another port, or --port 0 for any free one",
        ) from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host
