"""Task streams: R3's tables, R4's orderings, and what must hold for any benchmark."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from chime_dist.core.paper import ORDERINGS, PAPER, PaperStream
from chime_dist.core.split import PROTOCOLS, Ordering, ProtocolName, SplitParams, order_tasks
from chime_dist.core.task import Task
from chime_dist.errors import BenchmarkError, ConfigError


def benchmark(sizes: dict[str, int]) -> list[Task]:
    return [Task(id=f"{domain}/{k}", domain=domain) for domain, size in sizes.items() for k in range(size)]


def of_stream(stream: PaperStream) -> dict[str, int]:
    names = stream.domains or tuple(f"topic-{k:02}" for k in range(len(stream.sizes)))
    return dict(zip(names, stream.sizes, strict=True))


def ids(tasks: Sequence[Task]) -> list[str]:
    return [task.id for task in tasks]


PAPER_COUNTS = {
    ("vitabench", "paper_numbers"): [(70, 30)] * 4,
    ("vitabench", "paper_text"): [(70, 30)] * 4,
    ("browsecomp_zh", "paper_numbers"): [
        (31, 14),
        (28, 12),
        (25, 12),
        (22, 10),
        (20, 9),
        (18, 8),
        (16, 7),
        (15, 7),
        (12, 6),
        (7, 3),
        (4, 3),
    ],
    ("browsecomp_zh", "paper_text"): [(4, 3)] * 11,
    ("bfcl_v4", "paper_numbers"): [
        (180, 78),
        (737, 316),
        (11, 5),
        (16, 8),
        (618, 266),
        (11, 5),
        (108, 47),
        (70, 30),
    ],
    ("bfcl_v4", "paper_text"): [(11, 5)] * 8,
    ("tau2", "paper_numbers"): [(35, 15), (79, 35), (1599, 686), (67, 30), (7, 3)],
    ("tau2", "paper_text"): [(35, 15)] * 4,
}
PAPER_TOTALS = {
    ("vitabench", "paper_numbers"): (280, 120),
    ("vitabench", "paper_text"): (280, 120),
    ("browsecomp_zh", "paper_numbers"): (198, 91),
    ("browsecomp_zh", "paper_text"): (44, 33),
    ("bfcl_v4", "paper_numbers"): (1751, 755),
    ("bfcl_v4", "paper_text"): (88, 40),
    ("tau2", "paper_numbers"): (1787, 769),
    ("tau2", "paper_text"): (140, 60),
}


@pytest.mark.parametrize(("name", "protocol"), PAPER_COUNTS)
def test_the_domains_of_a_benchmark_give_the_papers_counts(name: str, protocol: ProtocolName) -> None:
    """R3: train and eval tasks per domain and in total, under both protocols."""
    stream = PAPER[name].streams[protocol]
    sizes = of_stream(stream)

    ordering = order_tasks(benchmark(sizes), PROTOCOLS[protocol], 0)

    expected = dict(zip(sizes, PAPER_COUNTS[name, protocol], strict=True))
    assert ordering.domain_counts() == dict(sorted(expected.items()))
    assert (len(ordering.train), len(ordering.eval)) == PAPER_TOTALS[name, protocol]
    assert (stream.train, stream.eval) == PAPER_TOTALS[name, protocol]


def test_the_papers_epochs_and_concurrency_are_on_record() -> None:
    """R6, R7, R40 (Table 7): epoch 2, or 5 for BrowseComp-ZH; concurrency 16, or 8 for VitaBench; R4: Avg@3."""
    assert {name: (facts.epochs, facts.concurrency) for name, facts in PAPER.items()} == {
        "tau2": (2, 16),
        "vitabench": (2, 8),
        "browsecomp_zh": (5, 16),
        "bfcl_v4": (2, 16),
    }
    assert ORDERINGS == 3


def test_three_orderings_are_three_permutations_that_the_seed_reproduces() -> None:
    """H4: 3 distinct recorded permutations, reproducible from the seed."""
    tasks = benchmark({"a": 20, "b": 12})
    params = SplitParams(seed=5)

    orderings = [order_tasks(tasks, params, r) for r in range(3)]

    assert len({ordering.digest for ordering in orderings}) == 3
    assert [order_tasks(tasks, params, r) for r in range(3)] == orderings
    assert order_tasks(tasks, SplitParams(seed=6), 0).digest != orderings[0].digest


def test_a_stream_is_the_same_on_every_machine_and_python() -> None:
    """H4: a permutation written down once; if this fails, every recorded sweep would change its streams."""
    ordering = order_tasks(benchmark({"a": 4, "b": 3}), SplitParams(), 1)
    assert ids(ordering.train) == ["a/1", "b/0", "b/2", "a/2"]
    assert ids(ordering.eval) == ["a/0", "b/1", "a/3"]
    assert ordering.digest == "78da3e5ac0a2a0f8131478808729327afe59be06b638207387358d41110a0b44"


def test_without_a_fixed_split_orderings_hold_out_different_tasks() -> None:
    """R4: the shuffle comes before the split."""
    tasks = benchmark({"a": 30})
    held_out = [set(ids(order_tasks(tasks, SplitParams(), r).eval)) for r in range(2)]
    assert held_out[0] != held_out[1]


def test_a_fixed_split_keeps_the_tasks_and_shuffles_the_stream() -> None:
    """R4: ``fixed_split: true`` keeps one split for all orderings, that of ordering 0."""
    tasks = benchmark({"a": 30, "b": 9})
    fixed = [order_tasks(tasks, SplitParams(fixed_split=True), r) for r in range(3)]

    assert len({frozenset(ids(ordering.train)) for ordering in fixed}) == 1
    assert len({ordering.digest for ordering in fixed}) == 3
    assert fixed[0] == order_tasks(tasks, SplitParams(), 0)


def test_blocks_run_one_domain_after_the_other() -> None:
    """R4: the option beside the seeded interleaving; each domain keeps the order it has there."""
    tasks = benchmark({"b": 10, "a": 10})
    mixed = order_tasks(tasks, SplitParams(), 2)
    blocks = order_tasks(tasks, SplitParams(interleave="blocks"), 2)

    assert [task.domain for task in blocks.train] == ["a"] * 7 + ["b"] * 7
    assert [task.domain for task in mixed.train] != [task.domain for task in blocks.train]
    for domain in ("a", "b"):
        assert [t for t in mixed.train if t.domain == domain] == [t for t in blocks.train if t.domain == domain]


def test_every_ordering_mixes_the_domains_in_its_own_way() -> None:
    """R4: ordering r shuffles the places of the domains too, not only the tasks inside them."""
    tasks = benchmark({"a": 30, "b": 30})
    for params in (SplitParams(), SplitParams(fixed_split=True)):
        orderings = [order_tasks(tasks, params, r) for r in range(3)]
        assert len({tuple(task.domain for task in ordering.train) for ordering in orderings}) == 3
        assert len({tuple(task.domain for task in ordering.eval) for ordering in orderings}) == 3


def test_interleaving_spreads_a_large_domain_over_the_whole_stream() -> None:
    """R4: truncating a large domain to a few tasks must not put them at the front of the stream."""
    ordering = order_tasks(
        benchmark({"large": 2000, "small": 100}), SplitParams(truncate="smallest", train_ratio=(1, 2)), 0
    )
    first_half = [task.domain for task in ordering.train[:50]]
    assert 15 <= first_half.count("large") <= 35


def test_domains_can_be_chosen_and_put_in_order() -> None:
    """R3: which domains take part is config; ``paper_text`` leaves out tau2's mock domain."""
    tasks = benchmark({"mock": 10, "retail": 10, "airline": 10})
    params = SplitParams(domains=("retail", "airline"), interleave="blocks", truncate=5)

    ordering = order_tasks(tasks, params, 0)

    assert [task.domain for task in ordering.train] == ["retail"] * 3 + ["airline"] * 3
    assert ordering.domain_counts() == {"airline": (3, 2), "retail": (3, 2)}


