"""In: the steps of a run. Out: the AMP flight record, handed to the tracker in batches."""

from __future__ import annotations

import logging
import re
import resource
import sys
import time

import torch
from torch import nn

from klinepred.errors import TrainingError
from klinepred.settings import TrainSettings
from klinepred.training.alarms import Alarms
from klinepred.training.pace import Pace
from klinepred.training.state import Counters
from klinepred.training.step import StepResult
from klinepred.training.tracker import Metric, Tracker

log = logging.getLogger("klinepred.training")

BATCH = 800
"""Metrics handed over at once at most (MLflow takes 1000)."""
HOLD_S = 10.0
"""Seconds that metrics wait for company at most."""
NORMAL = 2.0**-14
"""Least positive number that fp16 holds with all its bits."""


class FlightRecorder:
    """Every `train.log_every` steps: loss, scale, skipped steps, gradients, updates, speed, memory.

    Gradients are looked at between `unscale_` and clipping, each layer on its own:

    * `gradient/nonfinite`: how many entries are infinite or NaN;
    * `gradient/zero_share`: which share is exactly zero (in fp16 the sign that gradients were flushed away);
    * `gradient/subnormal_share`: which share is not zero, but at the loss scale below 2^-14, the least number that fp16
      holds with all its bits: 0 < |g| scale < 2^-14. Without a scaler the scale is 1: what fp16 would lose unscaled.

    What waits is handed over at the latest on leaving the `with` block, however it is left.

    `update/ratio` of a layer is |w after the step - w before| / |w before|; 0 for a skipped step.

    Attributes
    ----------
    seconds
        Time spent in here since the last `flush`, the tracker's included.
    """

    def __init__(self, tracker: Tracker, network: nn.Module, *, train: TrainSettings, device: torch.device) -> None:
        self.seconds = 0.0
        self._tracker = tracker
        self._alarms = Alarms(tracker)
        self._every = train.log_every
        self._device = device
        self._waiting: list[Metric] = []
        self._since = time.monotonic()
        self._layers: dict[str, list[nn.Parameter]] = {}
        for name, weight in network.named_parameters():
            self._layers.setdefault(layer_of(name), []).append(weight)
        self._before: list[torch.Tensor] = []
        self._seen: dict[str, float] = {}
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def __enter__(self) -> FlightRecorder:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.flush()
        except TrainingError as error:
            if kind is None:
                raise
            log.error("%s", error)  # noqa: TRY400  # the error that ended the run is the one to show

    def due(self, tried: int) -> bool:
        """Whether step number `tried` (from 1) is recorded: the first, then every `log_every`th."""
        return tried == 1 or tried % self._every == 0

    @torch.no_grad()
    def watch(self, _network: nn.Module, *, scaler: torch.amp.GradScaler) -> None:
        """Look at the unscaled gradients; `take_step` calls this before it clips."""
        start = time.perf_counter()
        least = NORMAL / scaler.get_scale()
        counts = []
        for weights in self._layers.values():
            sizes = [weight.grad.abs() for weight in weights if weight.grad is not None]
            table = [torch.stack([(size == 0).sum(), (size < least).sum(), (size < torch.inf).sum()]) for size in sizes]
            counts.append(torch.stack(table).sum(0))
        self._before = [weight.detach().clone() for weights in self._layers.values() for weight in weights]
        for (name, weights), (zeros, small, finite) in zip(
            self._layers.items(), torch.stack(counts).tolist(), strict=True
        ):
            entries = sum(weight.numel() for weight in weights)
            self._seen[f"gradient/zero_share/{name}"] = zeros / entries
            self._seen[f"gradient/subnormal_share/{name}"] = (small - zeros) / entries
            self._seen[f"gradient/nonfinite/{name}"] = float(entries - finite)
        self.seconds += time.perf_counter() - start

    @torch.no_grad()
    def record(
        self, result: StepResult, counters: Counters, *, network: nn.Module, lr: float, pace: Pace, scaled: bool
    ) -> None:
        """Take down the step just taken; its clipped gradients are still there."""
        start = time.perf_counter()
        gradients = [weight.grad for weight in network.parameters() if weight.grad is not None]
        values = {
            "step/loss": result.loss,
            "step/lr": lr,
            "amp/loss_scale": result.scale,
            "amp/skipped_steps": float(counters.skipped),
            "gradient/norm": result.norm,
            "gradient/norm_clipped": float(nn.utils.get_total_norm(gradients)),
            "gradient/clipped_share": counters.clipped / counters.tried,
            "speed/labelled_bars_per_s": pace.bars_per_s,
            "speed/loader_share": pace.loader_share,
            "memory/peak_mib": peak_mib(self._device),
            **self._seen,
            **self._updates(),
        }
        now = int(time.time() * 1000)
        self._waiting += [Metric(name, value, counters.tried, now) for name, value in values.items()]
        self._alarms.look(values, step=counters.tried, scaled=scaled)
        if len(self._waiting) >= BATCH - len(values) or time.monotonic() - self._since > HOLD_S:
            self.flush()
        self.seconds += time.perf_counter() - start

    def _updates(self) -> dict[str, float]:
        names = [name for name, weights in self._layers.items() for _ in weights]
        after = [weight.detach() for weights in self._layers.values() for weight in weights]
        moved = torch._foreach_norm(torch._foreach_add(after, self._before, alpha=-1.0))
        pairs = torch.stack([torch.stack(moved), torch.stack(torch._foreach_norm(self._before))]).square().T.tolist()
        self._before = []
        sums: dict[str, tuple[float, float]] = {}
        for name, (move, size) in zip(names, pairs, strict=True):
            moves, sizes = sums.get(name, (0.0, 0.0))
            sums[name] = moves + move, sizes + size
        return {f"update/ratio/{name}": (move / size) ** 0.5 if size else 0.0 for name, (move, size) in sums.items()}

    def flush(self) -> None:
        """Hand over what waits."""
        self._since = time.monotonic()
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._tracker.log_metrics(waiting)


def layer_of(parameter: str) -> str:
    """The layer a parameter belongs to: `lstm.weight_hh_l2` -> `lstm.l2`, `head.0.bias` -> `head.0`."""
    return (
        re.sub(r"(?:weight|bias)_(?:ih|hh|hr)_(l\d+)", r"\1", parameter).removesuffix(".weight").removesuffix(".bias")
    )


def peak_mib(device: torch.device) -> float:
    """Highest memory so far in MiB: of torch on a CUDA device, of the whole process on the CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
