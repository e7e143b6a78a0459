"""In: pipeline files made to break their reader. Out: one message of moderate length each, soon."""

from __future__ import annotations

from pathlib import Path

import pytest

from klinepred.config import change_pipeline, load_pipeline
from klinepred.errors import ConfigError
from klinepred.settings import toml_file
from klinepred.settings.toml_file import has_long_key

HOSTILE = {
    "a key of many parts": b"a." * 100_000 + b"a = 1",
    "a key of few parts": b"a." * 900 + b"a = 1",
    "quoted parts": b'"a" . ' * 900 + b"a = 1",
    "a header of many parts": b"[" + b"a." * 50_000 + b"a]",
    "such a key in a table": b"train = {" + b"a." * 900 + b"a = 1}",
    "such a key where a value belongs": b"data." + b"symbols." * 900 + b"a = 1",
    "lists in lists": b"data = " + b"[" * 400 + b"]" * 400,
    "too many lists in lists": b"data = " + b"[" * 100_000,
    "tables in tables": b"data = " + b"{a=" * 300 + b"1" + b"}" * 300,
    "a number of many digits": b"[train]\nepochs = " + b"9" * 6_000,
    "many keys": b"\n".join(b"k%d = 1" % number for number in range(5_000)),
    "a long key": b"x" * 300_000 + b" = 1",
    "a long name": b'name = "' + b"x" * 300_000 + b'"',
    "quotes without end": b'x = "' + b'\\"' * 100_000,
    "blanks without end": b"x" + b" " * 300_000,
    "a large file": b"#" * 2_000_001,
    "zeros": b"\0" * 1_000,
}


@pytest.mark.timeout(30)  # of a hundred thousand parts tomllib would never be done
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_pipeline_is_one_message(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(HOSTILE[kind])
    with pytest.raises(ConfigError) as caught:
        load_pipeline(path)
    assert caught.value.expected
    assert caught.value.got
    assert caught.value.do
    assert len(str(caught.value)) < 1_500


@pytest.mark.parametrize("text", ["a." * 5_000 + "a=1", "train.epochs=" + "9" * 6_000, "data." + "a." * 100 + "a=1"])
def test_a_hostile_override_is_one_message(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_pipeline("demo", overrides=[text])
    assert len(caught.value.do) < 1_000


def test_a_nested_pipeline_from_elsewhere_is_refused_without_recursion() -> None:
    table: dict[str, object] = {}
    for _ in range(50_000):
        table = {"a": table}
    with pytest.raises(ConfigError, match="at most 32 levels"):
        change_pipeline(table, overrides=(), where="of a bundle")
    for _ in range(50_000):  # Python frees what is nested so deep by recursion
        table = table.pop("a")  # type: ignore[assignment]


def test_dots_in_texts_and_comments_are_no_keys(tmp_path: Path) -> None:
    symbols = ", ".join(f'"{number:06d}.SS"' for number in range(5_000))
    text = f"# {'.' * 80}\ndescription = '''{'a.' * 50}'''\n[data] # {'a.' * 50}\nsymbols = [{symbols}]\n"
    assert not has_long_key(text)
    (tmp_path / "x.toml").write_text(text)
    assert len(load_pipeline(tmp_path / "x.toml").data.symbols) == 5_000
    assert has_long_key('"a"."b" . c.' * 11 + "d = 1")


def test_the_limit_of_size_leaves_room_for_a_market_of_symbols(tmp_path: Path) -> None:
    symbols = ", ".join(f'"{number:06d}.SS"' for number in range(100_000))
    assert len(f"[data]\nsymbols = [{symbols}]\n") < toml_file.MOST_BYTES
