"""What calls cost, what a launch has spent, and how near its limits are."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.episode import Usage
from chime_dist.core.spending import BusyTime, Limits, Payer, Price, Spent, cost, levels, money, tokens_of

PRICE = Price(input=0.10, cached_input=0.02, output=0.40)
USED = Usage(calls=3, requests=4, prompt_tokens=2_000_000, cached_tokens=500_000, completion_tokens=100_000)


def test_tokens_cost_by_their_kind() -> None:
    """1.5 M at 0.10, 0.5 M cached at 0.02, 0.1 M out at 0.40."""
    assert cost(USED, PRICE) == pytest.approx(0.15 + 0.01 + 0.04)
    assert cost(USED, Price(input=0.10, output=0.40)) == pytest.approx(0.20 + 0.04)


def test_no_more_tokens_are_cached_than_were_sent() -> None:
    used = Usage(prompt_tokens=1_000_000, cached_tokens=3_000_000)
    assert cost(used, PRICE) == pytest.approx(0.02)


def test_amounts_are_written_with_their_currency() -> None:
    assert [money(amount, "EUR") for amount in (None, 0, 0.00012, 0.05, 1234.5)] == [
        "-",
        "0.00 EUR",
        "0.000120 EUR",
        "0.0500 EUR",
        "1,234.50 EUR",
    ]


def _spent(*, priced: bool = True, wall_s: float = 90.0) -> Spent:
    usage = {
        Payer("m", "planner"): USED,
        Payer("free", "gate"): Usage(prompt_tokens=1_000, completion_tokens=123),
        Payer("embedder", "embedder"): Usage(calls=9),
    }
    prices = {"m": PRICE, **({"free": Price(input=0, output=0)} if priced else {})}
    return Spent(usage, prices, wall_s)


def test_what_is_spent_is_the_sum_over_endpoints_and_roles() -> None:
    spent = _spent()
    assert spent.tokens == 2_101_123 == sum(tokens_of(used) for used in spent.usage.values())
    assert spent.cost == pytest.approx(0.20)
    assert spent.currency == "USD"
    assert spent.cost_of(Payer("free", "gate")) == 0.0


def test_a_price_that_is_not_known_makes_the_sum_unknown_where_tokens_were_used() -> None:
    """The embedder reports no tokens, so its missing price does not matter."""
    spent = _spent(priced=False)
    assert spent.cost is None
    assert spent.cost_of(Payer("free", "gate")) is None
    assert spent.known_cost == pytest.approx(0.20)
    assert Spent({}, {}, 0.0).cost is None
    assert Spent({}, {}, 0.0).currency == "USD"
    assert Spent({}, {"m": PRICE}, 0.0).cost == 0.0


def test_a_limit_is_near_at_four_fifths_and_reached_when_it_is_met() -> None:
    assert levels(Limits(), _spent()) == ()
    tokens, money_, wall = levels(Limits(tokens=2_500_000, cost=0.2, wall_s=9_000), _spent())
    assert (tokens.near, tokens.reached, tokens.text) == (True, False, "tokens 2,101,123 of 2,500,000")
    assert (money_.near, money_.text) == (True, "cost 0.2000 USD of 0.2000 USD")
    assert (wall.near, wall.reached, wall.text) == (False, False, "wall time 1m30s of 2h30m")
    [met] = levels(Limits(tokens=2_101_123), _spent())
    assert (met.reached, met.share) == (True, 1.0)


def test_overlapping_and_near_spans_are_one() -> None:
    busy = BusyTime(gap_s=10.0)
    for start, end in ((100.0, 110.0), (105.0, 120.0), (300.0, 301.0), (125.0, 126.0), (0.0, 1.0)):
        busy.add(start, end)
    assert busy.seconds == pytest.approx(26.0 + 1.0 + 1.0)
    busy.add(0.0, 400.0)
    assert busy.seconds == pytest.approx(400.0)


_SPANS = st.lists(
    st.tuples(st.integers(0, 200), st.integers(0, 20)).map(lambda s: (s[0], s[0] + s[1])), max_size=12
)


@given(_SPANS, st.integers(0, 15), st.randoms())
def test_busy_time_does_not_depend_on_the_order_of_spans(
    spans: list[tuple[int, int]], gap: int, chance: Random
) -> None:
    """Against one pass over the spans by their starts."""
    expected, since, until = 0, 0, -1_000
    for start, end in sorted(spans):
        if start > until + gap:
            expected += max(0, until - since)
            since, until = start, end
        until = max(until, end)
    expected += max(0, until - since)
    chance.shuffle(spans)
    busy = BusyTime(gap)
    for start, end in spans:
        busy.add(start, end)
    assert busy.seconds == expected
