"""In: evidence. Out: the rules of docs/verdict.md, one by one, and how often they are wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from klinepred.evaluation.rules import Evidence, decide
from klinepred.evaluation.significance import Estimate
from klinepred.evaluation.verdict import judge
from klinepred.settings import EvaluateSettings
from tests.evaluation.samples import panel

QUICK = EvaluateSettings(bootstrap=200)


def _evidence(ic: float, se: float, *, sessions: int = 20, labels: int = 5000) -> Evidence:
    return Evidence(labels=labels, sessions=sessions, ic=Estimate(ic, se, sessions))


@pytest.mark.parametrize(
    ("evidence", "word"),
    [
        (_evidence(0.03, 0.01), "EDGE"),
        (_evidence(0.01, 0.01), "NO EDGE"),
        (_evidence(-0.05, 0.01), "NO EDGE"),
        (_evidence(0.01, 0.06), "NOT ENOUGH DATA"),
        (_evidence(0.14, 0.06), "EDGE"),
        (_evidence(0.03, 0.01, sessions=9), "NOT ENOUGH DATA"),
        (_evidence(0.03, 0.01, labels=999), "NOT ENOUGH DATA"),
        (_evidence(0.16, 0.05), "SUSPICIOUSLY GOOD"),
        (_evidence(0.16, 0.05, sessions=9), "NOT ENOUGH DATA"),
        (_evidence(0.9, 0.01, sessions=4), "SUSPICIOUSLY GOOD"),
        (_evidence(float("nan"), float("nan")), "NOT ENOUGH DATA"),
        (replace(_evidence(float("nan"), float("nan")), constant=True), "NO EDGE"),
        (replace(_evidence(0.01, 0.01), by_kind={"across-break": Estimate(0.5, 0.05, 20)}), "SUSPICIOUSLY GOOD"),
        (replace(_evidence(0.01, 0.01), by_kind={"across-break": Estimate(0.2, 0.1, 20)}), "NO EDGE"),
        # t = 3 with 19 degrees of freedom: p = 0.0037; the best of 6 looks needs 0.0042, of 7 looks 0.0036
        (replace(_evidence(0.03, 0.01), looks=6), "EDGE"),
        (replace(_evidence(0.03, 0.01), looks=7), "NO EDGE"),
        # with an error of 0.023 one look shows 0.079, two hundred show 0.124: what was enough data is not any more
        (replace(_evidence(0.03, 0.023), looks=1), "NO EDGE"),
        (replace(_evidence(0.03, 0.023), looks=200), "NOT ENOUGH DATA"),
        (replace(_evidence(0.03, 0.01), leaks="1 of 108 checks failed"), "SUSPICIOUSLY GOOD"),
        (replace(_evidence(0.0, 0.01, sessions=3), leaks="1 of 108 checks failed"), "SUSPICIOUSLY GOOD"),
        (Evidence(labels=0, sessions=0, ic=Estimate(float("nan"), float("nan"), 0)), "NOT ENOUGH DATA"),
    ],
)
def test_each_rule_gives_its_word(evidence: Evidence, word: str) -> None:
    verdict, reason = decide(evidence)
    assert verdict == word
    assert reason
    assert "nan" not in reason


@pytest.mark.parametrize("relative", [True, False], ids=["relative", "raw"])
def test_noise_is_called_an_edge_at_most_five_times_in_a_hundred(relative: bool) -> None:
    words = Counter(judge(panel(seed, relative=relative), settings=QUICK).verdict for seed in range(100))
    assert words["EDGE"] + words["SUSPICIOUSLY GOOD"] <= 5, words


@pytest.mark.parametrize("relative", [True, False], ids=["relative", "raw"])
def test_twice_the_detectable_signal_is_found_nine_times_in_ten(relative: bool) -> None:
    detectable = float(np.median([judge(panel(s, relative=relative), settings=QUICK).ic.detectable for s in range(20)]))
    found = [
        judge(panel(1000 + s, ic=min(2 * detectable, 0.14), relative=relative, bars=20), settings=QUICK)
        for s in range(50)
    ]
    words = Counter(evaluation.verdict for evaluation in found)
    assert words["EDGE"] + words["SUSPICIOUSLY GOOD"] >= 45, words


def test_the_reported_ic_lies_within_two_errors_of_the_true_one() -> None:
    found = [judge(panel(s, ic=0.06), settings=QUICK).ic for s in range(200)]
    inside = np.mean([abs(ic.value - 0.06) <= 2 * ic.se for ic in found])
    assert 0.91 <= inside <= 0.985


def test_the_answer_is_suspicious() -> None:
    sample = panel(1)
    leaked = sample.with_forecast(sample.y_M + np.random.default_rng(0).standard_normal(sample.rows))
    assert judge(leaked, settings=QUICK).verdict == "SUSPICIOUSLY GOOD"


def test_an_answer_leaked_across_breaks_alone_is_suspicious() -> None:
    sample = panel(2, sessions=40)
    pred = np.where(sample.kind_M == 1, sample.y_M, sample.pred_M)
    assert judge(sample.with_forecast(pred), settings=QUICK).verdict == "SUSPICIOUSLY GOOD"
