"""Logs: one JSON object per line, times with offset, and no secret in any of them."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import structlog
from pydantic import SecretStr

from chime_dist.core.episode import Outcome, Usage
from chime_dist.logs import LONGEST_TEXT, Logging

CANARY = "canary-4711-secret"

log = structlog.get_logger()


@pytest.fixture(autouse=True)
def no_context() -> Iterator[None]:
    yield
    structlog.contextvars.clear_contextvars()


def events(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def one(tmp_path: Path, **keys: object) -> dict[str, Any]:
    with Logging(file=tmp_path / "log.jsonl", secrets=[SecretStr(CANARY)]):
        log.info("episode.finished", **keys)
    return events(tmp_path / "log.jsonl")[-1]


def test_an_event_is_a_line_of_json_with_its_keys_level_and_utc_time(tmp_path: Path) -> None:
    structlog.contextvars.bind_contextvars(run="r1")
    event = one(tmp_path, task="任务", outcome=Outcome.SUCCESS, usage=Usage(calls=2), seconds=1.5)
    assert datetime.fromisoformat(event.pop("timestamp")).utcoffset() == timedelta(0)
    assert event.pop("usage")["calls"] == 2
    assert event == {
        "event": "episode.finished",
        "level": "info",
        "run": "r1",
        "task": "任务",
        "outcome": "success",
        "seconds": 1.5,
    }


def test_events_below_the_level_are_not_written_and_the_file_is_appended_to(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "log.jsonl"
    with Logging(file=file, level="warning"):
        log.info("quiet")
        log.warning("loud")
    with Logging(file=file, level="debug"):
        log.debug("again")
    assert [event["event"] for event in events(file)] == ["loud", "again"]


def test_a_console_gets_readable_lines_and_no_colour_where_it_is_no_terminal(tmp_path: Path) -> None:
    console = io.StringIO()
    with Logging(file=tmp_path / "log.jsonl", console=console):
        log.warning("backbone.slow", seconds=3, api_key=CANARY)
    assert "backbone.slow" in console.getvalue()
    assert "seconds=3" in console.getvalue()
    assert "\x1b" not in console.getvalue()
    assert CANARY not in console.getvalue()
    assert len(events(tmp_path / "log.jsonl")) == 1


@pytest.mark.parametrize(
    "name",
    ["api_key", "OPENAI_API_KEY", "apiKey", "X-Api-Key", "Authorization", "password", "token", "client_secret"],
)
def test_values_under_names_of_secrets_are_masked_at_any_depth(tmp_path: Path, name: str) -> None:
    """H6: no key of a config, header or environment gives its secret away."""
    event = one(tmp_path, headers={name: "hunter2", "rows": [{name: 12345}]})
    assert event["headers"] == {name: "***", "rows": [{name: "***"}]}


def test_names_that_only_look_alike_are_not_masked(tmp_path: Path) -> None:
    event = one(tmp_path, max_tokens=5, prompt_tokens=7, unit_key="r:train:1", tokens=[1], has_api_key=True)
    assert (event["max_tokens"], event["prompt_tokens"], event["unit_key"]) == (5, 7, "r:train:1")
    assert (event["tokens"], event["has_api_key"]) == ([1], True)


def test_secrets_are_masked_inside_texts(tmp_path: Path) -> None:
    """H6: URLs with credentials, bearer headers, keys in query strings, and every known secret."""
    event = one(
        tmp_path,
        secret_value=SecretStr("x"),
        wrapped=[SecretStr("hidden-in-list")],
        url="redis://:hunter2@host:6379/0",
        bare="https://hunter2@host/v1 and https://:hunter2@host and redis://u:hun@ter2@host",
        plain="https://host/v1?mail=me@there and https://host/@me",
        header="Authorization: Bearer abcdefgh12345678",
        query="https://host/v1?api_key=hunter2&page=2",
        known=f"refused {CANARY} by the server",
        error=RuntimeError(f"bad key {CANARY}"),
        vendor="sk-0123456789abcdef0123",
    )
    text = json.dumps(event)
    for secret in ("hunter2", CANARY, "hidden-in-list", "abcdefgh12345678", "0123456789abcdef"):
        assert secret not in text
    assert event["url"] == "redis://***@host:6379/0"
    assert event["bare"] == "https://***@host/v1 and https://***@host and redis://***@host"
    assert event["plain"] == "https://host/v1?mail=me@there and https://host/@me"
    assert event["query"] == "https://host/v1?api_key=***&page=2"
    assert event["known"] == "refused *** by the server"


def test_a_traceback_is_logged_without_local_variables_and_known_secrets(tmp_path: Path) -> None:
    """H6: crash with traceback."""
    console = io.StringIO()
    with Logging(file=tmp_path / "log.jsonl", console=console, secrets=[CANARY, "short"]):
        local = "value-of-a-local"
        try:
            raise ValueError(f"{CANARY} is not valid, {len(local)}")
        except ValueError:
            log.exception("worker.crashed", note="short words stay")
    (event,) = events(tmp_path / "log.jsonl")
    assert "ValueError: *** is not valid" in event["exception"]
    assert event["note"] == "short words stay"
    for written in (json.dumps(event), console.getvalue()):
        assert CANARY not in written
        assert local not in written.replace('local = "value-of-a-local"', "")


def test_values_without_a_json_form_do_not_stop_the_log(tmp_path: Path) -> None:
    """B3, B8: non-finite numbers, half an emoji, objects, and a model's endless white space."""
    event = one(
        tmp_path,
        number=float("nan"),
        half="\ud83d",
        path=Path("a/b"),
        when=datetime(2026, 1, 1),  # noqa: DTZ001 - what a library may hand over
        other=object,
        keys={1: {"b"}},
        blank="\n" * (LONGEST_TEXT + 900),
    )
    assert event["number"] == "nan"
    assert event["half"] == "\ud83d"
    assert (event["path"], event["keys"]) == ("a/b", {"1": ["b"]})
    assert event["blank"].endswith("... (900 more characters)")


def test_a_full_disk_stops_no_run_and_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Logging(file=Path("/dev/full")):
        log.info("one")
        log.info("two")
    assert capsys.readouterr().err.count("the log cannot be written") == 1


def test_a_closed_log_returns_to_the_defaults(tmp_path: Path) -> None:
    logging = Logging(file=tmp_path / "log.jsonl")
    logging.close()
    logging.close()
    assert not structlog.is_configured()
