"""In: stamps and symbols as typed. Out: UTC datetimes and symbols letter for letter, or one message."""

from __future__ import annotations

from pathlib import Path

import pytest

from klinepred.cli.options import parse_symbols, parse_ts
from klinepred.errors import UsageError


@pytest.mark.parametrize(
    ("text", "stamp"),
    [
        ("2025-08-28T22:00:00Z", "2025-08-28T22:00:00+00:00"),
        ("2025-08-28T22:00", "2025-08-28T22:00:00+00:00"),
        ("2025-08-28T22:00:00+02:00", "2025-08-28T20:00:00+00:00"),
        ("2025-08-28", "2025-08-28T00:00:00+00:00"),
        (" 2025-08-28 22:00:00 ", "2025-08-28T22:00:00+00:00"),
    ],
)
def test_stamp_without_offset_is_utc(text: str, stamp: str) -> None:
    parsed = parse_ts(text, option="--now")
    assert parsed is not None
    assert parsed.isoformat() == stamp


@pytest.mark.parametrize("text", ["", "now", "28.08.2025", "2025-02-30", "0001-01-01T00:00:00+05:00", "9" * 50])
def test_stamp_of_no_form_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError, match="--now"):
        parse_ts(text, option="--now")


def test_a_stamp_beyond_the_calendar_is_told_so() -> None:
    with pytest.raises(UsageError, match="--as-of") as caught:
        parse_ts("9999-12-31T23:59:59-12:00", option="--as-of")
    assert "from 1900 to 2200" in caught.value.expected


def test_symbols_come_from_words_and_files_letter_for_letter(tmp_path: Path) -> None:
    listing = tmp_path / "list"
    listing.write_bytes(b"\xef\xbb\xbfBRK-B # Berkshire\r\nNA, brk-b\n\n# none\nTRUE\n")
    assert parse_symbols(" A,B ,A") == ("A", "B")
    assert parse_symbols(f"@{listing}") == ("BRK-B", "NA", "brk-b", "TRUE")
    assert parse_symbols(None) == ()


def test_symbols_from_a_binary_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"\xff\xfe\0")
    with pytest.raises(UsageError, match="UTF-8"):
        parse_symbols(f"@{tmp_path / 'list'}")
