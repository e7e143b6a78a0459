"""In: commands in folders, locales and times that are against them. Out: one message or the work done, nothing lost."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import klinepred as kp
from klinepred.bars.ingest import ingest
from klinepred.model.bundle import save_bundle
from tests.asked import asked_bundle, walked
from tests.bars.made import NOW, from_files
from tests.conftest import Typed

CLOCKS = dict.fromkeys(("AAA", "BBB"), "XNYS")
CLOCK = "2026-06-09T21:00:00Z"
LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
from klinepred.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> kp.Workspace:
    """Two symbols and a model, in a folder of blanks and letters beyond ASCII."""
    root = tmp_path_factory.mktemp("ein Ördner 数据 #1 %")
    walked(CLOCKS, days=60).collect().drop("calendar").write_parquet(root / "bärs & co.parquet")
    space = kp.Workspace(root / "w ü")
    ingest(from_files(root / "bärs & co.parquet"), space, now=NOW)
    save_bundle(replace(asked_bundle(CLOCKS), provenance={"created": "2026-06-01T00:00:00Z"}), space.trained / "asked")
    return space


def outputs(space: kp.Workspace, to: Path) -> list[list[str]]:
    where = ["-w", str(space.root)]
    return [
        ["predict", "-p", "demo", *where, "--now", CLOCK, "--format", "csv", "-o", str(to / "p.csv")],
        ["bars", "export", *where, "-o", str(to / "b.csv")],
        ["bars", "check", *where, "--html", str(to / "h.html")],
        ["features", "show", "-p", "demo", *where, "--symbols", "AAA", "--format", "csv", "-o", str(to / "f.csv")],
        ["models", "export", "asked", *where, "--to", str(to / "m")],
        ["init", str(to / "i")],
    ]


def one_message(code: int, err: str) -> None:
    assert code in (1, 2), err
    assert err.count("expected:") == err.count("got:") == err.count("do this:") == 1, err
    assert "Traceback" not in err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("number", range(6))
def test_an_output_folder_that_is_read_only_is_one_message(
    space: kp.Workspace, typed: Typed, tmp_path: Path, number: int
) -> None:
    to = tmp_path / "out"
    to.mkdir()
    to.chmod(0o500)
    try:
        code, _, err = typed(*outputs(space, to)[number])
    finally:
        to.chmod(0o700)
    one_message(code, err)
    assert list(to.iterdir()) == []


@pytest.mark.parametrize("number", range(6))
def test_an_output_below_a_file_is_one_message(space: kp.Workspace, typed: Typed, tmp_path: Path, number: int) -> None:
    (tmp_path / "out").write_text("a file, no folder")
    code, _, err = typed(*outputs(space, tmp_path / "out")[number])
    one_message(code, err)
    assert (tmp_path / "out").read_text() == "a file, no folder"


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_limit_of_file_sizes_is_one_message_and_leaves_no_part(
    space: kp.Workspace, tmp_path: Path, number: int
) -> None:
    words = outputs(space, tmp_path)[number]
    done = subprocess.run([sys.executable, "-c", LIMITED, *words], capture_output=True, text=True, timeout=120)
    one_message(done.returncode, done.stderr)
    assert list(tmp_path.iterdir()) == []


def test_odd_paths_and_a_poor_locale_change_no_prediction(space: kp.Workspace, typed: Typed) -> None:
    words = ["predict", "-p", "demo", "-w", str(space.root), "--now", CLOCK, "--format", "json"]
    code, out, err = typed(*words)
    assert code == 0, err
    env = {**os.environ, "LC_ALL": "C", "TZ": "Pacific/Kiritimati"}
    poor = subprocess.run([sys.executable, "-m", "klinepred", *words], capture_output=True, env=env, timeout=120)
    assert poor.returncode == 0, poor.stderr
    assert poor.stdout.decode() == out


@pytest.mark.parametrize(
    "now", ["1970-01-01", "2026-06-09T21:00:00Z", "2099-12-31", "0001-01-01", "9999-12-31T23:59:59Z"]
)
@pytest.mark.parametrize("command", ["ingest", "predict"])
def test_a_clock_that_jumps_ends_in_rows_or_one_message_and_loses_nothing(
    space: kp.Workspace, typed: Typed, command: str, now: str
) -> None:
    before = kp.scan_bars(space).collect()
    files = [str(space.root.parent / "bärs & co.parquet")] if command == "ingest" else ["-p", "demo"]
    code, out, err = typed(command, *files, "-w", str(space.root), "--now", now, "--format", "json")
    assert "Traceback" not in err
    assert (code == 0 and out) or err.count("do this:") >= 1 or code == 3
    assert kp.scan_bars(space).collect().equals(before)
