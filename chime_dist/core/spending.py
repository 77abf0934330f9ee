"""What a launch has spent, in tokens, money and time, and how near that is to what it may spend."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar

from pydantic import Field

from chime_dist.core.duration import spelled
from chime_dist.core.episode import Role, Usage
from chime_dist.core.frozen import Frozen

_Key = TypeVar("_Key", bound=Hashable)

NEAR = 0.8
"""Share of a limit from which on it is worth a warning."""

_PRICED_TOKENS = 1_000_000


class Price(Frozen):
    """What an endpoint asks for a million tokens."""

    input: float = Field(ge=0)
    """Of a prompt."""
    output: float = Field(ge=0)
    """Of a completion."""
    cached_input: float | None = Field(default=None, ge=0)
    """Of a prompt, for tokens out of the server's prefix cache; None where they cost as much as others."""
    currency: str = Field(default="USD", pattern=r"^[A-Z]{3}$")
    """Three letters of ISO 4217."""


def cost(usage: Usage, price: Price) -> float:
    """What the tokens of ``usage`` cost, in the price's currency."""
    # A server may count cached tokens of attempts whose prompts it does not bill.
    cached = min(usage.cached_tokens, usage.prompt_tokens)
    cached_price = price.input if price.cached_input is None else price.cached_input
    sums = (usage.prompt_tokens - cached) * price.input + cached * cached_price
    return (sums + usage.completion_tokens * price.output) / _PRICED_TOKENS


def amount_text(amount: float) -> str:
    """``0.0123``, ``1,234.50``: small amounts with more decimals."""
    decimals = 2 if amount >= 1 or amount == 0 else 4 if amount >= 0.01 else 6
    return f"{amount:,.{decimals}f}"


def money(amount: float | None, currency: str) -> str:
    """``0.0123 USD``, ``1,234.50 USD``; ``-`` for an amount that is not known."""
    return "-" if amount is None else f"{amount_text(amount)} {currency}"


Purpose = Literal["episodes", "commits", "prerequisites"]
"""What a model was asked for: by an episode, by its commit at the bank, or before the runs began."""


class Payer(NamedTuple):
    """Who asked whom, and what for."""

    endpoint: str
    """A backbone's name, or ``embedder``."""
    role: str
    purpose: Purpose = "episodes"


def prerequisite_payer(backbone: str) -> Payer:
    """Who asked for what is built before the runs: an executor, the one whose episodes rest on it."""
    return Payer(backbone, Role.EXECUTOR.value, "prerequisites")


@dataclass(frozen=True, slots=True)
class Spent:
    """Sums over all finished attempts of a launch, infra and history included, over its commits, and over what was
    built before its runs; whichever driver did it."""

    usage: Mapping[Payer, Usage]
    prices: Mapping[str, Price]
    """By endpoint, of those whose price is known; all in one currency."""
    wall_s: float
    """Seconds in which a driver had episodes open, or drives now."""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens of all roles, as far as they were reported."""
        return sum(tokens_of(used) for used in self.usage.values())

    @property
    def currency(self) -> str:
        """Of all amounts."""
        return next((price.currency for price in self.prices.values()), "USD")

    @property
    def cost(self) -> float | None:
        """None where tokens were used whose price is not known, or no price is."""
        amounts = [self.cost_of(payer) for payer, used in self.usage.items() if tokens_of(used)]
        if not self.prices or any(amount is None for amount in amounts):
            return None
        return self.known_cost

    @property
    def known_cost(self) -> float:
        """Of the tokens whose price is known."""
        return sum(self.cost_of(payer) or 0.0 for payer in self.usage)

    def cost_of(self, payer: Payer) -> float | None:
        """What one role spent on one endpoint; None where the price is not known."""
        price = self.prices.get(payer.endpoint)
        return None if price is None else cost(self.usage[payer], price)


def add_usage(sums: dict[_Key, Usage], more: Iterable[tuple[_Key, Usage]]) -> None:
    """Add up by key, in place."""
    for key, used in more:
        sums[key] = sums.get(key, Usage()) + used


def tokens_of(usage: Usage) -> int:
    """Prompt and completion together."""
    return usage.prompt_tokens + usage.completion_tokens


class Limits(Frozen):
    """How much a launch may spend, over all its drivers; None is without a limit."""

    tokens: int | None = Field(default=None, ge=1)
    """Prompt and completion tokens of all roles."""
    cost: float | None = Field(default=None, gt=0)
    """In the currency of the endpoints' prices."""
    wall_s: float | None = Field(default=None, gt=0)
    """Seconds, see ``Spent.wall_s``."""


@dataclass(frozen=True, slots=True)
class Level:
    """One limit, and how much of it is used up."""

    name: Literal["tokens", "cost", "wall"]
    spent: float
    limit: float
    text: str
    """Both in words, e.g. ``tokens 1,000,123 of 1,000,000``."""

    @property
    def share(self) -> float:
        """0 and more; from 1 on the limit is reached."""
        return self.spent / self.limit

    @property
    def near(self) -> bool:
        """Whether a warning is due."""
        return self.share >= NEAR

    @property
    def reached(self) -> bool:
        """Whether no more may be claimed."""
        return self.spent >= self.limit


def levels(limits: Limits, spent: Spent) -> tuple[Level, ...]:
    """Every limit that is set. Tokens without a known price do not count towards the cost."""
    found = []
    if limits.tokens is not None:
        text = f"tokens {spent.tokens:,} of {limits.tokens:,}"
        found.append(Level("tokens", spent.tokens, limits.tokens, text))
    if limits.cost is not None:
        known = spent.known_cost
        text = f"cost {money(known, spent.currency)} of {money(limits.cost, spent.currency)}"
        found.append(Level("cost", known, limits.cost, text))
    if limits.wall_s is not None:
        text = f"wall time {spelled(spent.wall_s)} of {spelled(limits.wall_s)}"
        found.append(Level("wall", spent.wall_s, limits.wall_s, text))
    return tuple(found)


class BusyTime:
    """How long anything of a set of spans of time lasted; spans may come in any order and overlap.

    What lies between two spans counts as well where it is no longer than ``gap_s`` seconds: from one episode to
    the next a driver is not idle.
    """

    def __init__(self, gap_s: float) -> None:
        self._gap_s = gap_s
        self._starts: list[float] = []
        self._ends: list[float] = []
        self.seconds = 0.0
        """The sum."""

    def add(self, start: float, end: float) -> None:
        """One more span, in seconds of any clock; ``start`` is not after ``end``."""
        first = bisect_left(self._ends, start - self._gap_s)
        beyond = bisect_right(self._starts, end + self._gap_s)
        joined = range(first, beyond)
        if joined:
            start, end = min(start, self._starts[first]), max(end, self._ends[beyond - 1])
        self.seconds += end - start - sum(self._ends[i] - self._starts[i] for i in joined)
        self._starts[first:beyond] = [start]
        self._ends[first:beyond] = [end]
