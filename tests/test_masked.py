"""In: addresses with and without passwords. Out: none of the passwords, all of the rest."""

from __future__ import annotations

import pytest

from klinepred.masked import masked


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("http://bob:s3cret@host:5000/x", "http://***@host:5000/x"),
        ("https://t0ken@host", "https://***@host"),
        ("postgresql+psycopg2://u:p@ss@w0rd@h/db", "postgresql+psycopg2://***@h/db"),
        ("postgresql://h/db?user=u&password=s3cret&x=1", "postgresql://h/db?user=u&password=***&x=1"),
        ("mysql://h/db?ssl_key=a;passwd=b", "mysql://h/db?ssl_key=***;passwd=***"),
        ("API request to http://a:b@h:1/api failed: x@y", "API request to http://***@h:1/api failed: x@y"),
        ("sqlite:////home/a b/mlruns/mlflow.db", "sqlite:////home/a b/mlruns/mlflow.db"),
        ("http://host:5000/@x", "http://host:5000/@x"),
        ("two: 'http://a:b@c' and \"ftp://d:e@f\"", "two: 'http://***@c' and \"ftp://***@f\""),
    ],
)
def test_passwords_are_masked_and_the_rest_is_kept(text: str, want: str) -> None:
    assert masked(text) == want


@pytest.mark.timeout(10)
def test_a_long_text_takes_no_time() -> None:
    for text in ("a" * 200_000, "://" * 100_000, "?" + "password" * 30_000, "a://" + "b" * 200_000):
        assert masked(text) == text
