"""In: packed files, whole, damaged and hostile. Out: the bars in them, or a refusal; nothing left behind."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import polars as pl
import pyarrow as pa
import pytest

from klinepred.bars.delivery import Delivery
from klinepred.bars.ingest import ingest
from klinepred.bars.sources import archive, room, zipped
from klinepred.bars.sources.files import read_files
from klinepred.bars.store import scan_bars
from klinepred.errors import SourceError
from klinepred.paths import Workspace
from tests.bars.made import NOW, XNYS, from_files, utc
from tests.conftest import Typed

HEAD = "ts,open,high,low,close,volume\n"
LINES = "".join(f"2026-06-01T13:{minute}:00Z,1,2,0.5,1.5,100\n" for minute in (30, 35, 40))
CSV = (HEAD + LINES).encode()


def _zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def _zip(*members: tuple[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", method) as box:
        for name, data in members:
            box.writestr(name, data)
    return sink.getvalue()


@pytest.fixture(autouse=True)
def _scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Temporary files lie in a folder of this test, and after it there is none."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    yield
    assert list(scratch.iterdir()) == []


def _deliveries(*paths: Path, symbols: tuple[str, ...] = ()) -> list[Delivery]:
    return list(read_files(paths, clock=XNYS, tz=None, stamp="open", symbols=symbols))


def _file(tmp_path: Path, name: str, data: bytes) -> Path:
    path = tmp_path / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("AAPL_5m.csv.gz", gzip.compress),
        ("AAPL_5m.csv.bz2", bz2.compress),
        ("AAPL_5m.csv.xz", lzma.compress),
        ("AAPL_5m.csv.zst", _zstd),
        ("AAPL.gz", gzip.compress),
        ("AAPL_5m.csv", gzip.compress),
    ],
)
def test_a_packed_file_is_read_and_its_symbol_is_in_its_name(
    tmp_path: Path, name: str, pack: Callable[[bytes], bytes]
) -> None:
    (delivery,) = _deliveries(_file(tmp_path, name, pack(CSV)))
    assert delivery.frame.rows() == [("AAPL", utc(f"2026-06-01T13:{m}"), 1, 2, 0.5, 1.5, 100) for m in (30, 35, 40)]
    assert delivery.source.startswith(f"file {name} sha256:")


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, _zstd])
def test_streams_packed_one_after_another_are_read_to_the_end(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    data = pack(HEAD.encode()) + b"".join(pack(line.encode() + b"\n") for line in LINES.splitlines())
    (delivery,) = _deliveries(_file(tmp_path, "AAPL.csv.gz", data))
    assert delivery.frame.height == 3


@pytest.mark.parametrize("kind", ["parquet", "feather"])
def test_packed_binary_files_are_read(tmp_path: Path, kind: str) -> None:
    frame = pl.read_csv(CSV, try_parse_dates=True)
    sink = io.BytesIO()
    frame.write_parquet(sink) if kind == "parquet" else frame.write_ipc(sink)
    (delivery,) = _deliveries(_file(tmp_path, f"AAPL.{kind}.gz", gzip.compress(sink.getvalue())))
    assert delivery.frame["close"].to_list() == [1.5] * 3


def test_a_zip_of_three_symbols_is_three_deliveries_and_says_what_it_passes_over(tmp_path: Path) -> None:
    box = _zip(
        ("b/BBB_5m.csv", CSV),
        ("a/AAA_5m.csv", CSV),
        ("CCC.csv", CSV),
        ("b/", b""),
        ("readme.txt", "prices of three shares"),
        ("terms.pdf", b"%PDF"),
        ("AAA_5m.csv.CHECKSUM", "77ab"),
        ("__MACOSX/._CCC.csv", b"\x00\x05\x16\x07"),
        (".DS_Store", b"\x00"),
    )
    got = _deliveries(_file(tmp_path, "bars.zip", box))
    assert [row.frame["symbol"][0] for row in got] == ["CCC", "AAA", "BBB"]
    assert [row.source.split(" sha256:")[0] for row in got] == [
        "file bars.zip/CCC.csv",
        "file bars.zip/a/AAA_5m.csv",
        "file bars.zip/b/BBB_5m.csv",
    ]
    assert len({row.source.split("sha256:")[1] for row in got}) == 1
    said = [line for line in got[0].remarks if "passed over" in line]
    assert said == ["bars.zip: passed over, no files of bars: AAA_5m.csv.CHECKSUM, readme.txt, terms.pdf"]
    report = ingest(from_files(tmp_path / "bars.zip"), Workspace(tmp_path / "w"), now=NOW)
    assert [(row.symbol, row.new) for row in report.symbols] == [("AAA", 3), ("BBB", 3), ("CCC", 3)]


def test_a_zip_of_months_of_one_symbol_is_judged_as_a_whole(tmp_path: Path) -> None:
    later = (HEAD + LINES.replace("06-01", "06-02")).encode()
    path = _file(tmp_path, "x.zip", _zip(("AAA-5m-2026-06-02.csv", later), ("AAA-5m-2026-06-01.csv", CSV)))
    space = Workspace(tmp_path / "w")
    report = ingest(from_files(path), space, now=NOW)
    assert [(row.symbol, row.new) for row in report.symbols] == [("AAA", 6)]
    assert scan_bars(space).collect()["ts"].is_sorted()


def test_of_a_zip_the_member_that_cannot_be_read_is_named_and_the_others_read(tmp_path: Path, typed: Typed) -> None:
    inner = _zip(("x.csv", CSV))
    path = _file(tmp_path, "bars.zip", _zip(("AAA.csv", CSV), ("BBB.csv", b"what is this"), ("old.zip", inner)))
    got = {name: failure for row in _deliveries(path) for name, failure in row.failures.items()}
    assert set(got) == {"bars.zip/BBB.csv", "bars.zip/old.zip"}
    assert "archive in it (zip)" in got["bars.zip/old.zip"].message
    code, _, err = typed("ingest", str(path), "-w", str(tmp_path / "w"), "--now", "2026-07-01T00:00:00Z")
    assert code == 3
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "name", ["../../evil.csv", "/etc/evil.csv", "C:\\temp\\evil.csv", "..\\evil.csv", "a/../evil.csv"]
)
def test_the_names_in_a_zip_are_never_paths(tmp_path: Path, name: str) -> None:
    box = zipfile.ZipInfo("x")
    box.filename = name
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w") as out:
        out.writestr(box, CSV)
    before = sorted(path for path in tmp_path.parent.rglob("*evil*"))
    (delivery,) = _deliveries(_file(tmp_path, "AAA.zip", sink.getvalue()))
    assert delivery.frame["symbol"].unique().to_list() == ["evil"]
    assert sorted(path for path in tmp_path.parent.rglob("*evil*")) == before


def test_one_name_twice_in_a_zip_loses_neither(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="Duplicate name"):
        data = _zip(("AAA.csv", CSV), ("AAA.csv", (HEAD + LINES.replace("06-01", "06-02")).encode()))
    assert [row.frame["ts"][0] for row in _deliveries(_file(tmp_path, "b.zip", data))] == [
        utc("2026-06-01T13:30"),
        utc("2026-06-02T13:30"),
    ]


def test_names_in_gbk_and_utf8_are_told_from_those_of_old_zips(tmp_path: Path) -> None:
    for raw, want in (("平安银行".encode("gbk"), "平安银行"), ("Müller".encode(), "Müller"), (b"M\x81ller", "Müller")):
        data = _zip(("N" * len(raw) + ".csv", CSV)).replace(b"N" * len(raw), raw)
        (delivery,) = _deliveries(_file(tmp_path, "b.zip", data))
        assert delivery.frame["symbol"][0] == want


@pytest.mark.parametrize(
    ("name", "damage"),
    [(name, damage) for name in ("a.csv.gz", "a.csv.bz2", "a.csv.xz", "a.zip") for damage in ("cut", "torn")]
    + [("a.csv.zst", "cut")],  # zstd made without a checksum does not show that it is torn
)
def test_a_damaged_archive_is_one_message(tmp_path: Path, typed: Typed, name: str, damage: str) -> None:
    rows = HEAD + "".join(f"2026-06-01T13:30:00Z,{number},2,0.5,1.5,100\n" for number in range(3000))
    pack: dict[str, Callable[[bytes], bytes]] = {
        "gz": gzip.compress,
        "bz2": bz2.compress,
        "xz": lzma.compress,
        "zst": _zstd,
    }
    ending = name.rpartition(".")[2]
    data = _zip(("a.csv", rows)) if ending == "zip" else pack[ending](rows.encode())
    half = len(data) // 2
    path = _file(tmp_path, name, data[:half] if damage == "cut" else data[:half] + b"\xff" * 64 + data[half + 64 :])
    code, out, err = typed("ingest", str(path), "-w", str(tmp_path / "w"))
    assert (code, out) == (1, "")
    assert err.count("do this:  download or pack it again") == 1
    assert "Traceback" not in err


@pytest.mark.parametrize("pack", [gzip.compress, _zstd, lambda data: _zip(("a.csv", data))])
def test_a_bomb_is_refused_before_it_fills_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pack: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(archive, "RATIO_FROM", 1 << 20)
    path = _file(tmp_path, "bomb.zip", pack(b"1,2,3\n" * (1 << 20)))
    assert path.stat().st_size < 30_000
    with pytest.raises(SourceError, match="200 times its size"):
        _deliveries(path)


def test_a_zip_that_understates_its_sizes_is_still_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "RATIO_FROM", 1 << 20)
    data = bytearray(_zip(("a.csv", b"1,2,3\n" * (1 << 20))))
    spot = data.rfind(b"PK\x01\x02")
    struct.pack_into("<L", data, spot + 24, 100)
    with pytest.raises(SourceError):
        _deliveries(_file(tmp_path, "bomb.zip", bytes(data)))


@pytest.mark.parametrize(
    ("where", "limit", "value", "words"),
    [
        (zipped, "MAX_MEMBERS", 1, "at most 1 files"),
        (zipped, "MAX_LIST", 64, "list of members"),
        (archive, "MAX_BYTES", 200, "when unpacked"),
        (room, "RESERVE", 1 << 60, "room for an unpacked copy"),
    ],
)
def test_the_limits_of_an_archive_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: ModuleType, limit: str, value: int, words: str
) -> None:
    monkeypatch.setattr(where, limit, value)
    path = _file(tmp_path, "two.zip", _zip(("a.csv", CSV), ("b.csv", CSV)))
    with pytest.raises(SourceError) as refusal:
        _raise_first(path)
    assert words in refusal.value.expected


def _raise_first(path: Path) -> None:
    """Read; what one of several members failed with is raised too."""
    for delivery in _deliveries(path):
        for failure in delivery.failures.values():
            raise SourceError("failed", expected=failure.message, got="", do="")


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("a.zip", _zip(), "none"),
        ("a.zip", _zip(("readme.txt", "hello"), ("x.npy", b"1")), "only readme.txt, x.npy"),
        ("a.xlsx", _zip(("[Content_Types].xml", "x"), ("xl/sheet1.xml", "x")), "Excel"),
        ("a.csv.gz", gzip.compress(gzip.compress(CSV)), "gzip data inside"),
        ("a.csv.gz", gzip.compress(_zip(("a.csv", CSV))), "zip data inside"),
        ("a.tar.gz", gzip.compress(bytes(257) + b"ustar" + bytes(500)), "tar"),
        ("a.7z", b"7z\xbc\xaf\x27\x1c" + CSV, "7-Zip"),
        ("a.rar", b"Rar!" + CSV, "RAR"),
        ("a.xls", b"\xd0\xcf\x11\xe0" + CSV, "Excel"),
        ("a.h5", b"\x89HDF" + CSV, "HDF5"),
        ("a.csv", b"\n<!DOCTYPE html><html>", "web page"),
        ("a.csv.gz", gzip.compress(b""), "empty file"),
    ],
)
def test_what_holds_no_bars_is_refused_by_its_kind(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    with pytest.raises(SourceError) as refusal:
        _deliveries(_file(tmp_path, name, data))
    assert words in refusal.value.got


def test_a_password_is_asked_for_by_nobody(tmp_path: Path) -> None:
    data = bytearray(_zip(("a.csv", CSV)))
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.find(mark) + offset] |= 1
    with pytest.raises(SourceError) as refusal:
        _deliveries(_file(tmp_path, "a.zip", bytes(data)))
    assert refusal.value.got == "an encrypted one"


def test_an_unknown_way_of_packing_in_a_zip_is_one_message(tmp_path: Path) -> None:
    data = bytearray(_zip(("a.csv", CSV)))
    for mark, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        data[data.find(mark) + offset] = 97
    with pytest.raises(SourceError) as refusal:
        _deliveries(_file(tmp_path, "a.zip", bytes(data)))
    assert "compression method" in refusal.value.got


def test_an_ingest_that_stops_in_the_middle_leaves_no_copy(tmp_path: Path) -> None:
    path = _file(tmp_path, "bars.zip", _zip(("AAA.csv", CSV), ("BBB.csv", CSV)))
    deliveries = read_files([path], clock=XNYS, tz=None, stamp="open", symbols=())
    next(deliveries)
    deliveries.close()  # type: ignore[attr-defined]
