"""The seams of the engine. Adapters, methods and benchmarks implement these; the engine knows nothing else.

Everything that crosses a port is plain, picklable data. Asynchronous methods may be cancelled at any await.

A method or a benchmark of one's own is a class that has what ``Method`` or ``Benchmark`` says; nothing is
inherited (``engine.stateless.Stateless`` is the learning half of a method without memory). It has a class
attribute ``Options``, a subclass of ``core.frozen.Frozen``, is built as ``Class(options)`` in every process of a
launch, and is found by an entry point in the group ``chime_dist.methods`` or ``chime_dist.benchmarks``, whose name
is what sweeps call it. A method's prompts are Jinja files ``NAME.j2`` in a folder ``prompts`` beside its module,
and a ``Turn`` names them ``METHOD/NAME``; see ``engine.prompting``. The README has an example of both.
"""

from __future__ import annotations

from chime_dist.core.task import TaskView
from chime_dist.ports.bank import (
    BankQuery,
    BankReader,
    BankStore,
    Embedded,
    Embedder,
    EmbedderFingerprint,
    Hit,
    Namespace,
)
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
    "Embedded",
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