def test_an_unknown_domain_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"\['telecom'\], but the benchmark has only \['airline'\]"):
        order_tasks(benchmark({"airline": 3}), SplitParams(domains=("telecom",)), 0)


def test_a_doubled_task_id_is_refused() -> None:
    """Two tasks under one id would be two results under one name."""
    with pytest.raises(BenchmarkError, match=r"1 task ids more than once, e\.g\. 'a/0'"):
        order_tasks([*benchmark({"a": 3}), Task(id="a/0", domain="b")], SplitParams(), 0)


@pytest.mark.parametrize(
    ("sizes", "params", "split"),
    [
        ({}, SplitParams(truncate="smallest"), "train"),
        ({"a": 1, "b": 1}, SplitParams(), "train"),
        ({"a": 1, "b": 1}, SplitParams(rounding="ceil"), "eval"),
    ],
)
def test_an_empty_split_is_refused(sizes: dict[str, int], params: SplitParams, split: str) -> None:
    with pytest.raises(ConfigError, match=f"the {split} split is empty"):
        order_tasks(benchmark(sizes), params, 0)


def test_an_ordering_index_is_not_negative() -> None:
    with pytest.raises(ValueError, match="0-based, got -1"):
        order_tasks(benchmark({"a": 9}), SplitParams(), -1)


@pytest.mark.parametrize(
    ("rounding", "counts"), [("floor", [0, 2, 3, 7]), ("half_up", [1, 2, 4, 7]), ("ceil", [1, 3, 4, 7])]
)
def test_rounding_is_integer_arithmetic(rounding: str, counts: list[int]) -> None:
    """R3: rounding is config; floor is 7*n//10. Domains of 1, 3, 5 and 10 tasks; 3.5 shows the half."""
    params = SplitParams.model_validate({"rounding": rounding})
    assert [params.train_count(size) for size in (1, 3, 5, 10)] == counts


