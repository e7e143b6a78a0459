"""In: docs/security.md. Out: every test it names is there, and every test of security is named."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/security.md").read_text(encoding="utf-8")


def test_every_test_that_a_claim_names_exists() -> None:
    named = set(re.findall(r"`(tests/[\w/]+\.py)`", TEXT))
    assert len(named) > 20
    assert sorted(name for name in named if "def test_" not in (ROOT / name).read_text(encoding="utf-8")) == []


def test_every_test_of_security_is_named() -> None:
    own = {f"tests/security/{path.name}" for path in (ROOT / "tests/security").glob("test_*.py")}
    assert sorted(name for name in own - {f"tests/security/{Path(__file__).name}"} if name not in TEXT) == []
