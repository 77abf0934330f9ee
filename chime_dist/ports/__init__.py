"""The seams of the engine. Adapters, methods and benchmarks implement these; the engine knows nothing else.

Everything that crosses a port is plain, picklable data. Asynchronous methods may be cancelled at any await.
"""

from __future__ import annotations

from chime_dist.core.task import TaskView
from chime_dist.ports.bank import BankQuery, BankReader, BankStore, Embedder, EmbedderFingerprint, Hit, Namespace
from chime_dist.ports.benchmark import (
    Action,
    Ask,
    Benchmark,
    Environment,
    Observation,
    PreparedBenchmark,
    Prerequisite,
)
from chime_dist.ports.clock import Clock
from chime_dist.ports.method import (
    CommitReply,
    CommitRequest,
    EpisodeContext,
    Method,
    Prepared,
    Reflection,
    ReflectionContext,
    StepHook,
)
from chime_dist.ports.models import Backbone, Models, Pacer
from chime_dist.ports.results import RecordStore
from chime_dist.ports.work import Appended, Change, Completed, DriverToken, Journal, Lease, Queue

__all__ = [
    "Action",
    "Appended",
    "Ask",
    "Backbone",
    "BankQuery",
    "BankReader",
    "BankStore",
    "Benchmark",
    "Change",
    "Clock",
    "CommitReply",
    "CommitRequest",
    "Completed",
    "DriverToken",
    "Embedder",
    "EmbedderFingerprint",
    "Environment",
    "EpisodeContext",
    "Hit",
    "Journal",
    "Lease",
    "Method",
    "Models",
    "Namespace",
    "Observation",
    "Pacer",
    "Prepared",
    "PreparedBenchmark",
    "Prerequisite",
    "Queue",
    "RecordStore",
    "Reflection",
    "ReflectionContext",
    "StepHook",
    "TaskView",
]
