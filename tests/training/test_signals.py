"""In: stop signals at awkward moments. Out: each is answered, at the latest when the work in hand is done."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from klinepred.training.signals import StopRequest


def interrupted(steps: list[str], *, inside: int = 0, times: int = 1) -> None:
    """Work in one request, or one inside another, that gets SIGINT `times` and then goes on."""
    with StopRequest():
        if inside:
            interrupted(steps, times=times)
            steps.append("outer")
            return
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        steps.append("inner")


def test_a_signal_nobody_answered_is_passed_on_when_the_work_is_done() -> None:
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(steps)
    assert steps == ["inner"]


def test_of_two_requests_inside_each_other_the_outer_work_is_done_too() -> None:
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(steps, inside=1)
    assert steps == ["inner", "outer"]  # such as learning, and putting the model on the shelf


def test_a_second_signal_interrupts_at_once() -> None:
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        interrupted(steps, times=2)
    assert steps == []


def answered() -> None:
    with StopRequest():
        signal.raise_signal(signal.SIGINT)
        raise RuntimeError("answered")


def test_a_signal_that_was_answered_is_not_passed_on() -> None:
    with pytest.raises(RuntimeError, match="answered"):
        answered()


def test_sigterm_in_the_last_moments_ends_the_process_after_the_work() -> None:
    code = (
        "import signal\nfrom klinepred.training.signals import StopRequest\n"
        "with StopRequest():\n    signal.raise_signal(signal.SIGTERM)\n    print('saved', flush=True)\nprint('never')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGTERM
    assert done.stdout == "saved\n"
