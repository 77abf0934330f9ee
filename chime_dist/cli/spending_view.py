"""Tokens and money, by endpoint and role, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from chime_dist.cli.invocation import suggested
from chime_dist.core.duration import spelled
from chime_dist.core.episode import Json
from chime_dist.core.spending import Level, Spent, money


def spending_table(spent: Spent) -> Table:
    """A row for every role that asked, and the sums."""
    heads = ("Asked", "Role", "Calls", "Requests", "Tokens in", "Cached", "Tokens out", "Cost")
    table = Table(*heads, title="Spent", title_justify="left")
    for column in table.columns[2:]:
        column.justify = "right"
    for who, used in sorted(spent.usage.items()):
        counts = (used.calls, used.requests, used.prompt_tokens, used.cached_tokens, used.completion_tokens)
        cost = money(spent.cost_of(who), spent.currency)
        table.add_row(who.endpoint, who.role, *(f"{count:,}" for count in counts), cost)
    table.add_section()
    whole = tuple(spent.usage.values())
    sums = (
        sum(used.calls for used in whole),
        sum(used.requests for used in whole),
        sum(used.prompt_tokens for used in whole),
        sum(used.cached_tokens for used in whole),
        sum(used.completion_tokens for used in whole),
    )
    table.add_row("all", "", *(f"{total:,}" for total in sums), money(spent.cost, spent.currency))
    return table


def spending_document(spent: Spent) -> dict[str, Json]:
    """The same; an amount that is not known is null."""
    return {
        "tokens": spent.tokens,
        "cost": spent.cost,
        "currency": spent.currency,
        "wall_s": spent.wall_s,
        "by": [
            {"endpoint": who.endpoint, "role": who.role, **used.model_dump(), "cost": spent.cost_of(who)}
            for who, used in sorted(spent.usage.items())
        ],
    }


def limits_text(found: Sequence[Level], spent: Spent) -> str:
    """Every limit with its share, or how long the launch has worked where there is none."""
    if not found:
        return f"wall time {spelled(spent.wall_s)}"
    return f"limits: {', '.join(f'{level.text} ({100 * level.share:.0f} %)' for level in found)}"


def go_on_beyond(launch: Path, level: Level) -> str:
    """The command that resumes a launch which a limit paused, with twice of it."""
    doubled = {
        "tokens": f"{2 * level.limit:.0f}",
        "cost": f"{2 * level.limit:g}",
        "wall": spelled(2 * level.limit),
    }
    return suggested("resume", launch, f"--max-{level.name}", doubled[level.name])


def limits_document(found: Sequence[Level]) -> list[Json]:
    """Every limit that is set."""
    return [
        {"limit": level.name, "spent": level.spent, "of": level.limit, "reached": level.reached} for level in found
    ]
