"""Methods and benchmarks by name: ours and any installed package's, through entry points.

A method is a class with ``Options`` (a pydantic model), built as ``Method(options)``, in a module that has a
folder ``prompts`` beside it; a benchmark likewise, with prompts only where it talks to models itself. The groups
are ``chime_dist.methods`` and ``chime_dist.benchmarks``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any, Protocol, cast

from chime_dist.config.expansion import Kind, Resolved
from chime_dist.config.problems import suggestion
from chime_dist.config.schema import Component
from chime_dist.config.validation import validated
from chime_dist.core.frozen import Frozen
from chime_dist.core.paper import PAPER
from chime_dist.engine.prompting import PromptLibrary
from chime_dist.errors import BenchmarkError, ConfigError
from chime_dist.ports import Benchmark, Method


class Pluggable(Protocol):
    """What an entry point names: a class built from its options."""

    Options: type[Frozen]

    def __call__(self, options: Frozen) -> Any:
        """Build the method or benchmark."""
        ...


@cache
def _entry_points(kind: Kind) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"chime_dist.{kind}s")}


@cache
def _load(kind: Kind, name: str) -> Pluggable:
    known = _entry_points(kind)
    if name not in known:
        raise ConfigError(f"there is no {kind} {name!r}; {suggestion(name, known)}")
    return cast("Pluggable", known[name].load())


def known(kind: Kind) -> frozenset[str]:
    """Names that an installed package registers."""
    return frozenset(_entry_points(kind))


def _options(kind: Kind, component: Component) -> Frozen:
    return validated(_load(kind, component.name).Options, component.options, f"{kind} {component.name}")


def method(component: Component) -> Method:
    """A method with its options; raises ConfigError."""
    return cast("Method", _load("method", component.name)(_options("method", component)))


def benchmark(component: Component) -> Benchmark:
    """A benchmark with its options; raises ConfigError, MissingExtraError."""
    return cast("Benchmark", _load("benchmark", component.name)(_options("benchmark", component)))


def prompt_folder(name: str, kind: Kind = "method") -> Traversable:
    """The folder of a method's or benchmark's prompts; a benchmark may have none there."""
    module = cast("type", _load(kind, name)).__module__
    return files(module.rpartition(".")[0]) / "prompts"


def prompts(methods: Iterable[str], benchmarks: Iterable[str] = ()) -> PromptLibrary:
    """The prompts of these methods, and of those benchmarks that have some."""
    asking = {name: prompt_folder(name, "benchmark") for name in benchmarks}
    own = {name: folder for name, folder in asking.items() if folder.is_dir()}
    return PromptLibrary({**own, **{name: prompt_folder(name) for name in methods}})


def resolve(kind: Kind, component: Component) -> Resolved:
    """``config.expansion.Resolve`` over the registry."""
    options = _options(kind, component).model_dump(mode="json")
    resolver: Callable[[Component], Resolved] = _resolved_method if kind == "method" else _resolved_benchmark
    return resolver(Component(name=component.name, options=options))


def _resolved_method(component: Component) -> Resolved:
    built = method(component)
    return Resolved(
        options=component.options,
        fingerprints={"prompts": prompts([component.name]).fingerprint(component.name)},
        epochs=None if built.collections else 1,
        window=built.max_window,
    )


def _resolved_benchmark(component: Component) -> Resolved:
    built = benchmark(component)
    try:
        fingerprints = built.fingerprint()
    except BenchmarkError as error:
        raise ConfigError(str(error)) from error
    paper = PAPER.get(component.name)
    return Resolved(
        options=component.options,
        fingerprints=fingerprints,
        epochs=paper.epochs if paper else None,
        window=paper.concurrency if paper else None,
    )
