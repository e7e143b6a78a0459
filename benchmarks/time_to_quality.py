"""In: real bars (us101). Out: how much sooner the loop over sessions has the loss that loops over windows reach."""

# Shapes: K marks.

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

import klinepred as kp
from benchmarks.quality_ours import Mark, train_budget, train_whole
from benchmarks.quality_peers import Curve, piloted, race, settle
from benchmarks.quality_rows import Field, Grade, build_field, grade, hand_over
from klinepred.settings import Pipeline

PRECISIONS: Final = ("fp32", "bf16")
"""Of our loops; the first is the default pipeline's and the peers'."""
BATCHES: Final = (256, 1024, 4096)
PEERS: Final[Mapping[str, Sequence[dict[str, Any]]]] = {
    "pyqlib": ({"batch_size": 2000}, {"batch_size": 256}),
    "neuralforecast": ({"batch_size": 1, "windows_batch_size": 256}, {"batch_size": 4, "windows_batch_size": 256}),
}
"""What is tried of each peer; the better one counts. Their rate is 1e-3 by default, as ours."""
KEYS: Final = {"window": "window", "pyqlib": "qlib", "neuralforecast": "neuralforecast"}


@dataclass(frozen=True)
class Ours:
    """Our loop over sessions: where it stood, and its worth there on all scored rows and on those of the curve."""

    marks: tuple[Mark, ...]
    grades: tuple[Grade, ...]
    curve: tuple[float, ...]
    end: Grade

    def reached(self, loss: float, *, rank_ic: float = -1.0) -> int | None:
        """The first mark with a loss at or below, and a rank IC at or above; None where there is none."""
        good = (spot for spot, one in enumerate(self.grades) if one.loss <= loss and one.rank_ic >= rank_ic)
        return next(good, None)


def sessions(field: Field, run: Pipeline, precision: str, *, every: int) -> Ours:
    """The default pipeline's whole training, scored at each mark after the clock has stopped."""
    data = field.session
    train = run.train.model_copy(update={"precision": precision, "device": "cpu"})
    track = train_whole(data, run, train, every=every)
    grades, curve = [], []
    for spot in range(len(track.marks)):
        pred_V = track.predict(spot, data, field.score_N)
        grades.append(grade(field, pred_V, field.score_N))
        curve.append(grade(field, pred_V[field.curve_N[field.score_N]], field.curve_N).loss)
    epoch = track.marks[-1].steps // train.epochs
    ends = [one for one, mark in zip(grades, track.marks, strict=True) if mark.steps % epoch == 0]
    end = min(ends, key=lambda one: one.loss)  # the product keeps the best epoch
    last = track.marks[-1]
    print(
        f"sessions {precision}: {last.labels:,} labels in {last.steps:,} steps and {last.seconds:.0f} s"
        f" ({last.labels / last.seconds:,.0f}/s); best epoch's loss {end.loss:.5f}, rank IC {end.rank_ic:.4f}; by mark "
        + " ".join(f"{mark.seconds:.0f}s:{one.loss:.5f}" for mark, one in zip(track.marks, grades, strict=True)),
        flush=True,
    )
    return Ours(tuple(track.marks), tuple(grades), tuple(curve), end)


def windows(field: Field, run: Pipeline, precision: str, batch: int, *, budget: float, marks: int) -> Curve:
    """Our own window mode: same network, rate, optimiser and average, its schedule planned for the budget."""
    data = field.window
    train = run.train.model_copy(update={"precision": precision, "device": "cpu", "batch": batch})
    track = train_budget(data, run, train, budget=budget, marks=marks)

    def ask(spots: list[int], mask_N: np.ndarray = field.score_N) -> np.ndarray:
        return np.stack([track.predict(spot, data, mask_N) for spot in spots])

    return settle(
        f"window batch {batch} {precision}",
        track.marks,
        ask(list(range(len(track.marks))), field.curve_N),
        ask,
        field=field,
    )


def compare(name: str, rival: Curve, ours: Ours) -> dict[str, float | None]:
    """How much sooner ours has the rival's lowest loss; also with its rank IC; the least along its curve."""
    spot, both = ours.reached(rival.best.loss), ours.reached(rival.best.loss, rank_ic=rival.best.rank_ic)
    ratio = None if spot is None else rival.at.seconds / ours.marks[spot].seconds
    strict = None if both is None else rival.at.seconds / ours.marks[both].seconds
    along = _along(rival, ours)
    print(
        f"{name}: {rival.name} had loss {rival.best.loss:.5f} after {rival.at.seconds:.1f} s, ours "
        + ("never" if spot is None else f"after {ours.marks[spot].seconds:.1f} s ({ratio:.1f} times sooner)")
        + ("" if strict is None else f"; with its rank IC too {strict:.1f} times")
        + ("" if not along else f"; at each of its new lows {' '.join(f'{one:.1f}' for one in along)} times")
    )
    return {"speedup": ratio, "speedup_with_rank_ic": strict, "speedup_least": min(along) if along else None}


def _along(rival: Curve, ours: Ours) -> list[float]:
    """The ratio of times at each new low of the rival's curve, as far as ours gets there."""
    out, low = [], float("inf")
    for mark, loss in zip(rival.marks, rival.losses, strict=True):
        if loss >= low:
            continue
        low = loss
        spot = next((spot for spot, own in enumerate(ours.curve) if own <= loss), None)
        if spot is not None:
            out.append(mark.seconds / ours.marks[spot].seconds)
    return out


