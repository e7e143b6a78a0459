"""In: what was found out about one subject. Out: `Check`, and `Certificate`, all checks of an audit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

KINDS: Final = ("evidence", "feature", "target", "split", "scaler", "inputs", "sequence", "training", "prediction")
"""What a check can be about, in the order of a certificate."""


@dataclass(frozen=True)
class Check:
    """One claim about one subject.

    Attributes
    ----------
    name
        The feature, or the claim itself.
    kind
        One of `KINDS`; `leak` and `control` in a self-test.
    detail
        What was compared, and where it failed first.
    """

    name: str
    kind: str
    passed: bool
    detail: str


@dataclass(frozen=True)
class Certificate:
    """The outcome of an audit: passed when every check has."""

    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """No check failed, and there was one."""
        return bool(self.checks) and not self.failed

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that did not pass."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def word(self) -> str:
        """`passed` or `failed`."""
        return "passed" if self.passed else "failed"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "passed": self.passed,
            "checks": [
                {"name": check.name, "kind": check.kind, "passed": check.passed, "detail": check.detail}
                for check in self.checks
            ],
        }


def judge(name: str, kind: str, *, faults: list[str], detail: str) -> Check:
    """A check that passed where no fault was found; a failed one tells its first three faults."""
    if not faults:
        return Check(name, kind, True, detail)
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    return Check(name, kind, False, "; ".join(faults[:3]) + more)
