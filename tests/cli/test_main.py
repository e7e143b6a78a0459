"""In: command lines, right, mistyped, in bad surroundings. Out: one message, the right exit code, no traceback."""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click
import pytest

import klinepred
from klinepred import cli
from klinepred.cli import COMMANDS, root
from tests.conftest import Typed

REPO = Path(__file__).parents[2]
HEAVY = {"polars", "torch", "mlflow", "numpy", "pandas", "sklearn", "deltalake", "rich", "pydantic"}


def spawned(
    *words: str, env: dict[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "klinepred", *words],
        capture_output=True,
        env={**os.environ, **(env or {})},
        cwd=cwd or REPO,
        timeout=60,
    )


def every_command() -> Iterator[tuple[str, click.Command]]:
    for name, (module, _) in COMMANDS.items():
        command = import_module(f"klinepred.cli.{module}").command
        yield name, command
        if isinstance(command, click.Group):
            for sub, below in command.commands.items():
                yield f"{name} {sub}", below


EVERY = dict(every_command())


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return {name.partition(".")[0] for name in done.stderr.split()}


def test_help_imports_no_heavy_library() -> None:
    loaded = loaded_after("from klinepred.cli import main\nassert main(['--help']) == 0")
    assert not loaded & HEAVY


def test_import_of_klinepred_loads_no_library_at_all() -> None:
    assert not loaded_after("import klinepred") & (HEAVY | {"click"})


@pytest.mark.parametrize("name", list(COMMANDS))
def test_help_of_a_command_loads_neither_torch_nor_mlflow(name: str) -> None:
    module = COMMANDS[name][0]
    assert not loaded_after(f"import klinepred.cli.{module}") & {"torch", "mlflow", "sklearn", "pandas"}


def test_help_lists_every_command(typed: Typed) -> None:
    code, out, _ = typed("--help")
    assert code == 0
    assert all(re.search(rf"^  {name} ", out, re.MULTILINE) for name in COMMANDS)


@pytest.mark.parametrize("name", [name for name, command in EVERY.items() if isinstance(command, click.Group)])
def test_the_help_of_a_group_says_what_each_command_does_in_a_whole_sentence(name: str, typed: Typed) -> None:
    lines = "".join(typed(name, "--help")[1].partition("Commands:")[2].split())  # lines break at a hyphen, too
    below = [command for of, command in EVERY.items() if of.startswith(f"{name} ")]
    assert below
    for command in below:
        sentence = re.split(r"\.(?=\s|$)", command.help or "")[0]
        assert "".join(f"{command.name}{sentence}".split()) in lines


@pytest.mark.parametrize("name", list(EVERY))
def test_every_help_ends_with_an_example_that_can_be_typed(name: str, typed: Typed) -> None:
    assert typed(*name.split(), "--help")[0] == 0
    command = EVERY[name]
    assert command.epilog
    examples = re.findall(rf"klinepred {name}\b[^\n]*", command.epilog)
    assert examples
    for line in examples:
        words = shlex.split(re.split(r"\s{2,}", line)[0])[1 + len(name.split()) :]
        if not isinstance(command, click.Group):
            command.make_context(name, words)  # parses, runs nothing


@pytest.mark.parametrize("name", [name for name, command in EVERY.items() if not isinstance(command, click.Group)])
def test_every_command_knows_the_common_options(name: str) -> None:
    flags = {flag for parameter in EVERY[name].params for flag in parameter.opts}
    assert {"-w", "--workspace", "-q", "--quiet", "-v", "--verbose"} <= flags


def test_no_words_show_the_help(typed: Typed) -> None:
    code, out, err = typed()
    assert code == 2
    assert "klinepred run -p demo" in out + err


