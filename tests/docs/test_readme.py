"""In: the README. Out: it opens with the two commands, its Python names are public, its paths and links are there."""

from __future__ import annotations

import ast
import re

import klinepred
from tests.docs.blocks import PAGES, REPO, blocks, links, name_of

README = REPO / "README.md"


def test_readme_opens_with_the_two_commands() -> None:
    first = blocks(README)[0].body
    assert re.findall(r"^make (\w+)", first, re.MULTILINE) == ["demo", "test"]


def test_every_call_of_the_readme_is_public() -> None:
    (body,) = (block.body for block in blocks(README) if block.kind == "python")
    used = {
        node.attr
        for node in ast.walk(ast.parse(body))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "kp"
    }
    assert used
    assert used <= set(klinepred.__all__)


def test_every_link_within_the_repository_leads_somewhere() -> None:
    for page in PAGES:
        for link in links(page):
            path = link.partition("#")[0]
            if path and "://" not in path:
                assert (page.parent / path).exists(), f"{page.name}: {link}"


def test_the_readme_links_every_page() -> None:
    linked = {link.partition("#")[0] for link in links(README)}
    pages = {name_of(page) for page in PAGES if page.parent.name == "docs"}
    assert pages - linked <= {"docs/index.md", "docs/quickstart.zh-CN.md"}
