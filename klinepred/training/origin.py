"""In: a workspace, this process. Out: where a run comes from: git commit, store version, process; is it still alive."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import psutil

from klinepred import __version__

SLACK_S: Final = 60.0
"""Start times of one process may differ by this much between two readings (the clock was set in between)."""


def git_commit(folder: Path) -> str | None:
    """Commit of the git repository around `folder`, with `+` when tracked files differ; None without one."""
    git = shutil.which("git")
    if git is None or not folder.is_dir():
        return None
    answers = []
    for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"]):
        done = subprocess.run(  # noqa: S603  # git by its full path, no shell, fixed words
            [git, "-C", str(folder), *words], capture_output=True, text=True, check=False, timeout=30
        )
        if done.returncode != 0:
            return None
        answers.append(done.stdout.strip())
    return answers[0] + ("+" if answers[1] else "")


def process_tags(folder: Path) -> dict[str, str]:
    """Tags by which a later run can tell whether this process still works on its run."""
    return {
        "klinepred.version": __version__,
        "klinepred.workspace": str(folder),
        "klinepred.host": socket.gethostname(),
        "klinepred.pid": str(os.getpid()),
        "klinepred.process_start": f"{psutil.Process().create_time():.0f}",
    }


def process_gone(tags: Mapping[str, str]) -> bool:
    """Whether the process of these tags ran on this machine and runs no more; False where that cannot be known."""
    try:
        pid, started = int(tags["klinepred.pid"]), float(tags["klinepred.process_start"])
    except (KeyError, ValueError):
        return False
    if tags.get("klinepred.host") != socket.gethostname():
        return False
    try:
        process = psutil.Process(pid)
        return bool(process.status() == psutil.STATUS_ZOMBIE or abs(process.create_time() - started) > SLACK_S)
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


def user_name() -> str:
    """Who runs this; empty where the system does not say."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
