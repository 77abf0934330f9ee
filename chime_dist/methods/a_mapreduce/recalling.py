"""What a task is reminded of: records around it in the graph of tasks, and rules that its neighbours vote for."""

from __future__ import annotations

from collections.abc import Sequence

from chime_dist.core.episode import Candidate, Recall, Recalled
from chime_dist.core.frozen import Frozen
from chime_dist.core.rule_book import RULES, ranked_rules
from chime_dist.core.task_graph import RECORDS, RecallParams, Remembered, TaskRecord, remember
from chime_dist.ports import EpisodeContext, Hit

WHOLE_BOOK = 10_000
"""Rules are recalled by co-occurrence, not by similarity: all are read, and no book holds so many."""


class Memories(Frozen):
    """What reaches the prompts of an episode."""

    records: tuple[TaskRecord, ...]
    """Successes, then failures."""
    rules: tuple[str, ...]
    """Best supported first."""


async def recall(ctx: EpisodeContext, task: str, params: RecallParams, insights: int) -> Memories:
    """Search records and rules at the episode's version, choose, and record both retrievals (R17).

    In the rules' recall a candidate's score is its co-occurrence count. A-MapReduce knows no value of a memory, so
    the adjusted value is 0 throughout.
    """
    hits, version = await ctx.search(RECORDS, task, params.pool, params.min_similarity)
    remembered = remember(hits, task, params)
    ctx.recalled(_records_recall(remembered, task, version))
    rules: tuple[str, ...] = ()
    if insights and remembered.voters:
        book, version = await ctx.search(RULES, task, WHOLE_BOOK, -1.0)
        recalled, rules = _rules_recall(book, remembered.voters, insights, task, version)
        ctx.recalled(recalled)
    return Memories(records=tuple(known.record for known in remembered.shown), rules=rules)


def _records_recall(remembered: Remembered, task: str, version: int) -> Recall:
    chosen = [known.id for known in remembered.shown]
    ranks = [*chosen, *(known.id for known in remembered.pool if known.id not in chosen)]
    return Recall(
        collection=RECORDS,
        query=task,
        version=version,
        candidates=tuple(
            Candidate(
                id=known.id,
                item_version=known.version,
                sim=known.sim,
                adjusted_value=0.0,
                score=known.sim,
                rank_before=rank,
                rank_after=ranks.index(known.id),
                selected=known.id in chosen,
            )
            for rank, known in enumerate(remembered.pool)
        ),
        selected=tuple(
            Recalled(
                id=known.id,
                stage=RECORDS,
                scenario=known.record.task,
                experience=f"{known.record.outcome}: {known.record.plan}",
            )
            for known in remembered.shown
        ),
    )


def _rules_recall(
    book: Sequence[Hit], voters: Sequence[str], insights: int, task: str, version: int
) -> tuple[Recall, tuple[str, ...]]:
    ranked = ranked_rules(book, voters)
    voted = {hit.record.id for hit, _, _ in ranked}
    before = [hit.record.id for hit in book if hit.record.id in voted]
    shown = ranked[:insights]
    recalled = Recall(
        collection=RULES,
        query=task,
        version=version,
        candidates=tuple(
            Candidate(
                id=hit.record.id,
                item_version=hit.record.version,
                sim=hit.sim,
                adjusted_value=0.0,
                score=float(count),
                rank_before=before.index(hit.record.id),
                rank_after=rank,
                selected=rank < insights,
            )
            for rank, (hit, _, count) in enumerate(ranked)
        ),
        selected=tuple(
            Recalled(id=hit.record.id, stage=RULES, scenario="", experience=rule.rule) for hit, rule, _ in shown
        ),
    )
    return recalled, tuple(rule.rule for _, rule, _ in shown)