def test_version(typed: Typed) -> None:
    assert typed("--version")[1] == f"klinepred, version {klinepred.__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["trian"], "did you mean klinepred train?"),
        (["zzz"], "see klinepred --help"),
        (["--zzz"], "which it does not have"),
        (["train", "--epoch", "3"], "--epochs"),
        (["train", "--epochs", "0"], "at least 1"),
        (["train", "--precision", "fp8"], "fp16"),
        (["train", "-p", "dmeo"], "use -p demo"),
        (["train", "-p", "nothing.toml"], "no such file"),
        (["train", "--set", "train.epoch=3"], "did you mean train.epochs?"),
        (["train", "--set", "epochs"], "section.key=value"),
        (["train", "-w", str(REPO / "pyproject.toml")], "a folder"),
        (["predict", "--now", "yesterday"], "ISO 8601"),
        (["predict", "--symbols", "@nothing.txt"], "no such file"),
        (["predict", "--symbols", " , "], "at least one symbol"),
        (["predict", "--format", "xml"], "table, csv, json, parquet"),
        (["ingest", "nothing.csv"], "nothing.csv"),
        (["ui", "--port", "99999"], "65535"),
    ],
)
def test_mistyped_command_gets_one_message_and_code_2(
    words: list[str], message: str, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = typed(*words)
    assert code == 2
    assert out == ""
    assert message in err
    for part in ("expected:", "got:", "do this:"):
        assert err.count(part) == 1
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train"], "klinepred ingest"),
        (["predict"], "klinepred train"),
        (["evaluate"], "klinepred train"),
        (["bars", "show"], "klinepred ingest"),
        (["models", "show"], "klinepred train"),
        (["ui"], "klinepred run -p demo"),
    ],
)
def test_empty_workspace_is_told_what_comes_first(
    words: list[str], hint: str, typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, out, err = typed(*words, "-w", str(tmp_path))
    assert code == 1
    assert out == ""
    assert hint in err
    assert "expected:" in err
    assert "do this:" in err


def test_error_of_the_system_is_one_message(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/x")

    monkeypatch.setattr(root, "invoke", full)
    code, _, err = typed("doctor")
    assert code == 1
    assert err.splitlines()[0] == "error: /data/x"
    assert "free space on that disk" in err


def test_lack_of_memory_is_one_message(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def greedy(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(root, "invoke", greedy)
    assert typed("doctor")[0] == 1


def test_interrupt_is_130_without_a_traceback(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(root, "invoke", interrupted)
    code, _, err = typed("doctor")
    assert code == 130
    assert err.strip() == "stopped"


def test_reader_that_goes_away_ends_the_command_quietly(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "klinepred", "init", str(tmp_path / "x")],
        stdout=writing,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    os.close(writing)
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == b""


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    ],
)
def test_poor_locale_is_survived(env: dict[str, str], tmp_path: Path) -> None:
    done = spawned("init", "Jürgen 数据", env=env, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "Jürgen 数据" / "pipelines" / "demo.toml").is_file()
    bad = spawned("train", "-p", "ü", env=env, cwd=tmp_path)
    assert bad.returncode == 2
    assert b"Traceback" not in bad.stderr


def test_a_python_that_knows_ascii_alone_says_how_to_mend_it_and_works_in_ascii(tmp_path: Path) -> None:
    """Python would find `Jürgen`, and Delta another folder."""
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    refused = spawned("init", "Jürgen 数据", env=env, cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (2, b"")
    for part in (b"expected: a path in UTF-8", b"got:      names of files are taken for ascii", b"unset PYTHONUTF8"):
        assert part in refused.stderr
    assert list(tmp_path.iterdir()) == []
    assert spawned("init", "plain", env=env, cwd=tmp_path).returncode == 0


def test_python_dash_m_is_the_same_command() -> None:
    done = spawned("--version")
    assert done.stdout.decode() == f"klinepred, version {klinepred.__version__}\n"


def test_exit_code_of_a_command_is_that_of_the_process() -> None:
    assert spawned("trian").returncode == 2


def test_every_command_module_is_in_the_table() -> None:
    shared = {"__init__", "board", "endings", "follow", "group", "ledger", "narrow", "options", "output", "progress"}
    shared |= {"ranged", "usage"}
    below = {"bars_check", "bars_export", "bars_upkeep"}  # commands of `klinepred bars`
    modules = {path.stem for path in Path(cli.__file__).parent.glob("*.py")} - shared - below
    assert {module for module, _ in COMMANDS.values()} == modules


def test_talk_on_stderr_is_what_q_silences() -> None:
    """Errors, questions and symbols that failed are said with -q too; all else goes through `say` or the log."""
    direct = {
        path.stem: count
        for path in Path(cli.__file__).parent.glob("*.py")
        if (count := len(re.findall(r"\berr=True", path.read_text(encoding="utf-8"))))
    }
    assert direct == {
        "__init__": 2,  # an error, an interrupt
        "options": 2,  # `say`, the log
        "bars_upkeep": 1,  # a question
        "follow": 1,  # what ended it
        "predict": 1,
        "ranged": 1,
        "run": 3,  # these three: symbols that failed
        "progress": 1,  # which knows of -q
    }
