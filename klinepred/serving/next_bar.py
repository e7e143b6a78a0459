"""In: raw bars as MLflow hands them over. Out: predictions. MLflow keeps a copy of this file in every model it logs."""

from __future__ import annotations

from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext


class NextBar(PythonModel):
    """The bundle in the artifact `bundle`, behind MLflow's `predict`. klinepred itself must be installed."""

    def load_context(self, context: PythonModelContext) -> None:
        from klinepred.serving.answer import open_bundle

        self._bundle = open_bundle(context.artifacts["bundle"])

    def predict(
        self, context: PythonModelContext, model_input: pd.DataFrame, params: dict[str, Any] | None = None
    ) -> pd.DataFrame:
        from klinepred.serving.answer import answer

        return answer(self._bundle, model_input, params=params or {})


set_model(NextBar())
