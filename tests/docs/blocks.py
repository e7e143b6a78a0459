"""In: a page in Markdown. Out: its code blocks, headings and links, in order; the commands of a block of shell."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

REPO = Path(__file__).parents[2]
PAGES = (
    *(REPO / name for name in ("README.md", "README.zh-CN.md", "CONTRIBUTING.md")),
    *sorted((REPO / "docs").glob("*.md")),
)
MARKDOWN = MarkdownIt("commonmark").enable("table")


@dataclass(frozen=True)
class Block:
    """A code block: its language ("" for an indented one), its text, the line it begins on."""

    page: str
    line: int
    kind: str
    body: str


def name_of(page: Path) -> str:
    """`docs/ingest.md`."""
    return page.relative_to(REPO).as_posix()


def blocks(page: Path) -> list[Block]:
    """The code blocks of a page."""
    found = []
    for token in _tokens(page):
        if token.type in ("fence", "code_block"):
            kind = token.info.split(" ")[0] if token.type == "fence" else ""
            found.append(Block(name_of(page), (token.map or [0])[0] + 1, kind, token.content))
    return found


def headings(page: Path) -> list[str]:
    """Levels of the headings: h1, h2, h2 …"""
    return [token.tag for token in _tokens(page) if token.type == "heading_open"]


def links(page: Path) -> list[str]:
    """What the links and pictures of a page point to."""
    inline = [child for token in _tokens(page) for child in token.children or ()]
    return [str(child.attrs.get("href") or child.attrs.get("src")) for child in inline if child.type in _POINTING]


_POINTING = ("link_open", "image")


def tables(page: Path) -> list[int]:
    """Rows of each table, its head included."""
    found: list[int] = []
    for token in _tokens(page):
        if token.type == "table_open":
            found.append(0)
        found[-1:] = [found[-1] + (token.type == "tr_open")] if found else []
    return found


def code_of(block: Block) -> str:
    """What is run of a block: without comments, which may be in another language."""
    mark = "  //" if block.kind == "json" else r"(^|\s)#"
    return "\n".join(re.split(mark, line)[0].rstrip() for line in block.body.splitlines())


def commands(block: Block) -> list[str]:
    """The commands of a block of shell, one by one: comments off, `a && b` taken apart."""
    lines = (shlex.join(shlex.split(line, comments=True)) if "$(" not in line else line for line in _joined(block.body))
    return [part.strip() for line in lines for part in re.split(r"\s+'&&'\s+|\s+&&\s+", line) if part.strip()]


def _joined(body: str) -> list[str]:
    return body.replace("\\\n", " ").splitlines()


def _tokens(page: Path) -> list[Token]:
    return MARKDOWN.parse(page.read_text(encoding="utf-8"))
