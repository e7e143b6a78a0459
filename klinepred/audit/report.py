"""In: a certificate. Out: one HTML file that works offline, what failed first."""

from __future__ import annotations

from pathlib import Path

from klinepred import __version__
from klinepred.audit.check import Certificate, Check
from klinepred.errors import UsageError
from klinepred.page import house
from klinepred.paths import write_atomic

HEADS = {
    "evidence": ("Evidence", "The bars that everything below was tried on."),
    "control": ("Sound ones", "Nothing is wrong with these: an alarm here would be a false one."),
    "leak": ("Planted leaks", "Each was put in on purpose; caught by the very checks that an audit is made of."),
    "feature": (
        "Features",
        "Recomputed with the future cut off, changed, thinned out: rows up to the cut must be the same bit by bit."
        " Recomputed from a later start: from its lookback on, each must have forgotten what lay before.",
    ),
    "target": ("Targets", "Worked out a second time from raw closes, laid out on the calendar."),
    "split": ("Split", "Where labels really begin and end."),
    "scaler": ("Scaler", ""),
    "inputs": ("Inputs", ""),
    "sequence": ("Sequences", ""),
    "training": ("Training", "Labels that a step must not see are changed: it must give the same numbers."),
    "prediction": ("Predictions", "Repeated bar by bar from the bars of then alone."),
}
"""Heading and explanation by kind of check."""


def write_report(certificate: Certificate, path: Path, *, title: str) -> Path:
    """Write the report. It loads nothing from elsewhere, and every text in it is escaped.

    Raises
    ------
    UsageError
        The file cannot be written.
    """
    try:
        write_atomic(path, render_certificate(certificate, title=title))
    except OSError as error:
        raise UsageError(
            f"report {path}", expected="a file that can be written", got=str(error), do="free space or name another"
        ) from error
    return path


def render_certificate(certificate: Certificate, *, title: str) -> str:
    """The report as text; the same certificate gives the same text."""
    kinds = list(dict.fromkeys(check.kind for check in certificate.checks))
    order = [kind for kind in HEADS if kind in kinds] + [kind for kind in kinds if kind not in HEADS]
    groups: list[tuple[str, str, list[Check]]] = []
    for kind in order:
        head, note = HEADS.get(kind, (kind, ""))
        groups.append((head, note, [check for check in certificate.checks if check.kind == kind]))
    planted = "leak" in kinds
    text: str = (
        house()
        .get_template("audit/report.html.j2")
        .render(
            certificate=certificate,
            title=" · ".join(part for part in ("klinepred", title, "self-test" if planted else "") if part),
            sentence=_sentence(certificate, planted=planted),
            groups=groups,
            version=__version__,
        )
    )
    return text


def _sentence(certificate: Certificate, *, planted: bool) -> str:
    count, failed = len(certificate.checks), len(certificate.failed)
    if planted:
        leaks = [check for check in certificate.checks if check.kind == "leak"]
        caught = sum(check.passed for check in leaks)
        return f"{caught} of {len(leaks)} planted leaks caught, {failed - (len(leaks) - caught)} false alarms."
    if certificate.passed:
        return f"Nothing was found that sees the future: {count} checks passed."
    return f"{failed} of {count} checks failed."