@pytest.mark.parametrize(
    "knobs",
    [
        {"train_ratio": [10, 10]},
        {"train_ratio": [0, 10]},
        {"limit": 1},
        {"truncate": 0},
        {"truncate": True},
        {"truncate": "largest"},
        {"shuffle": True},
    ],
)
def test_unusable_params_are_refused(knobs: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        SplitParams.model_validate(knobs)


def test_a_limit_takes_the_same_share_and_every_domain_in_turn() -> None:
    """12 tasks of BFCL's 8 files: 8 to train on, one per file, and 4 to evaluate."""
    tasks = benchmark(of_stream(PAPER["bfcl_v4"].streams["paper_numbers"]))

    ordering = order_tasks(tasks, SplitParams(limit=12), 0)

    assert (len(ordering.train), len(ordering.eval)) == (8, 4)
    assert all(counts in {(1, 1), (1, 0)} for counts in ordering.domain_counts().values())


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    tasks = benchmark({"a": 10, "b": 3})
    assert order_tasks(tasks, SplitParams(limit=13), 0) == order_tasks(tasks, SplitParams(), 0)


def test_a_limit_under_a_fixed_split_takes_the_same_tasks_in_every_ordering() -> None:
    tasks = benchmark({"a": 40, "b": 40})
    limited = [order_tasks(tasks, SplitParams(limit=10, fixed_split=True), r) for r in range(3)]
    assert len({frozenset(ids(ordering.train)) for ordering in limited}) == 1


# --- what holds for any benchmark -----------------------------------------------------------------------

SIZES = st.dictionaries(st.sampled_from("abcdef"), st.integers(2, 12), min_size=1)
PARAMS = st.builds(
    SplitParams,
    truncate=st.sampled_from(["none", "smallest", 3]),
    fixed_split=st.booleans(),
    interleave=st.sampled_from(["shuffled", "blocks"]),
    seed=st.integers(0, 3),
)


@settings(max_examples=60)
@given(sizes=SIZES, params=PARAMS, index=st.integers(0, 4))
def test_every_task_is_in_one_split_once(sizes: dict[str, int], params: SplitParams, index: int) -> None:
    """R3: train and eval are disjoint, and together all tasks that truncation leaves."""
    ordering = order_tasks(benchmark(sizes), params, index)

    drawn = ids(ordering.train) + ids(ordering.eval)
    assert len(drawn) == len(set(drawn))
    keep = {"none": max(sizes.values()), "smallest": min(sizes.values())}.get(str(params.truncate), 3)
    kept = {domain: min(size, keep) for domain, size in sizes.items()}
    assert ordering.domain_counts() == {
        domain: (7 * size // 10, size - 7 * size // 10) for domain, size in sorted(kept.items())
    }


@settings(max_examples=40)
@given(sizes=SIZES, params=PARAMS, index=st.integers(0, 4), data=st.data())
def test_the_order_in_which_a_benchmark_lists_its_tasks_does_not_matter(
    sizes: dict[str, int], params: SplitParams, index: int, data: st.DataObject
) -> None:
    """H4: a directory listing or a dictionary may come in any order."""
    tasks = benchmark(sizes)
    listed = data.draw(st.permutations(tasks))
    assert order_tasks(listed, params, index) == order_tasks(tasks, params, index)


@settings(max_examples=60)
@given(sizes=SIZES, limit=st.integers(2, 80), index=st.integers(0, 2), params=PARAMS)
def test_a_limited_run_is_part_of_the_full_one(
    sizes: dict[str, int], limit: int, index: int, params: SplitParams
) -> None:
    """A limit keeps both splits non-empty, takes from the full run's splits, and treats domains alike."""
    full = order_tasks(benchmark(sizes), params, index)
    limited = order_tasks(benchmark(sizes), params.model_copy(update={"limit": limit}), index)

    assert len(limited.train) + len(limited.eval) == min(limit, len(full.train) + len(full.eval))
    assert limited.train
    assert limited.eval
    for part, whole in ((limited.train, full.train), (limited.eval, full.eval)):
        assert set(part) <= set(whole)
        taken = {d: sum(t.domain == d for t in part) for d in sizes}
        unsated = [taken[d] for d in sizes if taken[d] < sum(t.domain == d for t in whole)]
        assert max(taken.values()) - min(unsated, default=max(taken.values())) <= 1


@settings(max_examples=20)
@given(sizes=SIZES, params=PARAMS)
def test_an_ordering_survives_its_json_form(sizes: dict[str, int], params: SplitParams) -> None:
    ordering = order_tasks(benchmark(sizes), params, 0)
    read = Ordering.model_validate_json(ordering.model_dump_json())
    assert read == ordering
    assert read.digest == ordering.digest
