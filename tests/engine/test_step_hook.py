"""What a method may say to its executor between two steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import pytest

from chime_dist.benchmarks.credit_world.benchmark import CreditWorld, CreditWorldOptions
from chime_dist.core.episode import Outcome, Role, Step
from chime_dist.core.frozen import Frozen
from chime_dist.core.model_call import Note, Turn
from chime_dist.core.trimming import LEFT_OUT, without
from chime_dist.engine.stateless import Stateless
from chime_dist.ports import CommitRequest, EpisodeContext
from chime_dist.wiring.registry import prompts
from tests.methods.single_episode import Told, episode


class Prompter(Stateless):
    """Says something before the turns that the test names; borrows the prompts of no_plan."""

    Options: ClassVar[type[Frozen]] = Frozen
    name = "no_plan"

    def __init__(self, said: dict[int, str]) -> None:
        self._said = said
        self.seen: list[tuple[int, list[str]]] = []

    async def attempt(self, ctx: EpisodeContext) -> None:
        """See ``ports.Method``."""

        async def hook(number: int, steps: Sequence[Step]) -> str | None:
            self.seen.append((number, [step.kind for step in steps]))
            return self._said.get(number)

        variables = {
            "view": ctx.view.model_dump(mode="json"),
            "list_tools": ctx.action_mode == "json_schema",
        }
        turn = Turn(template="no_plan/execute", variables=variables, conversation=ctx.view.messages)
        await ctx.execute(turn, hook)


async def prompted(prompter: Prompter, mode: Literal["tools", "json_schema"] = "tools") -> Told:
    return await episode(prompter, CreditWorld(CreditWorldOptions(steps=4, action_mode=mode)))


async def test_the_hook_is_asked_before_every_turn_with_what_happened_so_far() -> None:
    prompter = Prompter({})
    told = await prompted(prompter)
    assert prompter.seen == [(n, ["action", "observation"] * n) for n in range(4)]
    assert told.events == []
    assert told.calls == {"executor": 4}


@pytest.mark.parametrize("mode", ["tools", "json_schema"])
async def test_what_it_says_is_the_users_last_word_and_stays_in_the_history(
    mode: Literal["tools", "json_schema"],
) -> None:
    """The next turn reads it last; later turns read it where it was said; everything before it is untouched."""
    told = await prompted(Prompter({2: "Mind the tide."}), mode)
    silent = await prompted(Prompter({}), mode)
    second, third, fourth = [request.messages for request in told.requests(Role.EXECUTOR)[1:]]
    untouched = silent.requests(Role.EXECUTOR)[2].messages
    assert third[-1]["role"] == "user"
    assert third[-1]["content"].endswith("Mind the tide.")
    assert third[: len(second)] == second
    assert fourth[: len(third)] == third
    # An observation in the user's words and the hook's text are one message: two in a row break some templates.
    assert len(third) == len(untouched) + (mode == "tools")
    roles = [message["role"] for message in fourth]
    assert ("user", "user") not in pairwise(roles)


async def test_before_the_first_turn_it_joins_the_prompt() -> None:
    told = await prompted(Prompter({0: "Mind the tide.", 1: "It turns.", 3: "Ebb."}))
    first, *_, last = [request.messages for request in told.requests(Role.EXECUTOR)]
    assert [message["role"] for message in first] == ["system", "user"]
    assert first[1]["content"].endswith("\n\nMind the tide.")
    places = [str(message["content"]).rpartition("\n")[2] for message in last]
    assert [places.index(text) for text in ("Mind the tide.", "It turns.", "Ebb.")] == [1, 4, 9]


@pytest.mark.parametrize("role", ["user", "tool"])
def test_a_prompt_that_is_too_long_loses_observations_and_keeps_what_was_said_between_them(role: str) -> None:
    """R36: a revised plan or a recalled memory is no observation, whichever message it shares."""
    turn = Turn(
        template="no_plan/execute",
        variables={"view": {"policy": "", "tools": []}, "list_tools": False},
        history=({"role": "assistant", "content": "a"}, {"role": role, "content": "o" * 4000}),
        notes=(Note(after=2, text="Mind the tide."),),
    )
    trimmed = without(turn, 10**6)
    assert trimmed is not None
    messages = prompts(["no_plan"]).render(trimmed.turn)
    assert "ooo" not in str(messages)
    assert LEFT_OUT in str(messages)
    assert messages[-1]["content"].endswith("Mind the tide.")


async def test_what_it_says_is_an_event_of_the_trajectory() -> None:
    told = await prompted(Prompter({3: "Mind the tide."}))
    [event] = told.events
    assert (event.content, event.data) == ("Mind the tide.", {"before_step": 3})
    assert [step.kind for step in told.trace.trajectory.steps[event.index - 2 : event.index + 2]] == [
        *("action", "observation", "event", "action"),
    ]


async def test_a_method_without_memory_proposes_nothing_and_refuses_commit_requests() -> None:
    """R43: its positions are committed, but not empty for a fault, and no diagnosis is made."""
    prompter = Prompter({})
    told = await prompted(prompter)
    proposal = told.trace.proposal
    assert proposal is not None
    assert (proposal.content, proposal.diagnosis, proposal.empty_reason) == ({}, None, None)
    assert told.trace.record.outcome in (Outcome.SUCCESS, Outcome.FAILURE)
    assert told.trace.record.gate_status == "off"
    with pytest.raises(NotImplementedError, match="no_plan makes no commit requests, got 'merge'"):
        await prompter.fallback(CommitRequest(key="a", kind="merge"), models=None)  # type: ignore[arg-type]
