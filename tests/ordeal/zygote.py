"""In: orders, a line of JSON each. Out: each carried out by a child that has everything imported; its pid, its end."""

# A command takes seconds to import what it needs. Here that is done once, and a child for each order is forked off
# before any thread is at work. A child takes the order's surroundings, runs one command line and ends as it would.

from __future__ import annotations

import ctypes
import datetime as dates
import gc
import json
import os
import pkgutil
import random
import resource
import signal
import sys
import time
from importlib import import_module
from typing import Any, Final

import klinepred
from klinepred.cli import main

SCRIPTS: Final = (".__main__", ".next_bar")
CAPSET: Final = 126
"""Number of the system call on x86-64."""


def import_all() -> None:
    """Every module of klinepred, and so every library."""
    for module in pkgutil.walk_packages(klinepred.__path__, "klinepred."):
        if not module.name.endswith(SCRIPTS):
            import_module(module.name)
    for name in ("mlflow.tracking", "mlflow.store.tracking.sqlalchemy_store", "sklearn.ensemble", "rich.progress"):
        import_module(name)
    gc.freeze()


def give_up_powers() -> None:
    """From now on root may write only what the permissions of its own files allow."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    none = (ctypes.c_uint32 * 6)()
    if os.geteuid() == 0 and ctypes.CDLL(None, use_errno=True).syscall(CAPSET, header, none):
        raise OSError(ctypes.get_errno(), "capset")


def let_the_clock_jump(seed: int) -> None:
    """Each look at the clock of the system shows another day, up to a month before or after."""
    chance = random.Random(seed)  # noqa: S311
    real = time.time

    def jumping() -> float:
        return real() + chance.choice((0.0, -86_400.0, 2_592_000.0, -2_592_000.0, 3.0))

    class Jumping(dates.datetime):
        @classmethod
        def now(cls, tz: dates.tzinfo | None = None) -> Jumping:
            return cls.fromtimestamp(jumping(), tz)

    time.time = jumping
    for name, module in list(sys.modules.items()):
        if name.startswith("klinepred") and getattr(module, "datetime", None) is dates.datetime:
            module.datetime = Jumping  # type: ignore[attr-defined]


def carry_out(order: dict[str, Any]) -> int:
    """In the child."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(order[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    if "bytes" in order:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["bytes"],) * 2)
    if "clock" in order:
        let_the_clock_jump(order["clock"])
    if order.get("powerless"):
        give_up_powers()
    return main(order["words"])


def end_of(child: int) -> int:
    """Its exit code, below 0 the signal; it stays to be signalled, if as a dead one, until it is reaped."""
    seen = os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert seen is not None
    return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status


if __name__ == "__main__":
    import_all()
    print("ready", flush=True)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            sys.exit(carry_out(json.loads(line)))
        print(child, flush=True)
        print(end_of(child), flush=True)
        sys.stdin.readline()  # it has been read
        os.waitpid(child, 0)
