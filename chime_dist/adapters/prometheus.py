"""The endpoint that Prometheus scrapes. Nothing is gathered between two scrapes, and none waits for another."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from chime_dist.engine.meters import Durations, Key, Snapshot
from chime_dist.engine.metrics import METRICS, Metric
from chime_dist.errors import ServiceError

T = TypeVar("T")

Collect = Callable[[], Awaitable[Snapshot]]


class MetricsEndpoint:
    """``/metrics`` over HTTP, on the loop that started it."""

    def __init__(self, collect: Collect) -> None:
        """``collect`` is called for every scrape, one at a time."""
        self._collect = collect
        self._one = asyncio.Lock()
        app = web.Application()
        app.router.add_get("/metrics", self._scraped)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)

    async def start(self, host: str, port: int) -> str:
        """Listen; returns the URL. Raises ServiceError where the address cannot be had."""
        await self._runner.setup()
        try:
            await web.TCPSite(self._runner, host, port).start()
        except OSError as error:
            await self._runner.cleanup()
            raise ServiceError(
                f"metrics cannot be served at {host}:{port} ({error.strerror}): set cluster.metrics.host to an "
                "address of this machine, and cluster.metrics.port to a free one, 0 for any, or leave "
                "cluster.metrics out"
            ) from error
        name, bound = self._runner.addresses[0][:2]
        return f"http://{f'[{name}]' if ':' in name else name}:{bound}/metrics"

    async def stop(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()

    async def _scraped(self, request: web.Request) -> web.Response:
        encode, content_type = choose_encoder(request.headers.get("Accept", ""))
        async with self._one:
            snapshot = await self._collect()
        registry = CollectorRegistry()
        registry.register(_Families(snapshot))
        return web.Response(body=encode(registry), headers={"Content-Type": content_type})


class _Families(Collector):
    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterable[Family]:
        for metric in METRICS.values():
            family = _family(metric, self._snapshot)
            if family.samples:
                yield family


def _family(metric: Metric, snapshot: Snapshot) -> Family:
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, found in _of(metric, snapshot.durations.items()):
            histogram.add_metric(labels, _buckets(metric, found), found.total)
        return histogram
    counter = metric.kind == "counter"
    kind = CounterMetricFamily if counter else GaugeMetricFamily
    family = kind(metric.name, metric.help, labels=metric.labels)
    for labels, value in _of(metric, (snapshot.counts if counter else snapshot.levels).items()):
        family.add_metric(labels, value)
    return family


def _of(metric: Metric, found: Iterable[tuple[Key, T]]) -> Iterator[tuple[tuple[str, ...], T]]:
    return ((labels, value) for (name, labels), value in found if name == metric.name)


def _buckets(metric: Metric, found: Durations) -> list[tuple[str, float]]:
    limits = [*map(floatToGoString, metric.buckets), "+Inf"]
    return [(limit, sum(found.counts[: index + 1])) for index, limit in enumerate(limits)]
