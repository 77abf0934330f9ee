"""Methods and benchmarks by name: ours and any installed package's, through entry points.

A method is a class with ``Options`` (a pydantic model), built as ``Method(options)``, in a module that has a
folder ``prompts`` beside it; a benchmark likewise, with prompts only where it talks to models itself. The groups
are ``chime_dist.methods`` and ``chime_dist.benchmarks``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Protocol, cast

from chime_dist.config.expansion import Kind, Resolved
from chime_dist.config.problems import suggestion
from chime_dist.config.schema import Component
from chime_dist.config.validation import validated
from chime_dist.core.frozen import Frozen
from chime_dist.core.paper import PAPER
from chime_dist.engine.prompting import PromptLibrary
from chime_dist.errors import BenchmarkError, ChimeDistError, ConfigError
from chime_dist.ports import Benchmark, Method


class Pluggable(Protocol):
    """What an entry point names: a class built from its options."""

    Options: type[Frozen]

    def __call__(self, options: Frozen) -> Any:
        """Build the method or benchmark."""
        ...


_PARTS: Mapping[Kind, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    "method": (
        ("name", "collections", "max_window", "schemas"),
        ("calls", "prepare", "finish"),
        ("attempt", "reflect", "answer", "fallback"),
    ),
    "benchmark": (("name", "action_mode", "max_steps", "usual_steps"), ("tasks", "fingerprint"), ("open",)),
}
"""Attributes, functions and coroutine functions of ``ports.Method`` and ``ports.Benchmark``."""


@cache
def _entry_points(kind: Kind) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"chime_dist.{kind}s")}


@cache
def _load(kind: Kind, name: str) -> Pluggable:
    known = _entry_points(kind)
    if name not in known:
        raise ConfigError(f"there is no {kind} {name!r}; {suggestion(name, known)}")
    point = known[name]
    try:
        loaded = point.load()
    except Exception as error:
        raise ConfigError(f"{_origin(kind, point)} cannot be loaded: {type(error).__name__}: {error}") from error
    options = getattr(loaded, "Options", None)
    if not (isinstance(loaded, type) and isinstance(options, type) and issubclass(options, Frozen)):
        raise ConfigError(
            f"{_origin(kind, point)} is no class with an attribute Options that is a subclass of "
            "chime_dist.core.frozen.Frozen"
        )
    return cast("Pluggable", loaded)


def _origin(kind: Kind, point: EntryPoint) -> str:
    package = f" of the package {point.dist.name}" if point.dist is not None else ""
    return f"the {kind} {point.name!r} ({point.value}{package})"


def _built(kind: Kind, component: Component) -> Any:
    loaded, options = _load(kind, component.name), _options(kind, component)
    origin = _origin(kind, _entry_points(kind)[component.name])
    try:
        part = loaded(options)
    except ChimeDistError:
        raise
    except Exception as error:
        raise ConfigError(f"{origin} cannot be built: {type(error).__name__}: {error}") from error
    attributes, functions, coroutines = _PARTS[kind]
    missing = [name for name in (*attributes, *functions, *coroutines) if not hasattr(part, name)]
    if missing:
        raise ConfigError(f"{origin} lacks {', '.join(missing)}; see chime_dist.ports.{kind.capitalize()}")
    wrong = [f"async def {name}" for name in coroutines if not inspect.iscoroutinefunction(getattr(part, name))]
    wrong += [f"def {name}" for name in functions if inspect.iscoroutinefunction(getattr(part, name))]
    if wrong:
        raise ConfigError(f"{origin} must have {', '.join(wrong)}; see chime_dist.ports.{kind.capitalize()}")
    return part


def known(kind: Kind) -> frozenset[str]:
    """Names that an installed package registers."""
    return frozenset(_entry_points(kind))


def _options(kind: Kind, component: Component) -> Frozen:
    return validated(_load(kind, component.name).Options, component.options, f"{kind} {component.name}")


def method(component: Component) -> Method:
    """A method with its options; raises ConfigError, also for a class that does not have what a method has."""
    return cast("Method", _built("method", component))


def benchmark(component: Component) -> Benchmark:
    """A benchmark with its options; raises ConfigError like ``method``, and MissingExtraError."""
    return cast("Benchmark", _built("benchmark", component))


def prompt_folder(name: str, kind: Kind = "method") -> Traversable:
    """The folder of a method's or benchmark's prompts; a benchmark may have none there.

    Raises ConfigError where a method has none.
    """
    module = inspect.getmodule(_load(kind, name))
    package = module.__package__ if module is not None else None
    folder = files(package) / "prompts" if package else Path(inspect.getfile(_load(kind, name))).parent / "prompts"
    if kind == "method" and not folder.is_dir():
        raise ConfigError(
            f"{_origin(kind, _entry_points(kind)[name])} has no folder of prompts: expected {folder}, with a file "
            "NAME.j2 for every template. In an installed package it must be listed as package data"
        )
    return folder


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
