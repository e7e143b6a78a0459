"""In: nothing. Out: an environment full of secrets, and which forms of them are in a text or a file."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final
from urllib.parse import quote

SECRET: Final = "hunter2%41Öß-sesame"  # noqa: S105
NAMES: Final = (
    "AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN MLFLOW_TRACKING_PASSWORD MLFLOW_TRACKING_TOKEN DATABRICKS_TOKEN PGPASSWORD"
    " GITHUB_TOKEN AZURE_STORAGE_ACCESS_KEY GOOGLE_API_KEY BINANCE_SECRET"
)
FORMS: Final = (SECRET, quote(SECRET), base64.b64encode(SECRET.encode()).decode()[:20], "hunter2", "sesame")


def secrets() -> dict[str, str]:
    """Variables as a desk sets them; the proxy leads nowhere."""
    return {**dict.fromkeys(NAMES.split(), SECRET), "HTTPS_PROXY": f"http://me:{quote(SECRET)}@127.0.0.1:1"}


def told(text: str | bytes) -> list[str]:
    """Forms of the secret that are in `text`."""
    raw = text if isinstance(text, bytes) else text.encode(errors="surrogateescape")
    return [form for form in FORMS if form.encode() in raw]


def leaks(folder: Path) -> dict[str, list[str]]:
    """Files below `folder` that hold some form of the secret."""
    found = {str(path): told(path.read_bytes()) for path in folder.rglob("*") if path.is_file()}
    return {path: forms for path, forms in found.items() if forms}
