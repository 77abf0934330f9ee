"""Tokens and money, by endpoint, role and what they were for, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from chime_dist.cli.invocation import suggested
from chime_dist.cli.output import plain_table
from chime_dist.core.duration import spelled
from chime_dist.core.episode import Json
from chime_dist.core.spending import Level, Payer, Purpose, Spent, money

_FOR: Mapping[Purpose, str] = {"episodes": "", "commits": " at commits", "prerequisites": " for prerequisites"}


def asked_as(who: Payer) -> str:
    """The role, and what it was asked for where that was no episode."""
    return f"{who.role}{_FOR[who.purpose]}"


def spending_table(spent: Spent) -> Table:
    """A row for every role that asked, and the sums."""
    heads = ("Asked", "Role", "Calls", "Requests", "Tokens in", "Cached", "Tokens out", "Cost")
    table = plain_table(*heads, title=Text("Spent"))
    for column in table.columns[2:]:
        column.justify = "right"
    for who, used in sorted(spent.usage.items()):
        counts = (used.calls, used.requests, used.prompt_tokens, used.cached_tokens, used.completion_tokens)
        cost = money(spent.cost_of(who), spent.currency)
        table.add_row(who.endpoint, asked_as(who), *(f"{count:,}" for count in counts), cost)
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
            {**who._asdict(), **used.model_dump(), "cost": spent.cost_of(who)}
            for who, used in sorted(spent.usage.items())
        ],
    }


def limits_text(found: Sequence[Level], spent: Spent) -> str:
    """Every limit with its share, or how long the launch has worked where there is none."""
    if not found:
        return f"wall time {spelled(spent.wall_s)}"
    return f"limits: {', '.join(f'{level.text} ({100 * level.share:.0f} %)' for level in found)}"


def go_on_beyond(launch: Path, level: Level) -> str:
    """The command that resumes a launch which a limit paused: with twice of it, or of what is spent already."""
    higher = 2 * (level.limit if 2 * level.limit > level.spent else level.spent)
    spelt = {"tokens": f"{higher:.0f}", "cost": f"{higher:.4g}", "wall": spelled(higher)}
    return suggested("resume", launch, f"--max-{level.name}", spelt[level.name])


def limits_document(found: Sequence[Level]) -> list[Json]:
    """Every limit that is set."""
    return [
        {"limit": level.name, "spent": level.spent, "of": level.limit, "reached": level.reached} for level in found
    ]
