"""In: folders, new and used. Out: a workspace with the shipped files, those of the user untouched."""

from __future__ import annotations

from pathlib import Path

from klinepred.paths import default_pipelines
from tests.conftest import Typed


def test_init_makes_a_workspace_and_says_what_is_next(typed: Typed, tmp_path: Path) -> None:
    code, out, err = typed("init", str(tmp_path / "my space"))
    assert (code, err) == (0, "")
    shipped = {path.name for path in default_pipelines().glob("*.toml")}
    assert {path.name for path in (tmp_path / "my space" / "pipelines").iterdir()} == shipped
    assert (tmp_path / "my space" / "models" / "presets" / "lstm-3x256.toml").is_file()
    assert f"cd '{tmp_path}/my space' && klinepred ingest" in out


def test_init_keeps_a_changed_file_unless_forced(typed: Typed, tmp_path: Path) -> None:
    typed("init", str(tmp_path))
    mine = tmp_path / "pipelines" / "demo.toml"
    mine.write_text("# mine\n")
    other = tmp_path / "pipelines" / "other.toml"
    other.write_text("# mine too\n")
    code, out, _ = typed("init", str(tmp_path))
    assert code == 0
    assert mine.read_text() == "# mine\n"
    assert "kept     pipelines/demo.toml" in out
    assert typed("init", str(tmp_path), "--force")[0] == 0
    assert mine.read_bytes() == (default_pipelines() / "demo.toml").read_bytes()
    assert other.read_text() == "# mine too\n"


def test_init_in_two_folders_at_once_is_refused(typed: Typed, tmp_path: Path) -> None:
    assert typed("init", str(tmp_path / "a"), "-w", str(tmp_path / "b"))[0] == 2
    assert list(tmp_path.iterdir()) == []
