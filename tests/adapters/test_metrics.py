"""What processes gather, added up, and how Prometheus reads it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from chime_dist.adapters.prometheus import MetricsEndpoint
from chime_dist.engine import metrics
from chime_dist.engine.meters import Gathered, Meters, Snapshot, meters_of
from chime_dist.errors import ServiceError


def worked(calls: int, records: float) -> Meters:
    """A process that read the bank so many times, in 20 ms each, and holds a bank."""
    meters = Meters()
    for _ in range(calls):
        meters.observe(metrics.READ_SECONDS, "r", seconds=0.02)
        meters.add(metrics.OUTAGES, "r")
    meters.watch(lambda: [(metrics.BANK_RECORDS, ("r", "plan"), records)])
    return meters


READS, OUTAGES, RECORDS = (
    metrics.READ_SECONDS.key(("r",)),
    metrics.OUTAGES.key(("r",)),
    metrics.BANK_RECORDS.key(("r", "plan")),
)


def test_what_a_process_counted_before_it_died_still_counts_and_its_levels_do_not() -> None:
    """A restarted process begins at zero; a counter that Prometheus sees must not."""
    gathered, first, second = Gathered(), worked(3, 7.0), worked(2, 8.0)
    gathered.take([first.snapshot()])
    gathered.take([first.snapshot()])
    assert gathered.sum().counts[OUTAGES] == 3
    gathered.take([second.snapshot()])
    told = gathered.sum()
    assert told.counts[OUTAGES] == 5
    assert told.levels[RECORDS] == 8.0
    assert sum(told.durations[READS].counts) == 5
    assert told.durations[READS].total == pytest.approx(0.1)
    gathered.take([])
    assert gathered.sum().counts[OUTAGES] == 5
    assert gathered.sum().levels == {}


def test_a_snapshot_does_not_change_with_its_process() -> None:
    meters = worked(1, 1.0)
    snapshot = meters.snapshot()
    meters.observe(metrics.READ_SECONDS, "r", seconds=1.0)
    assert sum(snapshot.durations[READS].counts) == 1


def test_a_block_that_fails_is_not_timed() -> None:
    meters = Meters()
    with pytest.raises(KeyError), meters.timed(metrics.READ_SECONDS, "r"):
        raise KeyError("r")
    assert meters.snapshot().durations == {}


def test_a_launch_has_one_meter_in_a_process() -> None:
    assert meters_of("launch-a") is meters_of("launch-a")
    assert meters_of("launch-a") is not meters_of("launch-b")


def test_names_and_labels_follow_the_conventions_of_prometheus_and_are_bounded() -> None:
    for metric in metrics.METRICS.values():
        assert re.fullmatch(r"chime_dist_[a-z_]+", metric.name)
        assert metric.name.endswith("_total") == (metric.kind == "counter")
        assert metric.name.endswith("_seconds") == (metric.kind == "histogram")
        assert not {"unit", "task", "position", "attempt", "worker"} & set(metric.labels)
        assert list(metric.buckets) == sorted(set(metric.buckets))


async def test_the_endpoint_serves_what_prometheus_reads() -> None:
    meters = worked(2, 7.0)
    meters.add(metrics.MODEL_ERRORS, "gate", 'a "b"\\c', "timeout", by=2)

    async def collect() -> Snapshot:
        return meters.snapshot()

    endpoint = MetricsEndpoint(collect)
    url = await endpoint.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            texts = await asyncio.gather(*(scraped(session, url) for _ in range(3)))
            async with session.get(url.removesuffix("metrics")) as response:
                assert response.status == 404
    finally:
        await endpoint.stop()
    assert texts[0] == texts[1] == texts[2]
    families = {family.name: family for family in text_string_to_metric_families(texts[0])}
    [error] = families["chime_dist_model_errors"].samples
    assert error.labels == {"role": "gate", "backbone": 'a "b"\\c', "code": "timeout"}
    assert error.value == 2
    reads = {s.labels.get("le", s.name): s.value for s in families["chime_dist_bank_read_seconds"].samples}
    assert (reads["0.01"], reads["0.025"], reads["+Inf"]) == (0, 2, 2)
    assert reads["chime_dist_bank_read_seconds_sum"] == pytest.approx(0.04)
    assert "chime_dist_paused" not in families


async def scraped(session: aiohttp.ClientSession, url: str) -> str:
    """One scrape's text."""
    async with session.get(url) as response:
        assert response.status == 200
        assert response.headers["content-type"].startswith("text/plain")
        return await response.text()


async def test_an_address_that_is_taken_is_told_with_the_setting() -> None:
    async def collect() -> Snapshot:
        return Meters().snapshot()

    first = MetricsEndpoint(collect)
    port = int(re.findall(r":(\d+)/", await first.start("127.0.0.1", 0))[0])
    try:
        with pytest.raises(
            ServiceError,
            match=rf"127\.0\.0\.1:{port} .*set cluster\.metrics\.host .* cluster\.metrics\.port to a free one",
        ):
            await MetricsEndpoint(collect).start("127.0.0.1", port)
    finally:
        await first.stop()


def test_the_table_of_the_readme_names_every_metric_and_no_other() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    rows = [line for line in readme.splitlines() if line.startswith("| `chime_dist_")]
    told = {name for row in rows for name in re.findall(r"`(chime_dist_\w+)`", row)}
    assert told == metrics.METRICS.keys()
