"""In: a folder in which this process may write. Out: what it did beyond that: writes elsewhere, programs, sockets."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

CHANGES: Final = ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.symlink", "os.link", "os.truncate", "os.chmod")
ALARMS: Final = ("subprocess.Popen", "os.system", "os.exec", "socket.connect", "pickle.find_class", "os.fork")


class Watch:
    """Listens to the interpreter's audit events while `on`; what Rust writes is found by looking at the folders."""

    def __init__(self, sandbox: Path) -> None:
        self.on = False
        self.seen: list[str] = []
        self._inside = str(sandbox) + os.sep
        sys.addaudithook(self._hear)

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        if event == "open":
            path, mode, flags = args
            writes = (mode and set("wax+") & set(mode)) or (
                isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
            )
            if writes and isinstance(path, (str, bytes)):
                self._judge(event, path)
        elif event in CHANGES:
            for path in args[:2]:
                if isinstance(path, (str, bytes, os.PathLike)):
                    self._judge(event, os.fspath(path))
        elif event in ALARMS:
            self.seen.append(f"{event} {args!r}"[:300])

    def _judge(self, event: str, path: str | bytes) -> None:
        spot = os.path.abspath(os.fsdecode(path))
        if not (spot + os.sep).startswith(self._inside) and not spot.startswith("/dev/"):
            self.seen.append(f"{event} {spot!r}"[:300])
