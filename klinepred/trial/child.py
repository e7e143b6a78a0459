"""In: a network and a precision as JSON on stdin. Out: the peak memory of two training steps, as JSON on stdout."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path

import psutil
import torch

from klinepred.settings import ModelSettings, TrainSettings
from klinepred.trial.memory import take_steps
from klinepred.trial.race import precisions


def peak_bytes() -> int:
    """The highest resident memory of this very program.

    Linux carries `ru_maxrss` over from the process that started this one, so its own count is read instead.
    """
    status = Path("/proc/self/status")
    if status.is_file():
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def main() -> None:
    """Read, measure, print."""
    order = json.load(sys.stdin)
    torch.set_num_threads(order["threads"])
    device = torch.device("cpu")
    model, train = ModelSettings.model_validate(order["model"]), TrainSettings.model_validate(order["train"])
    precision = precisions(train, device)[order["precision"]]
    rows, steps, inputs = order["shape"]
    before = psutil.Process().memory_info().rss
    take_steps(
        model=model,
        train=train,
        precision=precision,
        shape=(rows, steps, inputs),
        last_only=order["last_only"],
        device=device,
    )
    print(json.dumps({"peak_mib": (peak_bytes() - before) / 2**20}))


if __name__ == "__main__":
    main()
