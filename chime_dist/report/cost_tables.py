"""Tables about what episodes cost and how they ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

from chime_dist.core.aggregate import rounded
from chime_dist.core.episode import EndReason, Role
from chime_dist.core.spending import Purpose, tokens_of
from chime_dist.report.document import Charge, CostLine, Report
from chime_dist.report.layout import NOTHING, Label, Table, amount, rate

_NOT_EPISODES: Mapping[Purpose, str] = {"commits": "of it at commits", "prerequisites": "of it for prerequisites"}


def per_success(report: Report, labels: Sequence[Label]) -> Table:
    """What one solved episode cost; the unsolved ones beside it are paid for too."""
    priced = bool(report.options.prices)
    rows = []
    for label, row in zip(labels, report.rows, strict=True):
        for phase, cost in row.spending:
            spent = (cost.asked.calls, cost.asked.prompt_tokens, cost.asked.completion_tokens)
            per = (rounded(Fraction(n, cost.successes), 1) if cost.successes else NOTHING for n in spent)
            paid = [amount(cost.cost_per_success)] if priced else []
            rows.append((*label, phase, f"{cost.successes}/{cost.episodes}", *map(str, per), *paid))
    return Table(
        title="Calls, tokens and cost per success" if priced else "Calls and tokens per success",
        header=(
            *("Benchmark", "Backbone", "Method", "Phase"),
            "Successes / episodes",
            "Calls",
            "Prompt tokens",
            "Completion tokens",
            *(["Cost"] if priced else []),
        ),
        rows=tuple(rows),
        names=4,
    )


def by_role(report: Report, labels: Sequence[Label]) -> Table:
    """What was asked of which role."""
    rows: list[tuple[str, ...]] = []
    for label, row in zip(labels, report.rows, strict=True):
        for phase, cost in row.spending:
            episodes = (NOTHING, NOTHING)
            if isinstance(cost, CostLine):
                episodes = (str(cost.episodes), f"{cost.mean_duration_s:.1f}")
            if not cost.usage:
                rows.append((*label, phase, NOTHING, *episodes, "0", "0", "0", "0", "0"))
            for role, spent in cost.usage.items():
                counts = (
                    spent.calls,
                    spent.requests,
                    spent.prompt_tokens,
                    spent.cached_tokens,
                    spent.completion_tokens,
                )
                rows.append((*label, phase, role, *episodes, *map(str, counts)))
    return Table(
        title="Calls and tokens by role",
        header=(
            "Benchmark",
            "Backbone",
            "Method",
            "Phase",
            "Role",
            "Episodes",
            "Mean seconds",
            "Calls",
            "Requests",
            "Prompt tokens",
            "of them cached",
            "Completion tokens",
        ),
        rows=tuple(rows),
        names=5,
    )


def costs(report: Report, labels: Sequence[Label]) -> Table:
    """Who answered which role, and for how much.

    Empty where no price is known and no role asks another backbone than its row's.
    """
    elsewhere = any(
        role != Role.EMBEDDER and name != row.backbone
        for row in report.rows
        for role, name in row.endpoints.items()
    )
    rows: list[tuple[str, ...]] = []
    for label, row in zip(labels, report.rows, strict=True):
        for phase, cost in row.spending:
            for role, spent in cost.usage.items():
                paid = cost.costs[role]
                per = None if paid is None or not cost.successes else paid / cost.successes
                tokens = str(tokens_of(spent))
                rows.append((*label, phase, role, row.endpoints[role], tokens, amount(paid), amount(per)))
            if len(cost.usage) > 1:
                sums = (amount(cost.cost), amount(cost.cost_per_success))
                rows.append((*label, phase, "all", NOTHING, str(sum(map(tokens_of, cost.usage.values()))), *sums))
    return Table(
        title="Cost by role",
        header=(
            *("Benchmark", "Backbone", "Method", "Phase", "Role", "Answered by"),
            *("Tokens", "Cost", "Cost per success"),
        ),
        rows=tuple(rows) if report.options.prices or elsewhere else (),
        names=6,
    )


def spent(report: Report) -> Table:
    """What the whole launch asked of each endpoint, whatever came of it, and what of it was not for episodes."""
    charges = {**report.spent, "all": report.total}
    charges |= {name: report.purposes[key] for key, name in _NOT_EPISODES.items() if key in report.purposes}
    return Table(
        title="Spent by the launch, in all",
        header=(
            *("Answered by", "Calls", "Requests"),
            *("Prompt tokens", "of them cached", "Completion tokens", "Cost"),
        ),
        rows=tuple(_charged(name, found) for name, found in charges.items()) if report.spent else (),
        names=1,
    )


def _charged(name: str, found: Charge) -> tuple[str, ...]:
    used = found.usage
    counts = (used.calls, used.requests, used.prompt_tokens, used.cached_tokens, used.completion_tokens)
    return (name, *map(str, counts), amount(found.cost))


def ends(report: Report, labels: Sequence[Label]) -> Table:
    """Every end but a benchmark's own: caps, unusable replies, infra."""

    def found(cost: CostLine) -> Mapping[str, int]:
        return {reason.value: count for reason, count in cost.ends.items() if reason is not EndReason.SCORED}

    return _shares(report, labels, "Ends other than scored", "End", found)


def flags(report: Report, labels: Sequence[Label]) -> Table:
    """Remarks of benchmarks that make some; see ``ports.Observation``."""
    return _shares(report, labels, "What the benchmark remarked", "Flag", lambda cost: cost.flags)


def _shares(
    report: Report, labels: Sequence[Label], title: str, what: str, count: Callable[[CostLine], Mapping[str, int]]
) -> Table:
    rows = [
        (*label, phase, name, str(number), rate(Fraction(number, cost.episodes)))
        for label, row in zip(labels, report.rows, strict=True)
        for phase, cost in row.cost.items()
        for name, number in count(cost).items()
    ]
    return Table(
        title=title,
        header=("Benchmark", "Backbone", "Method", "Phase", what, "Episodes", "% of phase"),
        rows=tuple(rows),
        names=5,
    )


def left_out(report: Report, labels: Sequence[Label]) -> Table:
    """Where prompts were cut (R36)."""
    rows = [
        (*label, phase, role, str(spent.left_out), str(spent.calls))
        for label, row in zip(labels, report.rows, strict=True)
        for phase, cost in row.spending
        for role, spent in cost.usage.items()
        if spent.left_out
    ]
    return Table(
        title="Observations left out of prompts that were too long",
        header=("Benchmark", "Backbone", "Method", "Phase", "Role", "Left out", "Calls"),
        rows=tuple(rows),
        names=5,
    )
