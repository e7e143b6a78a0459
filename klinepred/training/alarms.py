"""In: records of the flight recorder. Out: alarms: the loss scale at its ends, gradients that vanish."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final

from klinepred.training.tracker import Tracker

log = logging.getLogger("klinepred.training")

FLOOR: Final = 1.0
"""A loss scale at or below this scales nothing up: fp16 has no range left for these gradients."""
CEILING: Final = 2.0**24
"""A loss scale that has grown to this met no overflow for long: the gradients are tiny, or there are none."""
VANISHED: Final = 0.99
"""Share of exact zeros among a layer's gradient entries."""
FLUSHED: Final = 0.5
"""Share of a layer's gradient entries that fp16 holds with fewer bits or not at all."""
RECORDS: Final = 3
"""Records in a row with such a share: one batch may be odd."""


class Alarms:
    """Says each alarm once, in the log and as the run's tag `alarms`.

    Records of skipped steps say nothing about vanishing: their gradients are not finite.
    """

    def __init__(self, tracker: Tracker) -> None:
        self.said: dict[str, int] = {}
        self._tracker = tracker
        self._in_a_row: Counter[str] = Counter()

    def look(self, values: Mapping[str, float], *, step: int, scaled: bool) -> None:
        """Take in the record of optimiser step `step`.

        Parameters
        ----------
        values
            Metrics as `FlightRecorder` names them.
        scaled
            Whether the GradScaler is on.
        """
        finite = not any(value for name, value in values.items() if name.startswith("gradient/nonfinite/"))
        found = _of_scale(values["amp/loss_scale"], finite=finite) if scaled else []
        if finite:
            found += self._lasting(_of_gradients(values, scaled=scaled))
        fresh = [text for text in found if text not in self.said]
        for text in fresh:
            self.said[text] = step
            log.warning("alarm at step %d: %s", step, text)
        if fresh:
            self._tracker.set_tags({"alarms": "; ".join(f"step {at}: {text}" for text, at in self.said.items())})

    def _lasting(self, found: list[str]) -> list[str]:
        self._in_a_row = Counter({text: self._in_a_row[text] + 1 for text in found})
        return [text for text, count in self._in_a_row.items() if count >= RECORDS]


def _of_scale(scale: float, *, finite: bool) -> list[str]:
    if scale <= FLOOR:
        return [
            f"the loss scale has fallen to {FLOOR:g} or below: fp16 has not the range, use --precision bf16 or fp32"
        ]
    if scale >= CEILING and finite:
        return [f"the loss scale has reached 2^24 = {CEILING:g}: gradients are tiny, or there are none"]
    return []


def _of_gradients(values: Mapping[str, float], *, scaled: bool) -> list[str]:
    out = []
    for name, zeros in values.items():
        family, _, layer = name.rpartition("/")
        if family != "gradient/zero_share":
            continue
        if zeros >= VANISHED:
            out.append(f"vanished gradients: nearly all of layer {layer} are exactly zero")
        elif scaled and zeros + values[f"gradient/subnormal_share/{layer}"] >= FLUSHED:
            out.append(
                f"most gradients of layer {layer} lie below fp16's normal range: raise train.init_scale, or use"
                " --precision bf16"
            )
    return out
