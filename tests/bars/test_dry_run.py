"""In: files and --dry-run. Out: what would be taken and how, as table and JSON; not a byte stored."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from klinepred.bars.dry_run import dry_run
from klinepred.bars.ingest import ingest
from klinepred.paths import Workspace
from tests.bars.made import NOW, from_files
from tests.bars.vendor_samples import FILES
from tests.conftest import Typed


def _sample(tmp_path: Path, vendor: str) -> Path:
    name, content = next((row[1], row[2]) for row in FILES if row[0] == vendor)
    path = tmp_path / name
    path.write_text(content, encoding="utf-8")
    return path


def test_a_dry_run_says_what_was_understood_and_stores_nothing(tmp_path: Path, typed: Typed) -> None:
    path, space = _sample(tmp_path, "stooq"), tmp_path / "w"
    code, out, _ = typed("ingest", str(path), "-w", str(space), "--dry-run", "--format", "json")
    assert code == 0
    assert not space.exists()
    told = json.loads(out)
    assert told["stored"] is False
    (file,) = told["files"]
    keys = ("file", "form", "vendor", "zone", "stamp", "spacing", "symbols", "rows", "bars")
    assert {key: file[key] for key in keys} == {
        "file": "aapl.us.txt",
        "form": "CSV",
        "vendor": "Stooq",
        "zone": "Europe/Warsaw (the one of Stooq)",
        "stamp": "open",
        "spacing": {"AAPL.US": "5-minute"},
        "symbols": ["AAPL.US"],
        "rows": 2,
        "bars": 2,
    }  # fmt: skip
    assert file["columns"]["stamp"] == "<DATE>"
    assert file["columns"]["volume"] == "<VOL>"
    assert (file["first_ts"], file["last_ts"]) == ("2026-01-05T14:30:00Z", "2026-01-05T14:35:00Z")
    assert file["first_bars"][0] == {
        "symbol": "AAPL.US", "ts": "2026-01-05T14:30:00Z", "open": 10.0, "high": 12.0, "low": 9.0, "close": 11.0,
        "volume": 500.0,
    }  # fmt: skip


def test_the_table_names_form_vendor_zone_and_the_first_bars(tmp_path: Path, typed: Typed) -> None:
    path, space = _sample(tmp_path, "baostock"), tmp_path / "w"
    code, out, _ = typed("ingest", str(path), "-w", str(space), "--dry-run", "--calendar", "XSHG")
    assert (code, space.exists()) == (0, False)
    for words in ("baostock", "bar ends", "Asia/Shanghai", "5-minute", "sh.600000", "nothing was stored"):
        assert words in out
    assert "2026-01-05 01:30Z" in out


def test_a_dry_run_foretells_the_counts_of_the_ingest(tmp_path: Path) -> None:
    path = tmp_path / "A.csv"
    lines = ["symbol,ts,open,high,low,close,volume", "A,2026-06-01T13:30:00Z,1,2,0.5,1,9"]
    lines += [lines[1], "A,2026-06-01T13:35:00Z,1,0.1,0.5,1,9", "A,2026-06-01T20:00:00Z,1,1,1,1,9"]
    lines += ["A,2026-06-02T13:30:00Z,1,1,1,1,9", "B,2026-06-01T13:30:00Z,,,,,"]
    path.write_text("\n".join(lines) + "\n")
    now = NOW.replace(month=6, day=2, hour=13, minute=31)
    told = dry_run(from_files(path), now=now)
    report = ingest(from_files(path), Workspace(tmp_path / "w"), now=now)
    (file,) = told.files
    rows = report.symbols
    assert file.counts == {
        "bars": sum(row.new for row in rows),
        "held_back": sum(row.held for row in rows),
        "duplicates": sum(row.duplicates for row in rows),
        "empty": sum(row.empty for row in rows),
    }
    assert file.counts == {"bars": 1, "held_back": 1, "duplicates": 1, "empty": 1}
    reasons = [bad.reason for row in rows for bad in row.quarantined]
    assert dict(file.quarantined) == {reason: reasons.count(reason) for reason in reasons}


def test_members_of_a_zip_are_read_each_and_a_bad_one_is_named(tmp_path: Path, typed: Typed) -> None:
    name, content = next((row[1], row[2]) for row in FILES if row[0] == "lean")
    with zipfile.ZipFile(tmp_path / "20260105_trade.zip", "w") as archive:
        archive.writestr(name, content)
        archive.writestr("broken.csv", "")
    code, out, _ = typed(
        "ingest", str(tmp_path / "20260105_trade.zip"), "-w", str(tmp_path / "w"), "--dry-run", "--format", "json"
    )
    good, bad = sorted(json.loads(out)["files"], key=lambda file: file["rows"], reverse=True)
    assert code == 3
    assert good["symbols"] == ["SPY"]
    assert good["vendor"] == "QuantConnect Lean"
    assert good["form"].startswith("CSV")
    assert bad["form"] is None
    assert "empty file" in next(iter(bad["failures"].values()))["message"]


@pytest.mark.parametrize("source", ["yahoo", "simulate"])
def test_a_dry_run_of_another_source_is_refused(tmp_path: Path, typed: Typed, source: str) -> None:
    code, out, err = typed("ingest", "--source", source, "--dry-run", "-w", str(tmp_path / "w"))
    assert (code, out) == (2, "")
    assert "source = " + source in err
    assert err.count("do this:") == 1
    assert not (tmp_path / "w").exists()


def test_a_file_without_a_bar_ends_in_1(tmp_path: Path, typed: Typed) -> None:
    path = tmp_path / "A.csv"
    path.write_text(
        "ts,open,high,low,close,volume\n" + "".join(f"2026-06-01T1{h}:00:00Z,1,1,1,1,1\n" for h in range(4, 9))
    )
    code, out, _ = typed("ingest", str(path), "-w", str(tmp_path / "w"), "--dry-run")
    assert code == 1
    assert "1-hour" in out


def test_a_name_with_terminal_codes_is_shown_not_obeyed(tmp_path: Path, typed: Typed) -> None:
    path = tmp_path / "A.csv"
    path.write_text("symbol,ts,open,high,low,close,volume\n\x1b[31mA,2026-06-01T13:30:00Z,1,1,1,1,1\n")
    _, out, _ = typed("ingest", str(path), "-w", str(tmp_path / "w"), "--dry-run")
    assert "\x1b" not in out
