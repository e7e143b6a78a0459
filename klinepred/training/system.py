"""In: an open run. Out: the machine meanwhile: CPU, memory, disk, network, GPU, as MLflow's system metrics."""

from __future__ import annotations

import logging
from typing import Any, Final

log = logging.getLogger("klinepred.training")

EVERY_S: Final = 10.0
"""Between two samples; MLFLOW_SYSTEM_METRICS_SAMPLING_INTERVAL wins."""


class SystemWatch:
    """A thread of MLflow's that samples the machine while a run is open. A GPU is seen where nvidia-ml-py is installed.

    It is company for the run and no part of it: what goes wrong here is told in the log and ends no training.
    """

    def __init__(self, run_id: str, *, uri: str) -> None:
        self._monitor: Any = None
        try:
            from mlflow.system_metrics.system_metrics_monitor import SystemMetricsMonitor

            kind: Any = SystemMetricsMonitor  # it has no annotations
            monitor = kind(run_id, sampling_interval=EVERY_S, resume_logging=True, tracking_uri=uri)
            monitor.start()
            self._monitor = monitor
        except Exception as error:  # whatever a driver or /proc may throw
            log.info("no system metrics: %s", error)

    def stop(self) -> None:
        """End the thread; a run shorter than one interval gets its only sample now."""
        monitor, self._monitor = self._monitor, None
        if monitor is None:
            return
        try:
            monitor.finish()
            if monitor._logging_step == 0:
                monitor.collect_metrics()
                monitor.publish_metrics(monitor.aggregate_metrics())
                monitor.mlflow_logger.flush()
        except Exception as error:
            log.info("system metrics ended early: %s", error)
