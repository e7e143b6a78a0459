"""In: pipelines without a leak. Out: no false alarm; all fifty with KLINEPRED_SOAK=1 (`make soak`)."""

from __future__ import annotations

import os

import pytest

from klinepred.audit.certify import certify
from klinepred.audit.depth import FAST, THOROUGH
from klinepred.audit.stages import pipeline_stages
from tests.audit.clean import clean_pipeline

SOAK = bool(os.environ.get("KLINEPRED_SOAK"))
# one symbol on XLON; XHKG with a late member; relative over a half day, window cut; three symbols, no quorum
NUMBERS = range(50) if SOAK else (4, 7, 10, 15)


@pytest.mark.parametrize("number", NUMBERS)
def test_a_clean_pipeline_raises_no_alarm(number: int) -> None:
    evidence = clean_pipeline(number)
    stages = pipeline_stages(evidence.features, evidence.settings, seed=number)
    certificate = certify(stages, evidence, depth=THOROUGH if SOAK else FAST)
    assert [(check.name, check.detail) for check in certificate.failed] == []
    assert len(certificate.checks) > 80
