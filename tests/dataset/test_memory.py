"""In: sizes, a control group's files, a child process with a million bars. Out: matrices go where there is room."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from klinepred.dataset import memory
from klinepred.dataset.memory import fits_memory, free_bytes, matrix_bytes, new_matrix
from klinepred.dataset.scale import BLOCK, fit_rows, fit_scaler


def test_a_matrix_is_held_in_memory_where_half_of_what_is_free_holds_it_and_the_columns_beside() -> None:
    assert matrix_bytes(1_000_000, 50) == 200_000_000
    assert fits_memory(1_000_000, 50, free=640_000_000)  # 200 bytes and 120 a row
    assert not fits_memory(1_000_000, 50, free=639_999_999)
    assert fits_memory(10**9, 50, free=None)


def test_the_limit_of_a_control_group_counts_with_what_it_could_let_go(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 150\nactive_file 50\n")
    assert memory._group(str(tmp_path)) == 450
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._group(str(tmp_path)) is None
    assert memory._group(str(tmp_path / "none")) is None
    free = free_bytes()
    assert free is None or free > 0


def test_a_matrix_on_disk_is_zeros_that_can_be_written_and_leaves_no_file(tmp_path: Path) -> None:
    matrix = new_matrix(1000, 50, on_disk=True, folder=tmp_path)
    assert isinstance(matrix, np.memmap)
    assert (matrix.shape, matrix.dtype) == ((1000, 50), np.float32)
    assert not matrix.any()
    matrix[3] = 7.0
    assert matrix[3].sum() == 350.0
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(FileNotFoundError):
        new_matrix(1, 1, on_disk=True, folder=tmp_path / "none")
    assert new_matrix(0, 50, on_disk=True).shape == (0, 50)


def test_scaling_where_the_rows_lie_gives_what_scaling_a_table_gives(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    count = BLOCK + 1000  # more than one block
    frame = pl.DataFrame(rng.normal(size=(count, 2)).astype(np.float32), schema=["a", "b"])
    frame = frame.with_columns(pl.when(pl.col("a") < 1.5).then("a"))  # some are masked
    keep = rng.random(count) < 0.9
    keep[: BLOCK // 2] = True
    plain = fit_scaler(frame.filter(pl.Series(keep)), ("a", "b"), clip=2.0)
    want = np.clip((frame["b"].to_numpy().astype(np.float64) - plain.centre_F[1]) / plain.scale_F[1], -2, 2)
    for on_disk in (False, True):
        x_NF = new_matrix(count, 2, on_disk=on_disk, folder=tmp_path)
        x_NF[:] = frame.to_numpy()
        scaler = fit_rows(x_NF, keep, ("a", "b"), clip=2.0)
        assert scaler.to_dict() == plain.to_dict()
        scaler.scale(x_NF)
        assert np.array_equal(x_NF[:, 1], want.astype(np.float32))
        assert np.array_equal(x_NF, plain.apply(frame))


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak of a stretch of work is read from /proc"
)
@pytest.mark.parametrize("mode", ["session", "window", "on-disk"])
def test_300_000_bars_of_50_features_stay_below_0_42_gigabytes(mode: str) -> None:
    """The whole way: table of features, dataset, batches. `python -m benchmarks.dataset_memory` has a million bars."""
    code = "import sys; from benchmarks.dataset_memory import measure; measure(300_000, sys.argv[1])"
    words = [sys.executable, "-c", code, mode]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "2"}
    answer = subprocess.run(
        words, capture_output=True, text=True, check=True, env=environment, cwd=Path(__file__).parents[2]
    )
    peak = json.loads(answer.stdout.splitlines()[-1])
    assert peak["table_mb"] > 55  # 300,000 x 50 x 4 bytes are really there
    assert peak["peak_mb"] < 420
