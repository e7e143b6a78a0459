"""In: the evidence of a test part. Out: one word and the reason for it; the rules are those of docs/verdict.md."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Literal

from klinepred.evaluation.significance import LEVEL, Estimate, level_of

Verdict = Literal["EDGE", "NO EDGE", "NOT ENOUGH DATA", "SUSPICIOUSLY GOOD"]

LEAST_SESSIONS: Final = 10
LEAST_LABELS: Final = 1000
PLAUSIBLE: Final = 0.10
"""A sample that could not show an IC of this size cannot say that there is none."""
CEILING: Final = 0.15
"""An IC beyond this is more than next-bar forecasts of 5-minute bars have honestly shown: look for a fault first."""
LEAST_SUSPECT: Final = 3
"""Sessions from which on an IC far beyond the ceiling is called suspicious, however few they are."""


@dataclass(frozen=True)
class Evidence:
    """What the verdict rests on.

    Attributes
    ----------
    labels, sessions
        Rows of the test part with a label, and the sessions they lie in.
    ic
        Over all test steps, against the return the network learned and that is traded on.
    by_kind
        The same for each kind of step alone, by its name.
    constant
        The forecasts are all equal.
    looks
        Models tried on the same test sessions, this one included.
    leaks
        The model's leak certificate failed: the checks that did, in words; empty = passed or none was made.
    """

    labels: int
    sessions: int
    ic: Estimate
    by_kind: dict[str, Estimate] = field(default_factory=dict)
    constant: bool = False
    looks: int = 1
    leaks: str = ""


def decide(evidence: Evidence) -> tuple[Verdict, str]:
    """The verdict and its reason in words (a clause without a full stop).

    In this order: `SUSPICIOUSLY GOOD` if the leak certificate failed, or the IC of all steps or of one kind of step is
    above 0.15 by the test; `NOT ENOUGH DATA` if sessions or labels are too few; `SUSPICIOUSLY GOOD` if the IC is more
    than 0.15 and above zero by the test; `EDGE` if it is above zero by the test, deflated for the number of looks; `NOT
    ENOUGH DATA` if even an IC of 0.10 could have gone unseen; `NO EDGE`. Every test is one-sided at 2.5 %.
    """
    if evidence.leaks:
        return "SUSPICIOUSLY GOOD", (
            f"the leak certificate of this model failed ({evidence.leaks}), so that no number here can be believed"
        )
    for name, part in {"all steps": evidence.ic, **evidence.by_kind}.items():
        if part.sessions >= LEAST_SUSPECT and part.above(CEILING):
            return "SUSPICIOUSLY GOOD", (
                f"an IC of {part.value:.3f} ± {part.se:.3f} ({name}) is more than {CEILING:g}, which 5-minute bars have"
                " not honestly shown; look for a leak and for bid-ask bounce first"
            )
    if evidence.sessions < LEAST_SESSIONS or evidence.labels < LEAST_LABELS:
        return "NOT ENOUGH DATA", (
            f"the test part has {evidence.labels:,} labels in {evidence.sessions} sessions, and a verdict needs"
            f" at least {LEAST_LABELS:,} in {LEAST_SESSIONS}"
        )
    if evidence.constant:
        return "NO EDGE", "the model forecasts the same for every bar"
    size = f"an IC of {evidence.ic.value:.3f} ± {evidence.ic.se:.3f} over {evidence.sessions} test sessions"
    chance = evidence.ic.p_above()
    many = (
        f", the best of {evidence.looks} looks needs p < {level_of(evidence.looks):.4f}" if evidence.looks > 1 else ""
    )
    if evidence.ic.above() and evidence.ic.value > CEILING:
        return "SUSPICIOUSLY GOOD", (
            f"{size} is more than {CEILING:g}, which 5-minute bars have not honestly shown; look for a leak and for"
            " bid-ask bounce first"
        )
    if evidence.ic.above(looks=evidence.looks):
        within = evidence.by_kind.get("within-session", evidence.ic)
        alone = f", but within sessions alone it is {within.value:.3f} ± {within.se:.3f} and not above zero"
        return "EDGE", f"{size} is above zero ({_p(chance)} one-sided{many}){'' if within.above() else alone}"
    detectable = evidence.ic.detectable_after(evidence.looks)
    if not detectable <= PLAUSIBLE:
        return "NOT ENOUGH DATA", (
            f"{size} is not above zero{many}, but this sample could not have shown one below {detectable:.3f}"
            if math.isfinite(detectable)
            else "the IC of this sample, or its error, is not defined"
        )
    return "NO EDGE", (
        f"{size} is not above zero at the {LEVEL:.1%} level ({_p(chance)} one-sided{many}); this sample would have"
        f" shown one of {detectable:.3f}"
    )


def _p(value: float) -> str:
    return "p < 0.0001" if value < 1e-4 else f"p = {value:.4f}"
