"""In: a served model, an open socket. Out: MLflow's scoring server over it, until a signal ends it."""

from __future__ import annotations

import os
import socket
from typing import Final

from klinepred.serving.door import Door
from klinepred.serving.served import Served
from klinepred.training.quiet import quiet

PATIENCE_S: Final = 600
"""Seconds a request may take, unless MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT says otherwise."""
ROW_LETTERS: Final = 256
"""Bytes of a bar in a request: as JSON it takes some 150 at most."""


def application(model: Served, *, most_rows: int) -> Door:
    """The ASGI application: /invocations, /ping, /health, /version."""
    os.environ.setdefault("MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT", str(PATIENCE_S))
    with quiet():
        from mlflow.pyfunc import scoring_server

        return Door(scoring_server.init(model), most_bytes=max(1_000_000, most_rows * ROW_LETTERS))  # type: ignore[arg-type]


def serve(app: Door, listening: socket.socket, *, verbose: bool) -> None:
    """Answer until SIGINT or SIGTERM; what is being answered then is finished first."""
    import uvicorn

    settings = uvicorn.Config(
        app, log_level="info" if verbose else "warning", access_log=verbose, timeout_graceful_shutdown=30
    )
    uvicorn.Server(settings).run(sockets=[listening])
