"""In: this machine and a workspace. Out: what is installed, what would be used and why, what is missing."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
import textwrap
from importlib import metadata
from pathlib import Path
from typing import Any

import click

from klinepred import __version__
from klinepred.cli.endings import report_options
from klinepred.cli.options import common, start
from klinepred.cli.output import write_json
from klinepred.config import load_pipeline, pipeline_names
from klinepred.errors import ConfigError, ModelError, StoreError, TrainingError, UsageError
from klinepred.masked import masked
from klinepred.paths import Workspace
from klinepred.training.runs import count_runs, run_store

LITTLE_DISK_GIB = 2.0


@click.command(
    epilog="\b\nExample: klinepred doctor --format json", short_help="Say what would be used, what is missing."
)
@report_options
@common
def command(form: str, output: Path | None, workspace: Path, quiet: bool, verbose: bool) -> int:
    """Look at the installation, the device and the workspace; nothing is changed.

    Exit code 1: something is missing or broken; each such thing is listed with the way out.
    """
    space = start(workspace, quiet=quiet, verbose=verbose)
    report = examine(space)
    if form == "json" or output is not None:
        write_json(report, output=output)
    if form == "table":
        click.echo(_text(report), nl=False)
    return 1 if report["problems"] else 0


def examine(space: Workspace) -> dict[str, Any]:
    """The whole report as plain values; `problems` holds what stands in the way, each with what to do."""
    problems: list[dict[str, str]] = []
    packages, extras = _packages(problems)
    report: dict[str, Any] = {
        "klinepred": __version__,
        "python": {"version": platform.python_version(), "executable": sys.executable, "platform": platform.platform()},
        "packages": packages,
        "extras": extras,
    }
    if packages.get("torch"):
        report |= _device()
    report["workspace"] = _workspace(space, problems)
    report["store"] = _store(space, problems) if packages.get("polars") and packages.get("deltalake") else None
    report["tracking"] = _tracking(space, problems)
    report["models"] = _models(space, problems) if packages.get("torch") else None
    report["problems"] = problems
    return report


def _packages(problems: list[dict[str, str]]) -> tuple[dict[str, str | None], dict[str, dict[str, Any]]]:
    """Versions of what pyproject.toml asks for, None where absent; what each extra lacks."""
    try:
        wanted = metadata.requires("klinepred") or []
    except metadata.PackageNotFoundError:
        problems.append({"what": "klinepred is not installed, only its folder is there", "do": "pip install -e ."})
        return {}, {}
    packages: dict[str, str | None] = {}
    extras: dict[str, dict[str, Any]] = {}
    for line in wanted:
        name, least, extra = _requirement(line)
        have = _version(name)
        if extra is None:
            packages[name] = have
        else:
            entry = extras.setdefault(extra, {"missing": [], "get": f"pip install 'klinepred[{extra}]'"})
            if have is None:
                entry["missing"].append(name)
        if extra is None and (have is None or _numbers(have) < _numbers(least)):
            problems.append(
                {
                    "what": f"{name} is {'missing' if have is None else f'{have}, older than {least}'}",
                    "do": f"pip install '{name}>={least}'" if least else f"pip install {name}",
                }
            )
    return packages, extras


def _requirement(line: str) -> tuple[str, str, str | None]:
    """Name, least version and extra of a line such as `build>=1.2; extra == 'test'`."""
    spec, _, marker = line.partition(";")
    name = re.match(r"[A-Za-z0-9._-]+", spec.strip())
    least = re.search(r">=\s*([0-9.]+)", spec)
    extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", marker)
    return name.group() if name else spec, least.group(1) if least else "", extra.group(1) if extra else None


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _device() -> dict[str, Any]:
    import torch

    from klinepred.settings import TrainSettings
    from klinepred.training.cpu import cpu_path
    from klinepred.training.precision import choose_device, device_name, resolve, why_no_cuda

    device = choose_device("auto")
    amp = resolve(TrainSettings(amp=True), device)
    return {
        "device": {
            "name": device_name(device),
            "cuda_build": torch.version.cuda,
            "why_no_cuda": why_no_cuda(),
        },
        "precision": {
            "plain": resolve(TrainSettings(), device).name,
            "amp": amp.name,
            "scaler": amp.scaled,
            "reason": amp.reason,
            "remarks": list(amp.remarks),
        },
        "cpu_path": cpu_path(resolve(TrainSettings(amp=True, device="cpu"), choose_device("cpu"))),
        "threads": {"torch": torch.get_num_threads(), "cores": len(os.sched_getaffinity(0))},
    }


def _workspace(space: Workspace, problems: list[dict[str, str]]) -> dict[str, Any]:
    there = next(folder for folder in (space.root, *space.root.parents) if folder.is_dir())
    writable = os.access(there, os.W_OK | os.X_OK)
    free = shutil.disk_usage(there).free / 2**30
    if not writable:
        problems.append({"what": f"{there} cannot be written", "do": "mend its permissions, or choose another with -w"})
    if free < LITTLE_DISK_GIB:
        problems.append({"what": f"only {free:.1f} GiB free on the disk of {there}", "do": "free some space"})
    names = pipeline_names(space)
    for name in names:
        try:
            load_pipeline(name, workspace=space)
        except ConfigError as error:
            problems.append({"what": f"{error.summary}: expected {error.expected}, got {error.got}", "do": error.do})
    return {
        "root": str(space.root),
        "exists": space.root.is_dir(),
        "writable": writable,
        "free_gib": round(free, 1),
        "pipelines": names,
    }


def _store(space: Workspace, problems: list[dict[str, str]]) -> dict[str, Any]:
    from klinepred.bars.store import list_symbols, store_version

    found: dict[str, Any] = {"version": None, "symbols": 0, "bars": 0, "last_ts": None}
    try:
        version = store_version(space)
        if version is not None:
            rows = list_symbols(space)
            found = {
                "version": version,
                "symbols": rows.height,
                "bars": int(rows["bars"].sum()),
                "last_ts": rows["last_ts"].max(),
            }
    except StoreError as error:
        problems.append({"what": f"{error.summary}: {error.got}", "do": error.do})
    return found


def _tracking(space: Workspace, problems: list[dict[str, str]]) -> dict[str, Any]:
    uri, runs = os.environ.get("MLFLOW_TRACKING_URI") or space.tracking_uri, None
    try:
        runs = count_runs(space) if run_store(space) == space.tracking_uri else None
    except (TrainingError, UsageError) as error:
        problems.append({"what": f"{error.summary}: {error.got}", "do": error.do})
    source = "MLFLOW_TRACKING_URI" if os.environ.get("MLFLOW_TRACKING_URI") else "workspace"
    return {"uri": masked(uri), "from": source, "runs": runs}


def _models(space: Workspace, problems: list[dict[str, str]]) -> dict[str, Any]:
    from klinepred.model.shelf import list_models

    try:
        entries = list_models(space)
    except ModelError as error:
        problems.append({"what": f"{error.summary}: {error.got}", "do": error.do})
        return {"trained": 0, "champion": None, "newest": None}
    return {
        "trained": len(entries),
        "champion": next((entry.name for entry in entries if entry.champion), None),
        "newest": entries[-1].name if entries else None,
    }


def _text(report: dict[str, Any]) -> str:
    width = shutil.get_terminal_size((120, 24)).columns
    text = "".join(
        textwrap.fill(line, width, initial_indent=f"{name:<17}", subsequent_indent=" " * 17, break_on_hyphens=False)
        + "\n"
        for name, line in _lines(report)
    )
    if not report["problems"]:
        return f"{text}\nnothing is missing\n"
    listed = "".join(f"  {entry['what']}\n    do this: {entry['do']}\n" for entry in report["problems"])
    return f"{text}\nproblems:\n{listed}"


def _lines(report: dict[str, Any]) -> list[tuple[str, str]]:
    python, space, store = report["python"], report["workspace"], report["store"]
    tracking, models = report["tracking"], report["models"]
    have = [f"{name} {version}" for name, version in report["packages"].items() if version]
    out = [
        ("klinepred", report["klinepred"]),
        ("python", f"{python['version']} at {python['executable']}"),
        ("packages", ", ".join(have)),
    ]
    for name, extra in report["extras"].items():
        lacks = f"lacks {', '.join(extra['missing'])}; get it: {extra['get']}" if extra["missing"] else "complete"
        out.append((f"extra {name}", lacks))
    if "device" in report:
        device, amp, threads = report["device"], report["precision"], report["threads"]
        scaled = " with loss scaling" if amp["scaler"] else ""
        out += [
            ("device", device["name"]),
            ("no CUDA because", device["why_no_cuda"] or ""),
            ("precision", f"{amp['plain']}; with --amp {amp['amp']}{scaled} ({amp['reason']})"),
            *(("", remark) for remark in amp["remarks"]),
            ("threads", f"{threads['torch']} of torch on {threads['cores']} cores"),
            ("on the CPU", report["cpu_path"]),
        ]
    state = "can be written" if space["writable"] else "CANNOT be written"
    absent = "" if space["exists"] else ", not made yet"
    runs = "" if tracking["runs"] is None else f", {tracking['runs']} runs"
    out += [
        ("workspace", f"{space['root']}: {state}{absent}, {space['free_gib']} GiB free"),
        ("pipelines", ", ".join(space["pipelines"])),
        ("store", _store_line(store) if store else ""),
        ("tracking", f"{tracking['uri']} (by {tracking['from']}){runs}"),
    ]
    if models:
        best = models["champion"] or "none promoted"
        out.append(("models", f"{models['trained']} trained; champion: {best}; newest: {models['newest'] or 'none'}"))
    return [(name, text) for name, text in out if text]


def _store_line(store: dict[str, Any]) -> str:
    if store["version"] is None:
        return "empty; fill it with klinepred ingest"
    last = f", last {store['last_ts']:%Y-%m-%d %H:%MZ}" if store["last_ts"] else ""
    return f"version {store['version']}: {store['bars']:,} bars of {store['symbols']} symbols{last}"
