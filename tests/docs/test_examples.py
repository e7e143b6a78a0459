"""In: the help of every command. Out: its example works: it is run, or parsed where that is listed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from klinepred.cli import root
from tests.cli.test_main import EVERY
from tests.conftest import Typed
from tests.docs.carry import carry_out
from tests.docs.space import Prepared

pytestmark = pytest.mark.timeout(900)  # two models are trained first


def examples() -> Iterator[tuple[str, str]]:
    """Commands and the lines of their examples, what is said beside them off."""
    for name, command in {"": root, **EVERY}.items():
        for line in re.findall(r"klinepred [^\n]*", command.epilog or ""):
            yield name, re.split(r"\s{2,}", line)[0]


@pytest.mark.parametrize(("name", "line"), list(examples()), ids=lambda text: text or "klinepred")
def test_the_example_of_every_help_works(name: str, line: str, prepared: Prepared, typed: Typed) -> None:
    carry_out(line, prepared)


@pytest.mark.parametrize("name", ["", *EVERY])
def test_every_help_ends_with_its_example_on_a_line_of_its_own(name: str, typed: Typed) -> None:
    code, out, _ = typed(*name.split(), "--help")
    assert code == 0
    lines = {line for of, line in examples() if of == name}
    assert lines
    tail = out[out.rindex("Example") :]
    assert all(line in tail for line in lines)
