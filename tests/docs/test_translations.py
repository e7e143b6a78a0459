"""In: pages in two languages. Out: the Chinese ones have the code, headings, tables and links of the English ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import REPO, blocks, code_of, headings, links, tables

PAIRS = [("README.md", "README.zh-CN.md"), ("docs/quickstart.md", "docs/quickstart.zh-CN.md")]
OTHER = {"README.md": "README.zh-CN.md", "docs/quickstart.md": "docs/quickstart.zh-CN.md"}


@pytest.fixture(params=PAIRS, ids=lambda pair: pair[1])
def pair(request: pytest.FixtureRequest) -> tuple[Path, Path]:
    one, two = request.param
    return REPO / one, REPO / two


def test_the_same_code_in_the_same_order(pair: tuple[Path, Path]) -> None:
    one, two = ([(block.kind, code_of(block)) for block in blocks(page)] for page in pair)
    assert one == two


def test_the_same_headings_and_tables(pair: tuple[Path, Path]) -> None:
    assert headings(pair[0]) == headings(pair[1])
    assert tables(pair[0]) == tables(pair[1])


def test_the_same_links_but_to_the_other_language(pair: tuple[Path, Path]) -> None:
    def plain(page: Path) -> list[str]:
        return [link.replace(".zh-CN.md", ".md") for link in links(page)]

    assert plain(pair[0]) == plain(pair[1])


def test_the_same_names_of_code(pair: tuple[Path, Path]) -> None:
    def names(page: Path) -> set[str]:
        text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        return set(re.findall(r"`([^`\n]+)`", text))

    assert names(pair[0]) == names(pair[1])


def test_it_is_chinese(pair: tuple[Path, Path]) -> None:
    text = pair[1].read_text(encoding="utf-8")
    assert len(re.findall(r"[\u4e00-\u9fff]", text)) > 300
