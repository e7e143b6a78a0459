"""In: the steps of a run. Out: the AMP flight record, handed to the tracker in batches."""

from __future__ import annotations

import re
import resource
import sys
import time

import torch
from torch import nn

from klinepred.settings import TrainSettings
from klinepred.training.state import Counters
from klinepred.training.step import StepResult
from klinepred.training.tracker import Metric, Tracker

BATCH = 800
"""Metrics handed over at once at most (MLflow takes 1000)."""
HOLD_S = 10.0
"""Seconds that metrics wait for company at most."""


class FlightRecorder:
    """Every `train.log_every` steps: loss, scale, skipped steps, gradients, speed, memory.

    Gradients are looked at between `unscale_` and clipping, each layer on its own: how many entries are not finite,
    and which share is exactly zero (in fp16 the sign that gradients were flushed away).

    Attributes
    ----------
    seconds
        Time spent in here since the last `flush`, the tracker's included.
    """

    def __init__(self, tracker: Tracker, network: nn.Module, *, train: TrainSettings, device: torch.device) -> None:
        self.seconds = 0.0
        self._tracker = tracker
        self._every = train.log_every
        self._device = device
        self._waiting: list[Metric] = []
        self._since = time.monotonic()
        self._layers: dict[str, list[nn.Parameter]] = {}
        for name, weight in network.named_parameters():
            self._layers.setdefault(layer_of(name), []).append(weight)
        self._seen: dict[str, float] = {}
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)

    def due(self, tried: int) -> bool:
        """Whether step number `tried` (from 1) is recorded: the first, then every `log_every`th."""
        return tried == 1 or tried % self._every == 0

    @torch.no_grad()
    def watch(self, _network: nn.Module) -> None:
        """Look at the unscaled gradients; `take_step` calls this before it clips."""
        start = time.perf_counter()
        counts = []
        for weights in self._layers.values():
            gradients = [weight.grad for weight in weights if weight.grad is not None]
            zeros = torch.stack([(gradient == 0).sum() for gradient in gradients]).sum()
            finite = torch.stack([gradient.isfinite().sum() for gradient in gradients]).sum()
            counts.append(torch.stack([zeros, finite]))
        table = torch.stack(counts).tolist()
        for (name, weights), (zeros_n, finite_n) in zip(self._layers.items(), table, strict=True):
            size = sum(weight.numel() for weight in weights)
            self._seen[f"gradient/zero_share/{name}"] = zeros_n / size
            self._seen[f"gradient/nonfinite/{name}"] = float(size - finite_n)
        self.seconds += time.perf_counter() - start

    def record(
        self, result: StepResult, counters: Counters, *, network: nn.Module, lr: float, bars_per_s: float
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
            "speed/labelled_bars_per_s": bars_per_s,
            "memory/peak_mib": peak_mib(self._device),
            **self._seen,
        }
        now = int(time.time() * 1000)
        self._waiting += [Metric(name, value, counters.tried, now) for name, value in values.items()]
        if len(self._waiting) >= BATCH - len(values) or time.monotonic() - self._since > HOLD_S:
            self.flush()
        self.seconds += time.perf_counter() - start

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
