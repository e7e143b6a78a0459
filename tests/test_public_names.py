"""In: the package. Out: its public names can be had, and are those that type checkers see."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import klinepred


def test_every_public_name_can_be_had() -> None:
    for name in klinepred.__all__:
        assert getattr(klinepred, name) is not None
    assert dir(klinepred) == sorted(klinepred.__all__)


def test_type_checkers_and_python_see_the_same_names() -> None:
    tree = ast.parse(Path(klinepred.__file__).read_text())
    (typed,) = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imported = {
        alias.name: node.module for node in typed.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert imported == klinepred._HOMES
    assert set(klinepred.__all__) == {"__version__", *imported}


def test_unknown_public_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        getattr(klinepred, "trian")  # noqa: B009  # a type checker would refuse the plain form
