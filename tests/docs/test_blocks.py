"""In: every page. Out: each code block works: commands and Python run, settings load, or a reason is listed."""

from __future__ import annotations

import io
import json
import re
import tomllib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from klinepred.cli import COMMANDS
from klinepred.config import parse_pipeline
from tests.docs.blocks import PAGES, REPO, Block, blocks, commands, name_of
from tests.docs.carry import carry_out, parse, stand_in
from tests.docs.decisions import CODES, KINDS, PARSED, PROGRAMS, REHEARSED
from tests.docs.space import RUN, Prepared, spy_csv
from tests.docs.test_examples import examples

pytestmark = pytest.mark.timeout(900)  # two models are trained first


def every(*kinds: str) -> Iterator[Block]:
    return (block for page in PAGES for block in blocks(page) if block.kind in kinds)


def check_other(line: str) -> None:
    """A command of another program."""
    words = line.split()
    while "=" in words[0] and words[0] not in PROGRAMS:  # a setting before the program
        words.pop(0)
    assert words[0] in PROGRAMS, f"nobody has decided about: {line}"
    if words[0] == "make":
        assert re.search(rf"^{words[1]}:", (REPO / "Makefile").read_text(), re.MULTILINE), line
    if words[0] == "torchrun":
        parse(["klinepred", *line.partition("-m klinepred ")[2].split()])
    if words[0].endswith("pytest"):
        assert all((REPO / path).exists() for path in words[1:] if not path.startswith("-")), line


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_block_of_shell_and_every_pipeline_of_a_page_works(
    page: Path, prepared: Prepared, capfd: pytest.CaptureFixture[str]
) -> None:
    spy_csv(prepared.root, pl.read_parquet(prepared.root / "bars.parquet"), ends=page.name.startswith("README"))
    for block in blocks(page):
        if block.kind == "toml" and block.body.startswith("name ="):
            table = tomllib.loads(block.body)
            parse_pipeline(table, where=f"{block.page}:{block.line}")
            (prepared.root / "pipelines" / f"{table['name']}.toml").write_text(block.body, encoding="utf-8")
        if block.kind == "sh":
            for line in commands(block):
                if line.startswith("klinepred "):
                    carry_out(line, prepared)
                else:
                    check_other(line)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("block", list(every("python")), ids=lambda block: f"{block.page}:{block.line}")
def test_every_block_of_python_runs(block: Block, prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    code = stand_in(block.body, prepared)
    if code in RUN:
        return
    RUN.add(code)

    def answer(request: urllib.request.Request) -> io.BytesIO:
        """What a server would say; tests/serving asks one."""
        asked = json.loads(bytes(request.data))  # type: ignore[arg-type]
        assert len(asked["dataframe_split"]["data"][0]) == len(asked["dataframe_split"]["columns"]) == 7
        return io.BytesIO(b'{"predictions": []}')

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    exec(compile(code, f"{block.page}:{block.line}", "exec"), {"__name__": "page"})  # noqa: S102  # the point of it


@pytest.mark.parametrize("block", list(every("toml", "json", "cron")), ids=lambda block: f"{block.page}:{block.line}")
def test_every_block_of_data_can_be_read(block: Block) -> None:
    if block.kind == "json":
        json.loads(block.body)
    elif block.kind == "cron":
        for line in block.body.splitlines():
            parse(line.split(maxsplit=5)[5].split())
    else:
        table = tomllib.loads(block.body)
        if "project" in table:
            assert list(table) == ["project"]
        else:
            plugins = table.get("features", {}).pop(
                "plugins", []
            )  # installed where tests/test_custom_page.py needs them
            parse_pipeline({"name": "shown", **table}, where=f"{block.page}:{block.line}")
            assert isinstance(plugins, list)


def test_every_block_names_a_language_that_is_decided_about() -> None:
    for page in PAGES:
        for block in blocks(page):
            assert block.kind in KINDS, f"{block.page}:{block.line}: a block of {block.kind or 'no language'}"
            if block.kind == "text":
                assert not re.search(r"^\W*(klinepred|make|pip|python) ", block.body, re.MULTILINE), block


def test_every_command_within_a_sentence_can_be_typed() -> None:
    for page in PAGES:
        for words in re.findall(r"(?<!`)`klinepred ([^`…]+)`(?!`)", page.read_text(encoding="utf-8")):
            name = words.split()[0].rstrip(".,")
            assert name in COMMANDS or name.startswith("--"), f"{name_of(page)}: klinepred {words}"


def test_no_decision_is_left_over() -> None:
    lines = [line for block in every("sh") for line in commands(block)]
    lines += [line for _, line in examples()]
    for table in (PARSED, REHEARSED, CODES):
        for pattern in table:
            assert any(re.match(pattern, line) for line in lines), f"nothing matches {pattern}"
    words = {word for line in lines for word in line.split()}
    assert set(PROGRAMS) <= words
    assert {block.kind for page in PAGES for block in blocks(page)} >= set(KINDS) - {"json"}
