"""In: the words before the Tab key. Out: what the shell is told could come next, as docs/cli.md sets it up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from klinepred.cli import COMMANDS, root


def offered(*words: str, shell: str = "bash") -> list[str]:
    """What is offered for the last word."""
    asked = {
        "_KLINEPRED_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(("klinepred", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = CliRunner().invoke(root, [], prog_name="klinepred", env=asked)
    assert done.exit_code == 0, done.output
    return [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_commands_are_offered() -> None:
    assert offered("") == list(COMMANDS)
    assert offered("tra") == ["train"]
    assert offered("bars", "l") == ["list"]


def test_options_and_their_choices_are_offered() -> None:
    assert "--epochs" in offered("train", "--ep")
    assert offered("train", "--precision", "fp") == ["fp32", "fp16"]


def test_pipelines_and_models_of_the_workspace_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "mine.toml").touch()
    (tmp_path / "models" / "trained" / "mine-1").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert offered("train", "-p", "m") == ["mine"]
    assert "demo" in offered("train", "-p", "")
    assert offered("evaluate", "m") == ["mine-1"]
    monkeypatch.chdir(tmp_path.parent)
    assert offered("models", "show", "-w", str(tmp_path), "m") == ["mine-1"]


def test_an_unknown_command_is_passed_over() -> None:
    assert offered("zzz", "--he") in ([], ["--help"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(shell: str) -> None:
    if shell == "bash" and os.environ.get("CI") is None and not Path("/bin/bash").exists():
        pytest.skip("no bash here, and click asks for its version")
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from klinepred.cli import main; sys.exit(main())"],
        env={**os.environ, "_KLINEPRED_COMPLETE": f"{shell}_source"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "_KLINEPRED_COMPLETE" in done.stdout
