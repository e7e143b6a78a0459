"""In: text in other encodings, with other line ends and other beginnings. Out: the bars in it, or one refusal."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from klinepred.bars.delivery import Delivery
from klinepred.bars.ingest import ingest
from klinepred.bars.sources.files import read_files
from klinepred.errors import SourceError
from klinepred.paths import Workspace
from tests.bars.made import NOW, XNYS, from_files, utc
from tests.conftest import Typed

HEAD = "symbol,ts,open,high,low,close,volume\n"
LINES = [f"AAA,2026-06-01T13:{minute}:00Z,1,2,0.5,1.5,100\n" for minute in (30, 35, 40)]
TEXT = HEAD + "".join(LINES)
CHINESE = "时间,开盘,收盘,最高,最低,成交量\n" + "".join(
    f"2026-06-01 09:{minute}:00,1,1.5,2,0.5,100\n" for minute in (30, 35, 40)
)
GERMAN = "Datum;Eröffnung;Hoch;Tief;Schluss;Volumen\n" + "".join(
    f"01.06.2026 09:{minute};1,00;2,00;0,50;1,50;100\n" for minute in (30, 35, 40)
)


@pytest.fixture(autouse=True)
def _scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    yield
    assert list(scratch.iterdir()) == []


def _read(tmp_path: Path, data: bytes, name: str = "AAA_5m.csv") -> Delivery:
    path = tmp_path / name
    path.write_bytes(data)
    (delivery,) = read_files([path], clock=XNYS, tz=None, stamp="open", symbols=())
    return delivery


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (TEXT.replace(",", "\t").encode("utf-16"), "UTF-16"),
        (b"\xfe\xff" + TEXT.replace("\n", "\r\n").encode("utf-16-be"), "UTF-16"),
        (TEXT.encode("utf-16-le"), "UTF-16"),
        (TEXT.encode("utf-16-be"), "UTF-16"),
        (TEXT.encode("utf-32"), "UTF-32"),
        (TEXT.replace("\n", "\r").encode(), "CR alone"),
        (TEXT.replace("\n", "\r").encode("utf-16"), "CR alone"),
        (CHINESE.encode("gbk"), "GB18030 (GBK)"),
        (CHINESE.encode(), ""),
        (CHINESE.replace("\n", "\r\n").encode("gb18030"), "GB18030 (GBK)"),
        (GERMAN.encode("cp1252"), "Windows-1252"),
        (GERMAN.encode("cp1252").replace(b"\n", b"\r"), "CR alone"),
        (b"sep=;\r\n" + TEXT.replace(",", ";").encode(), "separated by ';'"),
        (b"SEP=,\n" + TEXT.encode(), "separated by ','"),
        (b"\xef\xbb\xbfsep=\t\n" + TEXT.replace(",", "\t").encode(), "separated by"),
        (b"# made by hand\n\n#\n" + TEXT.encode(), "2 lines of comment"),
        (b"\n\r\n" + TEXT.encode(), ""),
        (TEXT.replace("\n", "\n\n").encode() + b"\n  \n", ""),
        (b"# a table\n# " + TEXT.encode(), "1 lines of comment"),
        (TEXT.replace("\n", ",\n").replace("volume,", "volume").encode(), ""),
        (b"note," + TEXT.replace("AAA", '"a, b",AAA').encode(), ""),
        (b"note," + TEXT.replace("AAA", '"a\nb",AAA').encode(), ""),
    ],
)
def test_text_in_each_form_gives_the_same_bars_and_says_what_it_was(tmp_path: Path, data: bytes, said: str) -> None:
    got = _read(tmp_path, data)
    assert got.frame.rows() == [("AAA", utc(f"2026-06-01T13:{m}"), 1, 2, 0.5, 1.5, 100) for m in (30, 35, 40)]
    assert any(said in line for line in got.remarks) or not said
    assert got.rejects is None or got.rejects.is_empty()


@pytest.mark.parametrize(
    ("name", "codec", "said"),
    [
        ("Müller", "cp1252", "Windows-1252"),
        ("Société", "cp1252", "Windows-1252"),
        ("Weiß-Öl", "cp1252", "Windows-1252"),
        ("平安银行", "gbk", "GB18030"),
        ("万科Ａ", "gbk", "GB18030"),
        ("Müller", "utf-8", ""),
    ],
)
def test_symbols_with_letters_of_one_encoding_alone_are_read(tmp_path: Path, name: str, codec: str, said: str) -> None:
    got = _read(tmp_path, TEXT.replace("AAA", name).encode(codec))
    assert got.frame["symbol"].unique().to_list() == [name]
    assert any(said in line for line in got.remarks) or not said


def test_high_bytes_far_below_the_first_lines_are_seen(tmp_path: Path) -> None:
    many = "".join(LINES) * 2000
    got = _read(tmp_path, (HEAD + many + LINES[0].replace("AAA", "Süd")).encode("cp1252"))
    assert got.frame["symbol"].unique().sort().to_list() == ["AAA", "Süd"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (TEXT.replace("AAA", "ÄÐ").encode("cp1252"), "another encoding"),
        (TEXT.encode().replace(b"1.5", b"1\xff5"), "another encoding"),
        (CHINESE.encode("gbk") + b"\xff\xff,1,1,1,1,1\n", "GB18030 (GBK) to its end"),
        (TEXT.encode("utf-16")[:-1], "in UTF-16 to its end"),
        (TEXT.encode() + bytes(range(256)), "none of these"),
        (b"# nothing\n# here\n", "comment alone"),
        (b"1," * 40_000, "longer"),
        (b"\xff\xfe", "empty file"),
    ],
)
def test_text_that_does_not_show_what_it_is_is_refused(tmp_path: Path, typed: Typed, data: bytes, words: str) -> None:
    with pytest.raises(SourceError) as refusal:
        _read(tmp_path, data)
    assert words in str(refusal.value)
    code, out, err = typed("ingest", str(tmp_path / "AAA_5m.csv"), "-w", str(tmp_path / "w"))
    assert (code, out, err.count("do this:")) == (1, "", 1)


def _minutes(count: int) -> list[str]:
    """`count` rows of 7 fields and an eighth that is not used, 5 minutes apart, round the clock."""
    return [f"AAA,{1780320600 + 300 * row},1,2,0.5,1.5,{row},x\n" for row in range(count)]


@pytest.mark.parametrize(
    ("bad", "fields"),
    [
        ("AAA,1780320600,9,1,2,0.5,1.5,100,x\n", 9),  # one in front of the prices: they would move to the right
        ("AAA,1780320600,2,0.5,1.5,100,x\n", 7),  # the open is gone: they would move to the left
        ("AAA,1780320600\n", 2),
        ("Total: 300 rows\n", 1),
        ("# end\n", 1),
    ],
)
@pytest.mark.parametrize("spot", [0, 150, 300])
def test_a_few_lines_of_another_length_are_set_aside_and_move_no_value(
    tmp_path: Path, bad: str, fields: int, spot: int
) -> None:
    rows = _minutes(300)
    if spot == 0 and fields < 8:
        spot = 1  # a short first row is another matter: the header is then compared with it
    rows.insert(spot, bad)
    got = _read(tmp_path, ("symbol,ts,open,high,low,close,volume,note\n" + "".join(rows)).encode())
    assert got.frame["open"].unique().to_list() == [1.0]
    assert got.frame["volume"].to_list() == list(range(300))
    assert got.rejects is not None
    assert got.rejects["reason"].to_list() == [f"a row of {fields} fields, the header names 8"]
    assert got.rejects["symbol"].to_list() == ["AAA" if bad.startswith("AAA") else None]
    assert any(f"set aside: {spot + 2}" in line for line in got.remarks)


def test_a_long_and_a_short_line_do_not_make_up_for_each_other(tmp_path: Path) -> None:
    rows = _minutes(300)
    rows[10], rows[20] = rows[10].replace(",x", ",x,y"), rows[20].replace(",x", "")
    got = _read(tmp_path, ("symbol,ts,open,high,low,close,volume,note\n" + "".join(rows)).encode())
    assert got.frame.height == 298
    assert got.rejects is not None
    assert sorted(got.rejects["reason"]) == [f"a row of {n} fields, the header names 8" for n in (7, 9)]


def test_lines_set_aside_are_counted_under_the_symbol_of_the_file(tmp_path: Path) -> None:
    rows = [line.split(",", 1)[1] for line in _minutes(300)]
    rows[7] = "1780320600,1,2\n"
    path = tmp_path / "BBB_5m.csv"
    path.write_text("ts,open,high,low,close,volume,note\n" + "".join(rows))
    report = ingest(from_files(path, calendar="24/7"), Workspace(tmp_path / "w"), now=NOW)
    (row,) = report.symbols
    assert (row.symbol, row.received, row.new, len(row.quarantined)) == ("BBB", 300, 299, 1)
    assert row.quarantined[0].reason == "a row of 3 fields, the header names 7"


def test_a_line_cut_off_at_the_end_is_set_aside_even_in_a_short_file(tmp_path: Path) -> None:
    got = _read(tmp_path, (TEXT + "AAA,2026-06-01T13:45:00Z,1,2").encode())
    assert got.frame.height == 3
    assert got.rejects is not None
    assert got.rejects["reason"].to_list() == ["a row of 4 fields, the header names 7"]


@pytest.mark.parametrize(
    "rows",
    [
        [*_minutes(90), "AAA,1780320600,1,2,0.5,1.5,1\n"],
        [line.replace(",x", "") for line in _minutes(300)],
        [line.replace(",x", ",x,y") for line in _minutes(300)],
        [*_minutes(300), 'AAA,1,1,2,0.5,1.5,1,"x\n'],
    ],
)
def test_many_lines_of_another_length_are_refused(tmp_path: Path, rows: list[str]) -> None:
    with pytest.raises(SourceError, match="rows of 8 fields"):
        _read(tmp_path, ("symbol,ts,open,high,low,close,volume,note\n" + "".join(rows)).encode())


def test_two_header_levels_must_have_the_same_columns_for_each_ticker(tmp_path: Path) -> None:
    fields = "Price,Close,Close,High,High,Low,Low,Open,Open,Volume,Vol"
    row = "2026-06-01 14:30:00+00:00,11,21,12,22,9,19,10,20,5,7"
    with pytest.raises(SourceError, match="two header levels") as caught:
        _read(tmp_path, f"{fields}\nTicker,A,B,A,B,A,B,A,B,A,B\nDatetime,,,,,,,,,,\n{row}\n".encode())
    assert caught.value.got == "volume of A, vol of B"


def test_columns_of_one_name_never_shift_those_after_them(tmp_path: Path) -> None:
    head = "x,x (2),x,ts,open,high,low,close,volume\n"
    delivery = _read(tmp_path, (head + "7,8,9,2026-06-01T13:30:00Z,1,2,0.5,1.5,100\n" * 2).encode())
    assert delivery.frame.row(0)[2:] == (1.0, 2.0, 0.5, 1.5, 100.0)
