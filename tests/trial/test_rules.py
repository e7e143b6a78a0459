"""In: made measurements. Out: the recommendation that follows from each, and its words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from klinepred.trial.measured import Measured, Yardstick
from klinepred.trial.rules import PARITY, PROBED, Advice, advise, judge

NAN = float("nan")
STICK = Yardstick(val_loss=1.0, diff_bps=0.05, diff_p99_bps=0.2, sign_flips=0.1)
BASE = Measured(
    "fp32", 30, train_loss=1.0, val_loss=1.0, cosine=1.0, error=0.0, flushed=0.0, diff_bps=0.0, step_ms=100.0,
    speedup=1.0, speedup_low=1.0, speedup_high=1.0, peak_mib=1000.0, scale=1.0,
)  # fmt: skip
GOOD = replace(
    BASE, name="fp16", cosine=0.9999, diff_bps=0.01, speedup=2.0, speedup_low=1.9, speedup_high=2.1, peak_mib=600.0
)
SLOW = replace(GOOD, speedup=0.7, speedup_low=0.65, speedup_high=0.75)
BF16 = replace(GOOD, name="bf16")


def advice(*others: Measured, base: Measured = BASE, amp: str = "fp16") -> Advice:
    return advise(base, others, yardstick=STICK, amp=amp)


@pytest.mark.parametrize(
    ("others", "precision", "flags", "words"),
    [
        ((GOOD,), "fp16", "--amp", "2.00 times as fast as fp32 with 0.60 of its memory"),
        ((GOOD, replace(BF16, speedup=2.5)), "bf16", "--precision bf16", "2.50 times as fast"),
        ((GOOD, replace(BF16, name="tf32", speedup=2.5)), "tf32", "--set train.tf32=true", "tf32 is 2.50 times"),
        ((replace(GOOD, cosine=0.9), BF16), "bf16", "--precision bf16", "fp16: gradients point elsewhere"),
        ((SLOW,), "fp16", "", "AMP is not faster here: fp16 is 0.70 times"),
        ((replace(GOOD, speedup=1.04, peak_mib=990.0),), "fp32", "", "AMP is not faster here"),
        ((replace(GOOD, speedup=1.5, speedup_low=0.8, peak_mib=None),), "fp32", "", "no difference that could be"),
        ((replace(GOOD, speedup=1.0, speedup_low=0.9, peak_mib=None),), "fp32", "", "(0.90 to 2.10"),
        ((replace(GOOD, speedup=1.0, speedup_low=0.9, peak_mib=900.0),), "fp16", "--amp", "0.90 of its memory"),
        ((replace(GOOD, speedup=0.94, speedup_low=0.9, peak_mib=100.0),), "fp32", "", "AMP is not faster here"),
        ((replace(GOOD, fault="step 3: norm nan"),), "fp32", "", "unstable: step 3: norm nan"),
        ((Measured("fp16", 0, cosine=1.0, flushed=0.0, scale=65536.0),), "fp32", "", "nothing else was trained"),
    ],
)
def test_the_recommendation_follows_from_the_measurements(
    others: tuple[Measured, ...], precision: str, flags: str, words: str
) -> None:
    got = advice(*others)
    want = "fp32" if precision == "fp16" and not flags else precision
    assert (got.precision, got.flags) == (want, flags)
    assert words in got.reason


def test_on_a_device_where_amp_means_bf16_the_flag_is_amp() -> None:
    assert advice(BF16, amp="bf16").flags == "--amp"


@pytest.mark.parametrize("base", [replace(BASE, fault="step 2: norm inf"), replace(BASE, val_loss=NAN)])
def test_where_fp32_itself_cannot_be_trained_nothing_is_recommended(base: Measured) -> None:
    got = advice(GOOD, base=base)
    assert got.precision == "none"
    assert got.reason.startswith("unstable: fp32 itself")
    assert got.passed == ()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, PARITY),
        ({"fault": "step 1: norm inf"}, "unstable: step 1"),
        ({"late_skipped": 0.1}, PARITY),
        ({"late_skipped": 0.11}, "unstable: 11% of the later steps"),
        ({"scale": 1.0}, PARITY),
        ({"scale": 0.5}, "unstable: the loss scale fell to 0.5"),
        ({"cosine": 0.99}, PARITY),
        ({"cosine": 0.9899}, "gradients point elsewhere: cosine with fp32 0.9899"),
        ({"cosine": NAN}, "gradients point elsewhere"),
        ({"flushed": 0.01}, PARITY),
        ({"flushed": 0.02}, "2.0% of the gradient entries vanished"),
        ({"steps": 0}, PROBED),
        ({"val_loss": NAN}, "unstable: the loss is not finite"),
        ({"val_loss": 1.0009}, PARITY),
        ({"val_loss": 0.5}, PARITY),
        ({"val_loss": 1.0011}, "validation loss is 0.11% worse"),
        ({"diff_bps": 0.05}, PARITY),
        ({"diff_bps": 0.0501}, "more than another order of the batches makes"),
        ({"diff_bps": NAN}, "predictions are nan bps off"),
    ],
)
def test_each_limit_of_parity_has_two_sides(change: dict[str, float], words: str) -> None:
    assert words in judge(replace(GOOD, **change), base=BASE, yardstick=STICK)  # type: ignore[arg-type]


def test_what_has_passed_is_what_is_in_parity() -> None:
    probed = Measured("fp16", 0, cosine=1.0, flushed=0.0, scale=65536.0)
    got = advice(probed, BF16)
    assert got.verdicts == {"fp32": PARITY, "fp16": PROBED, "bf16": PARITY}
    assert got.passed == ("fp32", "bf16")