def main() -> None:
    """Measure and print; all of it takes about an hour on two cores, `--quick` a quarter of one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="25 symbols, 30 s each; ends within 15 minutes on two cores"
    )
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), metavar="DIR")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="of each loop over windows (default 300, 30)")
    parser.add_argument("--marks", type=int, help="points of each curve (default 10, 5)")
    parser.add_argument("--rows", type=int, help="most rows to score, 0 = all (default 40000, 15000)")
    parser.add_argument("--curve-rows", type=int, help="of these, for the points of a curve (default 4000, 2000)")
    parser.add_argument("--symbols", type=int, help="how many symbols, 0 = all (default 0, 25)")
    parser.add_argument(
        "--pilot",
        type=float,
        metavar="SECONDS",
        help="each setting of a rival first this long; the best gets the budget",
    )
    parser.add_argument("--batches", default=",".join(map(str, BATCHES)), help="of our loop over windows")
    parser.add_argument("--precisions", default="fp32,bf16", help="of our loops; fp32, the peers', always")
    parser.add_argument("--only", default="window,pyqlib,neuralforecast", help="rivals, with commas")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="A.B=C", help="of our pipeline")
    options = parser.parse_args()

    def given(name: str, full: float, quick: float) -> float:
        value = getattr(options, name)
        return float((quick if options.quick else full) if value is None else value)

    budget, marks = given("budget", 300, 30), int(given("marks", 10, 5))
    run = kp.load_pipeline("us-equities-5m", overrides=options.overrides)
    field = build_field(
        run,
        options.data,
        symbols=int(given("symbols", 0, 25)),
        rows=int(given("rows", 40_000, 15_000)),
        curve_rows=int(given("curve_rows", 4_000, 2_000)),
    )
    zero = grade(field, np.zeros(int(field.score_N.sum())), field.score_N)
    counts = {"train_sessions": field.session.counts()["train"], "train_windows": int(field.learned.sum())}
    print(f"{counts}, {int(field.score_N.sum()):,} scored rows; predicting 0 has loss {zero.loss:.5f}", flush=True)
    wanted = options.only.split(",")
    precisions = [one for one in PRECISIONS if one == PRECISIONS[0] or one in options.precisions.split(",")]
    ours = {precision: sessions(field, run, precision, every=2 if options.quick else 6) for precision in precisions}
    rivals: dict[str, list[Curve]] = {}
    half: Curve | None = None
    if "window" in wanted:

        def fp32(batches: Sequence[int], seconds: float) -> list[Curve]:
            return [windows(field, run, PRECISIONS[0], batch, budget=seconds, marks=marks) for batch in batches]

        ran = piloted([int(batch) for batch in options.batches.split(",")], fp32, pilot=options.pilot, budget=budget)
        rivals["window"] = [curve for _, curve in ran]
        if len(precisions) > 1:
            batch = min(ran, key=lambda one: one[1].best.loss)[0]
            half = windows(field, run, PRECISIONS[1], batch, budget=budget, marks=marks)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hand_over(field, folder)
        for peer, configurations in PEERS.items():
            if peer in wanted:
                heat = partial(race, peer, field=field, folder=folder, marks=marks)
                ran_peer = piloted(configurations, heat, pilot=options.pilot, budget=budget)
                rivals[peer] = [curve for _, curve in ran_peer]
    _report(
        ours,
        rivals,
        half,
        zero=zero,
        facts={
            **counts,
            "budget_s": budget,
            "pilot_s": options.pilot,
            "set": options.overrides,
            "rows": int(field.score_N.sum()),
        },
    )


def _report(
    ours: Mapping[str, Ours],
    rivals: Mapping[str, list[Curve]],
    half: Curve | None,
    *,
    zero: Grade,
    facts: Mapping[str, Any],
) -> None:
    best = {name: min(curves, key=lambda one: one.best.loss) for name, curves in rivals.items() if curves}
    out: dict[str, Any] = {}
    for precision, own in ours.items():
        prefix = "" if precision == PRECISIONS[0] else f"{precision}_"
        chosen = {**best, **({"window": half} if prefix and half else {})}
        for name, key in KEYS.items():
            found = compare(f"{precision} against {key}", chosen[name], own) if name in chosen else {}
            for what in ("speedup", "speedup_with_rank_ic", "speedup_least"):
                out[f"{prefix}{what}_vs_{key}"] = _round(found.get(what), 2)
        out |= {f"{prefix}{key}": value for key, value in _quality(own, list(chosen.values())).items()}
    out["never_below_zero"] = sorted(KEYS[name] for name, one in best.items() if one.best.loss >= zero.loss)
    print(json.dumps({**out, "zero_loss": round(zero.loss, 6), "precision": PRECISIONS[0], **facts}))


def _quality(own: Ours, rivals: Sequence[Curve]) -> dict[str, float | None]:
    """Rank IC, ours less the highest of theirs: where ours has the lowest loss of theirs, and at its best epoch."""
    if not rivals:
        return {"quality_delta": None, "quality_delta_end": None}
    theirs = max(one.best.rank_ic for one in rivals)
    spot = own.reached(min(one.best.loss for one in rivals))
    return {
        "quality_delta": None if spot is None else _round(own.grades[spot].rank_ic - theirs, 5),
        "quality_delta_end": _round(own.end.rank_ic - theirs, 5),
    }


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


if __name__ == "__main__":
    main()
