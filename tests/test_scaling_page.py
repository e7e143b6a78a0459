"""In: docs/scaling.md and its examples. Out: claims that they run, validate, and that the page's figures are so."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import torch
import yaml

from klinepred.cli import root
from klinepred.config import load_pipeline
from klinepred.features.build import F50
from klinepred.model.lstm import build_network, parameter_count
from tests.kuberay import JOB
from tests.small_market import small_space
from tests.training.ranked import free_port

HERE = Path(__file__).parents[1]
PAGE = HERE / "docs" / "scaling.md"
EXAMPLES = HERE / "docs" / "examples"
SCRIPTS = ("slurm.sbatch", "one-box.sh")
SLURM = {
    "SLURM_JOB_ID": "4711",
    "SLURM_JOB_NODELIST": "localhost",
    "SLURM_JOB_NUM_NODES": "1",
    "SLURM_CPUS_PER_TASK": "2",
}


@pytest.fixture
def machines(tmp_path: Path) -> Path:
    """A folder with what Slurm brings: `srun` runs the command once, here; `scontrol` names this machine."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in (("srun", 'exec "$@"'), ("scontrol", "echo localhost")):
        (folder / name).write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        (folder / name).chmod(0o755)
    return folder


def ran(script: str, *words: str, path: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run an example with `path` before the programs of this Python's environment."""
    places = [str(path), str(Path(sys.executable).parent), os.environ["PATH"]]
    return subprocess.run(
        ["bash", str(EXAMPLES / script), *words],
        cwd=HERE,
        env={**os.environ, "PATH": os.pathsep.join(places), "PYTHONPATH": str(HERE), **settings},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )


def parsed(words: list[str]) -> dict[str, Any]:
    """The settings that a command line of klinepred means; an error where it does not parse."""
    command: click.Command = root
    with click.Context(root) as outer:
        while isinstance(command, click.Group):
            _, found, words = command.resolve_command(outer, words)
            assert found is not None
            command = found
        return dict(command.make_context("klinepred", words, parent=outer).params)


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_good_bash_and_say_what_is_lacking(script: str, machines: Path) -> None:
    assert subprocess.run(["bash", "-n", str(EXAMPLES / script)], check=True).returncode == 0
    done = ran(script, path=machines, WORKSPACE="")
    assert done.returncode != 0
    assert "WORKSPACE" in done.stderr


def test_what_slurm_is_asked_for_is_one_launcher_a_machine() -> None:
    lines = re.findall(r"^#SBATCH --([a-z-]+)(?:=(\S+))?$", (EXAMPLES / "slurm.sbatch").read_text(), flags=re.MULTILINE)
    asked = dict(lines)
    assert len(asked) == len(re.findall("^#SBATCH", (EXAMPLES / "slurm.sbatch").read_text(), flags=re.MULTILINE))
    assert asked["ntasks-per-node"] == "1"
    assert int(asked["nodes"]) > 1
    assert int(asked["gpus-per-node"]) == 8
    assert int(asked["cpus-per-task"]) >= int(asked["gpus-per-node"])
    assert re.fullmatch(r"\d+:\d\d:\d\d", asked["time"])
    assert re.fullmatch(r"TERM@\d+", asked["signal"])
    assert "requeue" in asked


@pytest.mark.parametrize("script", SCRIPTS)
def test_the_command_lines_are_those_of_torchrun_and_klinepred(script: str, machines: Path) -> None:
    (machines / "torchrun").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    (machines / "torchrun").chmod(0o755)
    done = ran(script, "--amp", path=machines, WORKSPACE="my desk", GPUS="8", **SLURM, SLURM_GPUS_ON_NODE="8")
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()

    from torch.distributed.run import parse_args

    launched = parse_args(words)  # type: ignore[no-untyped-call]
    assert (launched.nproc_per_node, launched.module, launched.training_script) == ("8", True, "klinepred")
    assert int(launched.max_restarts) == 3
    settings = parsed(launched.training_script_args)
    assert (settings["workspace"], settings["pipeline"]) == (Path("my desk"), "us-equities-5m")
    assert settings["amp"] is True
    if script == "slurm.sbatch":
        assert (launched.nnodes, launched.rdzv_endpoint, launched.rdzv_id) == ("1", "localhost:24711", "4711")


@pytest.mark.timeout(300)
def test_the_slurm_job_trains_one_network_by_two_processes(machines: Path, tmp_path: Path) -> None:
    space = small_space(tmp_path)
    settings = {"WORKSPACE": str(space), "PIPELINE": str(space / "small.toml"), "PER_NODE": "2"}
    done = ran("slurm.sbatch", "--epochs", "1", path=machines, **SLURM, **settings, PORT=str(free_port()))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("model small-") == 1
    assert len([*(space / "models" / "trained").glob("small-*")]) == 1
    with sqlite3.connect(space / "mlruns" / "mlflow.db") as runs:
        assert runs.execute("SELECT value FROM params WHERE key = 'processes'").fetchall() == [("2",)]
    again = ran("slurm.sbatch", "--epochs", "1", path=machines, **SLURM, **settings, PORT=str(free_port()))
    assert "goes on from" in again.stderr, again.stderr  # the same job, started again by Slurm


def manifest() -> dict[str, Any]:
    return dict(yaml.safe_load((EXAMPLES / "kuberay.yaml").read_text(encoding="utf-8")))


def test_the_manifest_is_a_rayjob_and_its_commands_parse() -> None:
    job = manifest()
    jsonschema.Draft202012Validator(JOB).validate(job)
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["rayVersion"] == version("ray")
    (group,) = cluster["workerGroupSpecs"]
    (worker,) = group["template"]["spec"]["containers"]
    for part in (cluster["headGroupSpec"], group):
        spec = part["template"]["spec"]
        names = {volume["name"] for volume in spec["volumes"]}
        for container in spec["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= names
            assert container["resources"]["requests"] == container["resources"]["limits"]
    build, train = (shlex.split(line) for line in job["spec"]["entrypoint"].split("&&"))
    assert (build[0], train[0]) == ("klinepred", "klinepred")
    assert parsed(build[1:])["engine"] == "ray"
    settings = parsed(train[1:])
    assert settings["workspace"] == Path(worker["volumeMounts"][0]["mountPath"])
    assert settings["workers"] == group["replicas"] == group["minReplicas"]
    assert settings["gpus"] == int(worker["resources"]["limits"]["nvidia.com/gpu"])


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.rayClusterSpec.headGroupSpec.rayStartParams.num-cpus", 0),
        ("spec.rayClusterSpec.workerGroupSpecs.0.minReplica", 1),
        ("spec.rayClusterSpec.workerGroupSpecs.0.maxReplicas", None),
        ("spec.entryPoint", "klinepred"),
        ("apiVersion", "ray.io/v1alpha1"),
    ],
)
def test_a_manifest_that_the_operator_would_not_take_is_refused(path: str, value: object) -> None:
    job = manifest()
    spot: Any = job
    *inner, last = path.split(".")
    for name in inner:
        spot = spot[int(name) if isinstance(spot, list) else name]
    spot[last] = value
    if value is None:
        del spot[last]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(JOB).validate(job)


def test_the_traffic_of_a_step_is_what_the_page_says() -> None:
    run = load_pipeline("us-equities-5m")
    with torch.device("meta"):
        parameters = parameter_count(build_network(run.model, inputs=len(F50.names)))
    text = PAGE.read_text(encoding="utf-8")
    assert f"{parameters:,} parameters" in text
    assert f"{4 * parameters / 1e6:.2f} MB" in text
    for world in (2, 8, 16, 64):
        sent = 2 * (world - 1) / world * 4 * parameters / 1e6
        assert f"| {world} | {sent:.1f} MB |" in text
    assert run.train.batch == 64
    assert f"{run.train.batch} x {78 + run.dataset.burn_in} = {run.train.batch * (78 + run.dataset.burn_in):,}" in text


def test_links_of_the_page_lead_to_files() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", PAGE.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (PAGE.parent / target).is_file(), target
