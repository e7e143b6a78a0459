"""In: pyproject.toml, the pins, the page of dependencies. Out: the three say the same of each package."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named(lines: list[str]) -> set[str]:
    return {plain(re.split(r"[^\w.-]", line)[0]) for line in lines}


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return {plain(name): version for name, _, version in (line.strip().partition("==") for line in lines) if version}


def reviewed() -> dict[str, str]:
    page = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\w-]+) \| ([\d.]+) \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)
    return {plain(name): version for name, version in rows}


def project() -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return table


def test_each_direct_dependency_was_reviewed_in_the_version_that_is_pinned() -> None:
    extras = project()["optional-dependencies"]
    for_users = [lines for extra, lines in extras.items() if extra not in ("test", "fuzz", "docs")]
    wanted = named(project()["dependencies"]).union(*map(named, for_users))
    assert set(reviewed()) == wanted
    assert reviewed() == {name: pins()[name] for name in wanted}


def test_everything_that_developers_install_is_pinned_too() -> None:
    every = set().union(*map(named, project()["optional-dependencies"].values()))
    assert every - set(pins()) == set()


def imported() -> set[str]:
    """First names of all modules that the product imports anywhere, those of Python itself left out."""
    found = set()
    for path in (ROOT / "klinepred").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names - {"klinepred"}


def test_whatever_is_imported_is_asked_for_by_name() -> None:
    """What only comes along with another package may stay away with its next version."""
    extras = project()["optional-dependencies"]
    asked = named(project()["dependencies"]).union(*(named(extras[one]) for one in ("exchange", "onnx", "ray", "s3")))
    homes = packages_distributions()
    assert {"torch", "mlflow", "ccxt", "exchange_calendars"} <= imported()
    assert {name for name in imported() if not asked & {plain(home) for home in homes.get(name, [])}} == set()
