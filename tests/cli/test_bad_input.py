"""In: an empty workspace, command lines that cannot work there. Out: one message each, the right exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import Typed


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("predict",), 1, "train one first"),
        (("train",), 1, "klinepred ingest"),
        (("evaluate",), 1, "train"),
        (("train", "-p", "nothing"), 2, "demo"),
        (("train", "--set", "train.epoch=3"), 2, "train.epochs"),
        (("predict", "--now", "yesterday"), 2, "ISO 8601"),
        (("predict", "--end", "2026-01-01"), 2, "--start"),
        (("ingest", "nowhere.csv"), 2, "nowhere.csv"),
    ],
)
def test_bad_input_gives_one_message_and_the_right_exit_code(
    typed: Typed, tmp_path: Path, words: tuple[str, ...], code: int, said: str
) -> None:
    got, out, err = typed(*words, "-w", str(tmp_path))
    assert got == code
    assert out == ""
    assert said in err
    for part in ("expected:", "got:", "do this:"):
        assert err.count(part) == 1
    assert "Traceback" not in err
