"""R36: over-long prompts lose their oldest observations, never the task, the plan or the memories."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chime_dist.core.chat_reply import tokens_too_many
from chime_dist.core.model_call import Turn
from chime_dist.core.trimming import LEFT_OUT, estimated_tokens, first_tokens, without, without_half


def said(role: str, content: str | None, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


TURN = Turn(
    template="chime/execute",
    variables={"plan": "p" * 400, "memories": ["m" * 400]},
    conversation=(said("user", "the task " * 50),),
    history=(
        said("assistant", "a" * 40),
        said("tool", "1" * 400, tool_call_id="c1"),
        said("user", "2" * 400),
        said("assistant", None),
        said("tool", "3" * 400, tool_call_id="c2"),
        said("tool", "", tool_call_id="c3"),
    ),
)
"""Two tool results and one other word of the environment; leaving one out saves 100 tokens less 8."""


def contents(turn: Turn) -> list[Any]:
    return [message["content"] for message in turn.history]


@pytest.mark.parametrize(
    ("tokens", "gone"),
    [(-5, {1}), (0, {1}), (1, {1}), (92, {1}), (93, {1, 4}), (185, {1, 4, 2}), (10**9, {1, 4, 2})],
)
def test_tool_results_go_first_and_the_oldest_before_others(tokens: int, gone: set[int]) -> None:
    """R36: the oldest observation goes first; of what counts as one, tool results before other words."""
    trimmed = without(TURN, tokens)
    assert trimmed is not None
    assert trimmed.left_out == len(gone)
    before, after = contents(TURN), contents(trimmed.turn)
    assert after == [LEFT_OUT if index in gone else content for index, content in enumerate(before)]


def test_what_stays_is_untouched() -> None:
    """Task, plan, memories, the model's own words, and which call a result answers."""
    trimmed = without(TURN, 10**9)
    assert trimmed is not None
    assert trimmed.turn.conversation == TURN.conversation
    assert trimmed.turn.variables == TURN.variables
    assert [m["role"] for m in trimmed.turn.history] == [m["role"] for m in TURN.history]
    assert trimmed.turn.history[1]["tool_call_id"] == "c1"
    assert without(trimmed.turn, 1) is None
    assert without_half(trimmed.turn) is None


def test_half_of_the_observations_by_size() -> None:
    trimmed = without_half(TURN)
    assert trimmed is not None
    assert trimmed.left_out == 2


def test_a_reviewed_trajectory_loses_observations_and_keeps_its_actions() -> None:
    steps = [
        {"index": 0, "kind": "plan", "content": "p" * 400},
        {"index": 1, "kind": "action", "content": "a" * 400},
        {"index": 2, "kind": "observation", "content": "o" * 400},
        {"index": 3, "kind": "observation", "content": "q" * 400},
    ]
    turn = Turn(template="chime/review", variables={"steps": steps, "outcome": "failure"})
    trimmed = without(turn, 50)
    assert trimmed is not None
    kept = trimmed.turn.variables["steps"]
    assert [step["content"] == LEFT_OUT for step in kept] == [False, False, True, False]
    assert steps[2]["content"] == "o" * 400
    assert trimmed.turn.variables["outcome"] == "failure"


@pytest.mark.parametrize("steps", ["text", [1, 2], None])
def test_a_variable_that_only_shares_the_name_is_left_alone(steps: Any) -> None:
    assert without(Turn(template="m/t", variables={"steps": steps}), 10) is None


def test_tokens_are_estimated_by_alphabet() -> None:
    """[U] A quarter of the ASCII characters, rounded up, and every other character."""
    assert estimated_tokens("abcdefgh") == 2
    assert estimated_tokens("abcde") == 2
    assert estimated_tokens("记忆", "ab") == 3
    assert estimated_tokens({"a": "é"}) == 4
    assert estimated_tokens() == 0


@given(tokens=st.integers(-10, 10**6), lengths=st.lists(st.integers(0, 2000), max_size=8))
def test_enough_goes_and_never_more_than_one_too_many(tokens: int, lengths: list[int]) -> None:
    turn = Turn(template="m/t", history=tuple(said("tool", "x" * length) for length in lengths))
    trimmed = without(turn, tokens)
    sizes = [
        size for length in lengths if (size := estimated_tokens("x" * length) - estimated_tokens(LEFT_OUT)) > 0
    ]
    if not sizes:
        assert trimmed is None
        return
    assert trimmed is not None
    gone = sizes[: trimmed.left_out]
    assert sum(gone) >= tokens or trimmed.left_out == len(sizes)
    assert trimmed.left_out == 1 or sum(gone[:-1]) < tokens


@pytest.mark.parametrize(
    ("sentence", "output", "excess"),
    [
        ("maximum context length is 4096 tokens. However, you requested 5000 tokens in the messages", 512, 1416),
        ("maximum context length is 4096 tokens. However, you requested 5000 tokens in the messages", 9999, 1928),
        ("context length is only 4096, and there are 100 input tokens", 10, 1),
        ("maximum context length is 4096 tokens, but the prompt has at least 4097 input tokens", 512, None),
        ("the prompt is too long", 512, None),
    ],
)
def test_how_much_too_long_is_read_from_the_servers_sentence(
    sentence: str, output: int, excess: int | None
) -> None:
    assert tokens_too_many(sentence, output) == excess


@given(text=st.text(st.sampled_from("ab 长é"), max_size=40), most=st.integers(0, 30))
def test_a_text_is_cut_at_the_last_place_that_is_within_the_limit(text: str, most: int) -> None:
    """R11: as long as the estimate allows, and no longer."""
    kept = first_tokens(text, most)
    assert text.startswith(kept)
    assert estimated_tokens(kept) <= most
    assert kept == text or estimated_tokens(text[: len(kept) + 1]) > most
