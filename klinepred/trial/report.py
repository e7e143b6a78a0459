"""In: a trial and the advice drawn from it. Out: `TrialReport`: a table, values for JSON, numbers for MLflow."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from klinepred.settings import Pipeline
from klinepred.training.tracker import Metric
from klinepred.trial import rules
from klinepred.trial.measured import Measured, Trial, clean, plain_values
from klinepred.trial.rules import Advice

FACTS: Final = (
    "train_loss",
    "val_loss",
    "cosine",
    "error",
    "flushed",
    "diff_bps",
    "diff_p99_bps",
    "sign_flips",
    "step_ms",
    "speedup",
    "peak_mib",
)
LIMITS: Final = {
    "cosine": rules.COSINE,
    "flushed": rules.FLUSHED,
    "late_skipped": rules.LATE_SKIPPED,
    "least_scale": rules.LEAST_SCALE,
    "val_loss": rules.LOSS,
    "faster": rules.FASTER,
    "leaner": rules.LEANER,
}


@dataclass(frozen=True)
class TrialReport:
    """What a check found, and the MLflow run that keeps it ("" = none)."""

    trial: Trial
    advice: Advice
    pipeline: Pipeline
    run_id: str

    @property
    def passed(self) -> bool:
        """Whether there is a precision to train in."""
        return self.advice.precision != "none"

    def rows(self) -> pl.DataFrame:
        """One row a precision, fp32 first, then fp32 on another order of the same batches."""
        trial, base = self.trial, self.trial.base
        table = [self._row(one, base) for one in (base, *trial.others)]
        stick = trial.yardstick
        other = dict.fromkeys(table[0]) | {"precision": "fp32, other order", "steps": base.steps}
        other |= {"val_loss": stick.val_loss, "diff_bps": stick.diff_bps, "diff_p99_bps": stick.diff_p99_bps}
        other |= {"sign_flips": stick.sign_flips, "verdict": "yardstick"}
        kinds = {"precision": pl.String(), "steps": pl.Int64(), "skipped": pl.Int64(), "verdict": pl.String()}
        schema = {name: kinds.get(name, pl.Float64()) for name in table[0]}
        return pl.DataFrame([clean(row) for row in (*table, other)], schema=schema)

    def _row(self, one: Measured, base: Measured) -> dict[str, Any]:
        return {
            "precision": one.name,
            "steps": one.steps,
            "skipped": one.skipped if one.trained else None,
            **{name: getattr(one, name) for name in FACTS[:-3]},
            "step_ms": one.step_ms,
            "speedup": one.speedup,
            "speedup_low": one.speedup_low,
            "speedup_high": one.speedup_high,
            "peak_mib": one.peak_mib,
            "memory_ratio": one.peak_mib / base.peak_mib if one.peak_mib and base.peak_mib else None,
            "verdict": self.advice.verdicts[one.name],
        }

    def to_dict(self) -> dict[str, Any]:
        """Plain values; what was not measured is null."""
        trial, advice = self.trial, self.advice
        sequences, bars, features = trial.batch
        return {
            "passed": self.passed,
            "recommendation": advice.precision,
            "flags": advice.flags,
            "reason": advice.reason,
            "pipeline": self.pipeline.name,
            "preset": self.pipeline.model.preset,
            "device": trial.device,
            "parameters": trial.parameters,
            "steps": trial.base.steps,
            "batch": {"sequences": sequences, "bars": bars, "features": features},
            "rows_compared": trial.rows,
            "precisions": self.rows().rows(named=True),
            "pure_fp16": plain_values(trial.naive),
            "probes": clean(trial.probes),
            "losses": {name: clean(curve.losses) for name, curve in trial.curves.items()},
            "limits": LIMITS,
            "run_id": self.run_id,
        }

    def metrics(self) -> list[Metric]:
        """For MLflow: loss and loss scale by step, the numbers of each precision, the shares of pure fp16."""
        trial, now = self.trial, int(time.time() * 1000)
        out = []
        for name, curve in trial.curves.items():
            out += [Metric(f"{name}/loss", loss, step, now) for step, loss in enumerate(curve.losses, start=1)]
            if any(scale != 1.0 for scale in curve.scales):
                out += [Metric(f"{name}/loss_scale", scale, step, now) for step, scale in enumerate(curve.scales, 1)]
        for one in (trial.base, *trial.others):
            facts = {name: getattr(one, name) for name in FACTS}
            out += [Metric(f"{one.name}/{name}", v, one.steps, now) for name, v in facts.items() if v is not None]
        out += [Metric(f"yardstick/{n}", v, 0, now) for n, v in plain_values(trial.yardstick).items() if v is not None]
        out += [Metric(f"pure_fp16/{n}", v, 0, now) for n, v in plain_values(trial.naive).items() if v is not None]
        return out
