"""What a sweep would do: its runs, about what they cost, and which services they would use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

from rich.console import RenderableType
from rich.text import Text

from chime_dist.cli.output import counted
from chime_dist.cli.run_outline import Preparation, RunOutline, prerequisites, summed
from chime_dist.config.cluster import ClusterConfig, Endpoint, HttpEndpoint, LlamaCppEndpoint
from chime_dist.config.sweep import SweepConfig
from chime_dist.core.episode import Json, Role, Usage
from chime_dist.core.estimate import Tokens
from chime_dist.core.spending import Price, cost
from chime_dist.report.layout import Table
from chime_dist.report.terminal import Fitted
from chime_dist.wiring.plans import PlannedRun, shortfalls

ESTIMATE = (
    "About: what the method asks per episode, and as many executor calls as the benchmark's episodes usually take "
    "steps. At most: every episode takes all the steps it may. The gate is asked for train episodes only; repairs "
    "of its replies, merges and retries come on top of both. Tokens and bytes are averages times calls and "
    "episodes; where the averages come from is said in chime_dist.core.estimate, and for benchmarks that are not "
    "there yet they are guesses. Prices take no prompt as cached, and leave out what an embedder's server charges."
)


class Amounts(NamedTuple):
    """Money, in the currency of all prices."""

    about: float
    at_most: float

    def text(self, currency: str) -> str:
        """Both, in words."""
        return f"About {_price(self.about)} {currency}, at most {_price(self.at_most)} {currency}"


@dataclass(frozen=True, slots=True)
class Outline:
    """A sweep that was not started."""

    sweep: str
    runs: tuple[RunOutline, ...]
    episodes: int
    calls: dict[str, int]
    """About how many model calls by role, over all runs and prerequisites; see ``ESTIMATE``."""
    calls_at_most: dict[str, int]
    tokens: dict[str, Tokens]
    """About how many by backbone, over all runs and prerequisites."""
    tokens_at_most: dict[str, Tokens]
    costs: dict[str, Amounts | None]
    """By backbone likewise; None for one without a price. Empty where none has a price."""
    currency: str | None
    disk_bytes: int
    """About what all run folders hold together."""
    missing: tuple[str, ...]
    """What is planned or left out without being installed, in words. Such a sweep cannot start, or falls short."""
    prerequisites: tuple[Preparation, ...]
    services: dict[str, str]
    endpoints: dict[str, str]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, sweep: SweepConfig, runs: Sequence[PlannedRun], warnings: Sequence[str]) -> Outline:
        """Of a planned sweep. Raises ConfigError."""
        outlines = tuple(RunOutline.of(run) for run in runs)
        needed = prerequisites(runs)
        calls, at_most = Counter[str](), Counter[str]()
        for outline in outlines:
            calls.update(outline.calls)
            at_most.update(outline.calls_at_most)
        for once in needed:
            calls[Role.EXECUTOR.value] += once.calls
            at_most[Role.EXECUTOR.value] += once.calls_at_most
        spent = summed(
            [
                *(item for o in outlines for item in o.tokens.items()),
                *((p.backbone, p.tokens) for p in needed),
            ]
        )
        spent_at_most = summed(
            [
                *(item for o in outlines for item in o.tokens_at_most.items()),
                *((p.backbone, p.tokens_at_most) for p in needed),
            ]
        )
        prices = sweep.cluster.prices
        return cls(
            sweep=sweep.name,
            runs=outlines,
            episodes=sum(outline.episodes for outline in outlines),
            calls=dict(calls),
            calls_at_most=dict(at_most),
            tokens=spent,
            tokens_at_most=spent_at_most,
            costs={name: _amounts(prices.get(name), size, spent_at_most[name]) for name, size in spent.items()}
            if prices
            else {},
            currency=next((price.currency for price in prices.values()), None),
            disk_bytes=sum(outline.disk_bytes for outline in outlines),
            missing=shortfalls(sweep, runs),
            prerequisites=needed,
            services=_services(sweep.cluster),
            endpoints={name: _address(endpoint) for name, endpoint in sweep.cluster.endpoints.items()},
            warnings=tuple(warnings),
        )

    def document(self) -> Json:
        """For programs."""
        dumped: dict[str, Json] = _spelled(asdict(self))
        for run, outline in zip(dumped["runs"], self.runs, strict=True):
            run["episodes"] = outline.episodes
        return {**dumped, "estimate": ESTIMATE}

    def rendered(self) -> list[RenderableType]:
        """For people."""
        about, at_most = sum(self.calls.values()), sum(self.calls_at_most.values())
        by_role = ", ".join(f"{role} {count:,}" for role, count in self.calls.items())
        return [
            Fitted(self._table()),
            Text(f"{counted(len(self.runs), 'run')}, {counted(self.episodes, 'episode')}"),
            *(Text(f"NOT INSTALLED {line}", style="bold yellow") for line in self.missing),
            Text(f"About {about:,} model calls ({by_role}), at most {at_most:,}"),
            *(
                Text(
                    f"About {_short(size.prompt)} prompt and {_short(size.completion)} completion tokens: {model}"
                )
                for model, size in self.tokens.items()
            ),
            *map(Text, self._price_lines()),
            Text(f"About {_short(self.disk_bytes)}B of results"),
            *(
                Text(
                    f"before the first episode of {once.benchmark}, by {once.backbone}: "
                    f"{counted(once.count, 'prerequisite')}, about {once.calls:,} of the model calls"
                )
                for once in self.prerequisites
            ),
            Text(ESTIMATE, style="dim"),
            *(Text(f"{name}: {what}") for name, what in self.services.items()),
            *(Text(f"endpoint {name}: {address}") for name, address in self.endpoints.items()),
        ]

    def _price_lines(self) -> Iterator[str]:
        known = {name: amounts for name, amounts in self.costs.items() if amounts is not None}
        if self.currency is None or not known:
            return
        total = Amounts(*(sum(amounts) for amounts in zip(*known.values(), strict=True)))
        yield from (f"{amounts.text(self.currency)}: {name}" for name, amounts in known.items())
        unknown = [name for name, amounts in self.costs.items() if amounts is None]
        if unknown:
            yield f"{total.text(self.currency)}: all but {', '.join(unknown)}, whose price is not known"
        elif len(known) > 1:
            yield f"{total.text(self.currency)}: all"

    def _table(self) -> Table:
        """The runs, a line for those that differ in their ordering alone; settings where names are equal."""
        groups: dict[tuple[object, ...], list[RunOutline]] = {}
        for run in self.runs:
            shape = (run.train, run.epochs, run.eval, run.window)
            settings = tuple(run.settings.items())
            groups.setdefault((run.benchmark, run.backbone, run.method, settings, *shape), []).append(run)
        alike = Counter((run.benchmark, run.backbone, run.method) for run, *_ in groups.values())
        return Table(
            title=f"Sweep {self.sweep}, not started",
            header=(
                *("Benchmark", "Backbone", "Method", "Orderings"),
                *("Train x epochs", "Eval", "Window", "Episodes", "Calls", "Tokens"),
            ),
            rows=tuple(
                _line(members, alike[members[0].benchmark, members[0].backbone, members[0].method] > 1)
                for members in groups.values()
            ),
            names=4,
        )


def _line(members: Sequence[RunOutline], with_settings: bool) -> tuple[str, ...]:
    first = members[0]
    settings = [f"{path}={value}" for path, value in first.settings.items()] if with_settings else []
    return (
        first.benchmark,
        first.backbone,
        " ".join([first.method, *settings]),
        ", ".join(str(run.ordering) for run in members),
        f"{first.train} x {first.epochs}",
        str(first.eval),
        str(first.window),
        f"{sum(run.episodes for run in members):,}",
        _short(sum(sum(run.calls.values()) for run in members)),
        _short(sum(sum(size) for run in members for size in run.tokens.values())),
    )


def _amounts(price: Price | None, about: Tokens, at_most: Tokens) -> Amounts | None:
    if price is None:
        return None
    sizes = (Usage(prompt_tokens=size.prompt, completion_tokens=size.completion) for size in (about, at_most))
    return Amounts(*(cost(size, price) for size in sizes))


def _price(amount: float) -> str:
    """Three figures, as of everything that is estimated; whole units from a thousand on."""
    return f"{amount:,.0f}" if amount >= 1000 else f"{amount:.3g}"


def _spelled(value: Json) -> Json:
    """Named tuples as objects, wherever they are."""
    if isinstance(value, Tokens | Amounts):
        return value._asdict()
    if isinstance(value, dict):
        return {key: _spelled(part) for key, part in value.items()}
    return [_spelled(part) for part in value] if isinstance(value, list | tuple) else value


def _short(number: int) -> str:
    """About ``number``: three figures and a letter for the thousands."""
    for letter, unit in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= unit:
            return f"{number / unit:.3g} {letter}"
    return f"{number} "


def _services(cluster: ClusterConfig) -> dict[str, str]:
    # What a secret prints as is what was written, or a mask: never its value.
    size = f"{counted(cluster.slots, 'slot')}, {counted(cluster.workers, 'worker')}"
    services = {
        "execution": f"{cluster.execution}, {size}",
        "redis": str(cluster.redis.url or cluster.redis.mode),
        "qdrant": str(cluster.qdrant.url or cluster.qdrant.mode),
        "results": f"below {cluster.runs_dir}",
    }
    if cluster.execution == "ray":
        services["ray"] = cluster.ray.address or "started on this machine"
    return services


def _address(endpoint: Endpoint) -> str:
    if isinstance(endpoint, HttpEndpoint):
        return str(endpoint.url)
    if isinstance(endpoint, LlamaCppEndpoint):
        return f"llama.cpp, started on this machine with {counted(endpoint.slots, 'slot')}"
    return "scripted, in this process"
