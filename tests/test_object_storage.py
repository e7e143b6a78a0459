"""In: a server of object storage on this machine. Out: claims that the job with bars there gives the same as here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

from klinepred.model.bundle import WEIGHTS
from klinepred.objects import ObjectPath
from tests.conftest import Typed
from tests.engine.clusters import alone
from tests.shallow import shallow_audit
from tests.small_market import MARKET, NETWORK
from tests.storage import BUCKET, SECRETS, storage_server

AT = "2026-03-31T15:00:00Z"


@pytest.fixture(scope="module", autouse=True)
def _storage() -> Iterator[None]:
    with storage_server() as found, pytest.MonkeyPatch.context() as patch, shallow_audit():
        for name, value in found.items():
            patch.setenv(name, value)
        yield


def work(typed: Typed, space: Path) -> tuple[list[str], bytes, str]:
    """Results of each step, the weights, and all that was said on stderr."""
    (space / "small.toml").write_text(MARKET + NETWORK + "epochs = 1\n", encoding="utf-8")
    settings = ["-p", str(space / "small.toml"), "-w", str(space)]
    steps = [
        ["ingest", *settings, "--end", "2026-03-20"],
        ["ingest", *settings],
        ["bars", "list", "-w", str(space), "--format", "csv"],
        ["features", "build", *settings, "--format", "csv"],
        ["train", *settings, "-v"],
        ["predict", *settings, "--now", AT, "--format", "csv", "-o", str(space / "next.csv")],
    ]
    out, err = [], ""
    for words in steps:
        code, told, said = typed(*words)
        assert code == 0, said
        out.append(told if words[0] != "train" else "")
        err += said
    rows = pl.read_csv(space / "next.csv").drop("model", "run_id")
    (bundle,) = (space / "models" / "trained").glob("small-*")
    return [*out, rows.write_csv()], (bundle / WEIGHTS).read_bytes(), err


def computed(space: Path) -> dict[str, bytes]:
    """Features as they are kept."""
    folder = space / "data" / "features"
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.arrow")}


@pytest.mark.timeout(900)
def test_a_store_on_object_storage_gives_the_same_numbers_and_no_secret_is_written_down(
    typed: Typed, tmp_path: Path
) -> None:
    far, near = tmp_path / "far", tmp_path / "near"
    near.mkdir()
    assert typed("init", str(far), "--store", f"s3://{BUCKET}/bars", "--artifacts", f"s3://{BUCKET}/runs")[0] == 0
    out, weights, err = work(typed, far)
    assert (out, weights) == work(typed, near)[:2]
    assert not (far / "data" / "bars").exists()
    assert ObjectPath(f"s3://{BUCKET}/bars/bars").is_dir()
    names = ObjectPath(f"s3://{BUCKET}").sizes()
    assert any(name.startswith("runs/small/") and name.endswith("config.json") for name in names), list(names)
    kept = [path.read_bytes() for path in far.rglob("*") if path.is_file()]
    kept += [ObjectPath(f"s3://{BUCKET}/{name}").read_bytes() for name in names]
    assert any(f"s3://{BUCKET}/bars/bars".encode() in content for content in kept)  # where the run's data are from
    wanted = computed(near)
    for path in (far / "data" / "features").rglob("*.arrow"):
        path.unlink()
    words = ["features", "build", "-p", str(far / "small.toml"), "-w", str(far), "--engine", "ray"]
    done = alone("-m", "klinepred", *words, "--num-workers", "2")
    assert computed(far) == wanted, done.stderr
    for secret in SECRETS.values():
        assert secret not in err
        assert not any(secret.encode() in content for content in kept)
