"""Value-aware reranking: the worked numbers of R12 to R17."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chime_dist.core.bank import ItemId, Record
from chime_dist.core.episode import Recall
from chime_dist.core.retrieval import RetrievalParams, adjusted_value, rerank, score
from chime_dist.errors import JournalError
from chime_dist.ports import Hit

DEFAULTS = RetrievalParams()


def hit(item: str, sim: float, value: float = 0.0, count: int = 0, version: int = 0) -> Hit:
    payload = {"scenario": f"scenario of {item}", "experience": f"experience of {item}", "value": value}
    record = Record(collection="plan", id=item, version=version, payload={**payload, "count": count})
    return Hit(record=record, sim=sim)


def ranked(*hits: Hit, **params: Any) -> Recall:
    return rerank(hits, RetrievalParams(**params), "plan", "the query", 12)


def order(*hits: Hit, **params: Any) -> list[str]:
    return [memory.id for memory in ranked(*hits, **params).selected]


A = hit("0-0", 0.80, value=0.5, count=3)
B = hit("1-0", 0.78, value=0.9, count=6)
C = hit("2-0", 0.771, value=0.9, count=6)
D = hit("3-0", 0.80)
E = hit("4-0", 0.75, value=0.1, count=3)


def test_defaults_are_those_of_table_7() -> None:
    """R12 to R16: N 20, K 3, threshold 0.3, lambda 3, alpha 1, beta 0.2, margin 0.03."""
    values = (DEFAULTS.candidates, DEFAULTS.k, DEFAULTS.min_similarity, DEFAULTS.smoothing)
    assert values == (20, 3, 0.3, 3.0)
    assert (DEFAULTS.alpha, DEFAULTS.beta, DEFAULTS.near_tie, DEFAULTS.near_tie_margin) == (
        1.0,
        0.2,
        "relevance",
        0.03,
    )


def test_similarity_at_the_threshold_is_kept_and_below_it_dropped() -> None:
    """R12: drop sim < 0.3, keep >= 0.3; fewer than K may return."""
    recall = ranked(hit("0-0", 0.3), hit("1-0", 0.299999), hit("2-0", 0.31))
    assert [c.id for c in recall.candidates] == ["2-0", "0-0"]
    assert [memory.id for memory in recall.selected] == ["2-0", "0-0"]


def test_nothing_similar_gives_an_empty_recall() -> None:
    """R12: none may return."""
    assert ranked(hit("0-0", 0.1)) == Recall(collection="plan", query="the query", version=12)


def test_only_the_top_n_by_similarity_are_reranked_and_only_k_selected() -> None:
    """R13: N = 20 by similarity, then K = 3; a valuable memory at place 21 has no chance."""
    crowd = [hit(f"{i}-0", round(0.9 - i * 0.001, 6)) for i in range(20)]
    late = hit("20-0", 0.8799, value=1.0, count=100)
    recall = ranked(late, *crowd)
    assert len(recall.selected) == 3
    assert [c.id for c in recall.candidates] == [found.record.id for found in crowd]


@pytest.mark.parametrize(("value", "count", "expected"), [(-0.5, 3, -0.25), (0.3, 1, 0.075), (0.9, 0, 0.0)])
def test_rarely_used_values_shrink_toward_zero(value: float, count: int, expected: float) -> None:
    """R14: v~ = v n / (n + 3)."""
    assert adjusted_value(value, count, DEFAULTS.smoothing) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("sim", "value", "count", "expected"),
    [
        (0.8, -0.5, 3, 0.64),
        (0.8, 0.5, 3, 0.96),
        (0.8, 0.3, 1, 0.86),
        (0.8, 0.9, 0, 0.80),
        (0.8, 0.4, 2, 0.928),
        (0.31, -1.0, 9, 0.248),
        (0.70, 1.0, 9, 0.84),
    ],
)
def test_score_of_equation_5(sim: float, value: float, count: int, expected: float) -> None:
    """R15: score = sim (1 + clip(v~, -0.2, 0.2))."""
    assert score(sim, adjusted_value(value, count, 3.0), DEFAULTS) == pytest.approx(expected, abs=1e-12)


def test_the_threshold_tests_similarity_not_score() -> None:
    """R15: sim 0.31 with score 0.248 stays a candidate."""
    assert order(hit("0-0", 0.31, value=-1.0, count=9)) == ["0-0"]


def test_a_proven_memory_beats_a_closer_misleading_one() -> None:
    """R15: (0.80, v -0.5, n 3) = 0.64 loses to (0.70, v 1, n 9) = 0.84."""
    assert order(hit("0-0", 0.80, value=-0.5, count=3), hit("1-0", 0.70, value=1.0, count=9)) == ["1-0", "0-0"]


def test_alpha_weighs_the_value_and_beta_bounds_it() -> None:
    """R15, S0 Eq. 5."""
    assert score(0.8, 0.1, RetrievalParams(alpha=0.5)) == pytest.approx(0.84)
    assert score(0.8, 0.1, RetrievalParams(alpha=9.0, beta=0.05)) == pytest.approx(0.84)


@pytest.mark.parametrize(
    ("mode", "first", "second", "expected"),
    [
        ("off", A, B, ["0-0", "1-0"]),
        ("relevance", A, B, ["1-0", "0-0"]),
        ("relevance", A, C, ["2-0", "0-0"]),
        ("score", A, C, ["0-0", "2-0"]),
        ("relevance", D, E, ["3-0", "4-0"]),
        ("score", D, E, ["4-0", "3-0"]),
    ],
)
def test_near_ties_go_to_the_higher_value(mode: str, first: Hit, second: Hit, expected: list[str]) -> None:
    """R16: inside the margin the adjusted value decides, by similarity, by score, or not at all."""
    assert order(first, second, near_tie=mode) == expected


def test_the_margin_is_inclusive_within_the_tolerance() -> None:
    """R16: |sim - leader sim| <= 0.03 + 1e-9 joins; 0.80 - 0.77 is 0.030000000000000027 in floats."""
    leader = hit("0-0", 0.80, value=0.5, count=3)
    inside = hit("1-0", 0.77, value=0.6, count=3)
    outside = hit("2-0", 0.769999, value=0.6, count=3)
    assert order(leader, inside) == ["1-0", "0-0"]
    assert order(leader, outside) == ["0-0", "2-0"]


def test_a_far_item_splits_a_near_tie() -> None:
    """R16: the scan looks at the current group only, so a far item between two near ones parts them."""
    leader = hit("0-0", 0.80, value=0.5, count=3)
    far = hit("1-0", 0.95)
    near = hit("2-0", 0.78, value=0.9, count=3)
    assert order(leader, far, near) == ["0-0", "1-0", "2-0"]
    assert order(leader, near) == ["2-0", "0-0"]


def test_groups_hang_on_their_leader_not_on_the_neighbour() -> None:
    """R16: 0.76 is near 0.78 but not near the leader 0.80."""
    chain = [hit("0-0", 0.80), hit("1-0", 0.78), hit("2-0", 0.76, value=0.01, count=1)]
    assert order(*chain) == ["0-0", "1-0", "2-0"]


def test_inside_a_group_score_then_count_then_id_break_ties() -> None:
    """R16: v~ desc, score desc, n desc, id asc."""
    by_score = order(hit("0-0", 0.79), hit("1-0", 0.80))
    by_count = order(hit("0-0", 0.80, count=1), hit("1-0", 0.80, count=5))
    by_id = order(hit("10-0", 0.80), hit("9-2", 0.80), hit("9-10", 0.80))
    assert (by_score, by_count, by_id) == (["1-0", "0-0"], ["1-0", "0-0"], ["9-2", "9-10", "10-0"])


def test_a_high_value_that_was_hardly_tried_does_not_win_a_near_tie() -> None:
    """R16, R14: v~ decides and not v; .9 after one reuse is .225, .5 after nine is .375."""
    assert order(hit("0-0", 0.80, value=0.9, count=1), hit("1-0", 0.79, value=0.5, count=9)) == ["1-0", "0-0"]


@pytest.mark.parametrize("params", [{}, {"near_tie": "score"}, {"near_tie": "off"}])
def test_equals_stand_in_the_order_of_their_ids_as_numbers(params: dict[str, Any]) -> None:
    """R17: the last key, before and after the rerank; as text 10-0 would come before 9-2, and 9-10 too."""
    recall = ranked(hit("10-0", 0.80), hit("9-10", 0.80), hit("9-2", 0.80), **params)
    assert [c.id for c in recall.candidates] == ["9-2", "9-10", "10-0"]
    assert [memory.id for memory in recall.selected] == ["9-2", "9-10", "10-0"]


def test_without_rerank_similarity_alone_decides() -> None:
    """R44 no_rerank, R16: with no weight on values and near-tie off, neither moves anything."""
    recall = ranked(A, B, hit("5-0", 0.79, value=1.0, count=50), alpha=0.0, near_tie="off")
    assert [memory.id for memory in recall.selected] == ["0-0", "5-0", "1-0"]
    assert [(c.rank_before, c.rank_after) for c in recall.candidates] == [(0, 0), (1, 1), (2, 2)]
    assert [c.score for c in recall.candidates] == [c.sim for c in recall.candidates]
    assert recall.candidates[0].adjusted_value == 0.25


def test_a_shared_collection_is_searched_for_a_stage() -> None:
    """R44 no_hierarchy: the recall names the collection, its memories the stage that they were retrieved for."""
    recall = rerank([A], DEFAULTS, "shared", "q", 0, "exec")
    assert (recall.collection, recall.selected[0].stage) == ("shared", "exec")
    assert rerank([A], DEFAULTS, "plan", "q", 0).selected[0].stage == "plan"


def test_every_candidate_is_recorded_with_what_moved_it() -> None:
    """R17: sim, v~, score, ranks before and after, selection, and the version that was read."""
    low = hit("5-0", 0.4, value=-1.0, count=3, version=7)
    recall = ranked(A, B, D, low)
    assert [c.id for c in recall.candidates] == ["0-0", "3-0", "1-0", "5-0"]
    first = recall.candidates[0]
    assert (first.sim, first.adjusted_value, first.rank_before, first.rank_after) == (0.80, 0.25, 0, 1)
    assert first.score == pytest.approx(0.96)
    last = recall.candidates[3]
    assert (last.item_version, last.rank_after, last.selected) == (7, 3, False)
    assert recall.selected[0].model_dump() == {
        "id": "1-0",
        "stage": "plan",
        "scenario": "scenario of 1-0",
        "experience": "experience of 1-0",
    }
    assert (recall.collection, recall.query, recall.version) == ("plan", "the query", 12)


def test_the_order_of_the_hits_does_not_matter() -> None:
    """R17: the order is total."""
    hits = [A, B, C, D, hit("3-1", 0.80)]
    assert len({tuple(order(*arrangement, k=5)) for arrangement in itertools.permutations(hits)}) == 1


def test_a_record_that_is_no_memory_is_refused() -> None:
    broken = Hit(record=Record(collection="plan", id="0-0", version=0, payload={}), sim=0.9)
    with pytest.raises(JournalError):
        ranked(broken)


_hits = st.lists(
    st.builds(
        hit,
        item=st.builds(lambda p, k: str(ItemId(p, k)), st.integers(0, 30), st.integers(0, 2)),
        sim=st.integers(200_000, 1_000_000).map(lambda n: n / 1_000_000),
        value=st.integers(-10, 10).map(lambda n: n / 10),
        count=st.integers(0, 9),
    ),
    unique_by=lambda h: h.record.id,
    max_size=30,
)


@settings(deadline=None)
@given(hits=_hits, seed=st.randoms(use_true_random=False), mode=st.sampled_from(["relevance", "score", "off"]))
def test_any_hits_in_any_order_give_one_consistent_recall(hits: list[Hit], seed: Any, mode: str) -> None:
    """R13, R17: a shuffle changes nothing; ranks are a permutation; the selected are the first K ranks."""
    params = RetrievalParams(near_tie=mode, candidates=7)
    shuffled = hits[:]
    seed.shuffle(shuffled)
    recall = rerank(hits, params, "plan", "q", 0)
    assert rerank(shuffled, params, "plan", "q", 0) == recall
    after = {c.rank_after: c.id for c in recall.candidates}
    assert len(after) <= 7
    assert sorted(after) == list(range(len(recall.candidates)))
    assert [memory.id for memory in recall.selected] == [after[rank] for rank in sorted(after)[:3]]
    assert {memory.id for memory in recall.selected} == {c.id for c in recall.candidates if c.selected}
