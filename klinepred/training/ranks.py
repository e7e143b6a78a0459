"""In: what `torchrun`, or whoever started several processes, has set up. Out: `Ranks`: what they share and agree on."""

# Shapes: N rows, O outputs of a network.

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

import numpy as np
import torch
from torch import distributed, nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous

from klinepred.engine.launched import check_launch, local_rank, restarts, world_size
from klinepred.errors import KlinepredError, TrainingError, UsageError
from klinepred.training.precision import choose_device

T = TypeVar("T")

PATIENCE: Final = timedelta(hours=2)
"""How long a process waits for the others: the first one audits and makes features while they do."""
JOB: Final = "KLINEPRED_JOB"
"""Environment variable with a name that the processes of one job share, and no job before had."""
NEEDED: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes that train one network together (PyTorch's DistributedDataParallel) this one is.

    Attributes
    ----------
    rank, world
        Number of this process, from 0, and how many there are. The first one alone records, saves and speaks.
    local
        Its number on its own machine: the GPU it takes.
    """

    rank: int = 0
    world: int = 1
    local: int = 0

    @property
    def first(self) -> bool:
        """Whether this process speaks for all."""
        return self.rank == 0

    @property
    def alone(self) -> bool:
        """Whether there is no other."""
        return self.world == 1

    def device(self, name: str) -> torch.device:
        """As `choose_device`; among several, "auto" and "cuda" are the card of this process's own number."""
        device = choose_device(name)
        if self.alone or device.type != "cuda" or device.index is not None:
            return device
        return choose_device(f"cuda:{self.local}")

    def spread(self, network: nn.Module, device: torch.device) -> nn.Module:
        """What to call in place of `network`, so that each process gets the mean of all gradients."""
        if self.alone:
            return network
        own = [device] if device.type == "cuda" else None
        return nn.parallel.DistributedDataParallel(network, device_ids=own)

    def sums(self, *values: float) -> tuple[float, ...]:
        """Each value summed over all processes, in float64."""
        if self.alone:
            return values
        total = torch.tensor(values, dtype=torch.float64)
        distributed.all_reduce(total)
        return tuple(total.tolist())

    def merged(self, part_NO: np.ndarray) -> np.ndarray:
        """Arrays [N, O] of which each process has filled some rows, the others NaN, as one; rows of nobody stay NaN."""
        if self.alone:
            return part_NO
        have_N = ~np.isnan(part_NO).all(axis=1)
        width = int(max(self._each(part_NO.shape[1])))
        whole_NO = torch.zeros(part_NO.shape[0], width + 1)
        whole_NO[torch.from_numpy(have_N), :-1] = torch.from_numpy(part_NO[have_N])
        whole_NO[:, -1] = torch.from_numpy(have_N.astype(np.float32))
        distributed.all_reduce(whole_NO)
        out_NO = whole_NO[:, :-1].numpy()
        out_NO[whole_NO[:, -1].numpy() == 0] = np.nan
        return out_NO

    def _each(self, value: int) -> list[int]:
        slots = torch.zeros(self.world, dtype=torch.int64)
        slots[self.rank] = value
        distributed.all_reduce(slots)
        return [int(slot) for slot in slots.tolist()]

    def told(self, value: Any) -> Any:
        """The first process's `value`, a JSON value, in every process."""
        if self.alone:
            return value
        text = json.dumps(value).encode() if self.first else b""
        size = self.sums(float(len(text)))[0]
        letters = torch.zeros(int(size), dtype=torch.uint8)
        if self.first:
            letters.copy_(torch.from_numpy(np.frombuffer(text, dtype=np.uint8).copy()))
        distributed.broadcast(letters, src=0)
        return json.loads(bytes(letters.tolist()))

    def first_then(self, work: Callable[[], T]) -> T:
        """`work` in the first process, then in the others, which find what it has left on the disk.

        Raises
        ------
        TrainingError
            In the others, where the first has failed.
        """
        if self.first:
            return self.first_only(work)  # type: ignore[return-value]
        self.first_only(work)
        return work()

    def first_only(self, work: Callable[[], T]) -> T | None:
        """`work` in the first process while the others wait; None in those. Raises as `first_then`."""
        if self.alone:
            return work()
        if not self.first:
            if not self.told(None):
                raise TrainingError(
                    f"process {self.rank} of {self.world}",
                    expected="the first process to get ready",
                    got="its failure, told in its own message",
                    do="mend that and start all processes again",
                )
            return None
        fine = False
        try:
            done = work()
            fine = True
        finally:
            self.told(fine)
        return done

    def same(self, what: str, value: str) -> None:
        """Make sure that `value` is the same in every process.

        Raises
        ------
        TrainingError
            It is not; in every process.
        """
        if self.alone:
            return
        wanted = self.told(value)
        if self.sums(float(value != wanted))[0]:
            raise TrainingError(
                f"{what} of process {self.rank} of {self.world}",
                expected=f"that of the first process, {wanted}",
                got=value if value != wanted else "the same here, another in some other process",
                do="give all processes one workspace on a shared file system, and one version of klinepred",
            )


ALONE: Final = Ranks()


def ranks() -> Ranks:
    """The processes of the group that this one has joined; itself alone where there is none."""
    if not (distributed.is_available() and distributed.is_initialized()):
        return ALONE
    rank = distributed.get_rank()
    return Ranks(rank, distributed.get_world_size(), local_rank(rank))


@contextmanager
def joined() -> Iterator[Ranks]:
    """Join the processes that `torchrun` has started, for the length of a block; alone without it, or joined already.

    Gloo carries what lies on the CPU, NCCL what lies on CUDA devices.

    Raises
    ------
    UsageError
        Some of the variables that `torchrun` sets are missing, or are no numbers that can be.
    TrainingError
        The others cannot be reached, or one was lost on the way.
    """
    if distributed.is_initialized() or world_size() < 2:
        yield ranks()
        return
    lacking = [name for name in NEEDED if not os.environ.get(name)]
    if lacking:
        raise UsageError(
            "WORLD_SIZE above 1",
            expected=f"the environment of torchrun: {', '.join(NEEDED)}",
            got=f"no {', '.join(lacking)}",
            do="start with torchrun --nproc-per-node N -m klinepred train, or unset WORLD_SIZE",
        )
    check_launch()
    carriers = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    # torchrun keeps one store over restarts: addresses of processes that are gone must not be found in it
    life = f"life-{restarts()}"
    try:
        store, rank, world = next(rendezvous("env://", timeout=PATIENCE))
        own = PrefixStore(life, store)
        distributed.init_process_group(carriers, store=own, rank=rank, world_size=world, timeout=PATIENCE)
        yield ranks()
    except (distributed.DistError, RuntimeError) as error:
        if isinstance(error, KlinepredError) or not lost(error):
            raise
        raise TrainingError(
            "processes that train together",
            expected="all of them to the end",
            got=f"a lost connection: {' '.join(str(error).split())[:200]}",
            do="look at the message of the one that ended first; --resume last goes on from the last checkpoint",
        ) from error
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()


def job() -> str:
    """What processes that were started together have in common, over restarts too; empty for one started alone."""
    if os.environ.get(JOB):
        return os.environ[JOB]
    name = os.environ.get("TORCHELASTIC_RUN_ID", "")
    return f"{name}/{os.environ.get('MASTER_ADDR', '')}:{os.getppid()}" if name else ""


def restarted() -> bool:
    """Whether the processes may have been started again, because one of them had died.

    `torchrun` tells; a job whose name nobody had before has no checkpoint unless it was.
    """
    return JOB in os.environ or restarts() > 0


def lost(error: Exception) -> bool:
    """Whether torch speaks of another process that is gone."""
    words = ("connection", "peer", "timed out", "timeout", "gloo", "nccl", "store", "socket")
    return isinstance(error, distributed.DistError) or any(word in str(error).lower() for word in words)


def reseed(ranked: Ranks, *, seed: int, step: int) -> None:
    """Give dropout numbers of its own in each process and step, so that a resumed run draws them again.

    A process alone keeps torch's one stream, as it is saved in its checkpoints.
    """
    if not ranked.alone:
        torch.manual_seed(int(np.random.SeedSequence([seed, step, ranked.rank]).generate_state(1, np.uint64)[0] >> 1))
