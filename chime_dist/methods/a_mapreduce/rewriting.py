"""A rewrite of the rules, done by models: one comparison, then one call for each cluster that has to shrink."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from chime_dist.core.model_call import ChatReply, Turn
from chime_dist.core.reply import Fault
from chime_dist.core.rule_book import Operation, Review, Reviewed, RuleBook, RuleParams
from chime_dist.core.rule_reply import list_schema, operations_schema, read_list, read_operations
from chime_dist.engine.fan_out import every

log = structlog.get_logger()

Ask = Callable[[Turn], Awaitable[ChatReply]]


async def rewritten(review: Review, params: RuleParams, ask: Ask) -> Reviewed:
    """Have ``review`` answered. A reply that cannot be used changes nothing and is told as a fault.

    Raises BackboneError of a call that failed; of the others nothing is kept then.
    """
    operations: tuple[Operation, ...] = ()
    merged: dict[str, tuple[str, ...]] = {}
    faults: list[str] = []
    if review.cases:
        reply = await ask(_comparison(review, params))
        read = read_operations(reply.text, reply.finish_reason, params)
        if isinstance(read, Fault):
            faults.append(f"comparison: {read.value}")
        else:
            operations = read
    if review.merge:
        book = RuleBook(review, params)
        book.operate(operations)
        clusters = [cluster for cluster in book.clusters() if len(cluster) > 1]
        replies = await every(ask(_merge(book, cluster)) for cluster in clusters)
        for cluster, reply in zip(clusters, replies, strict=True):
            merged[cluster[0]] = read_list(reply.text, reply.finish_reason, "rules", book.limit(cluster))
            if not merged[cluster[0]]:
                faults.append(f"merge of {', '.join(cluster)}: no rules")
    for fault in faults:
        log.warning("rules.reply_unusable", position=review.position, reason=fault)
    return Reviewed(operations=operations, merged=merged, faults=tuple(faults))


def _comparison(review: Review, params: RuleParams) -> Turn:
    return Turn(
        template="a_mapreduce/compare",
        variables={
            "cases": [case.model_dump(mode="json", exclude={"node"}) for case in review.cases],
            "rules": [{"id": item, "rule": rule.rule} for item, rule in review.rules.items()],
            "crowded": len(review.rules) >= params.crowded,
            "max_operations": params.max_operations,
        },
        response_schema=operations_schema(review, params),
        schema_name="rule_operations",
    )


def _merge(book: RuleBook, cluster: tuple[str, ...]) -> Turn:
    limit = book.limit(cluster)
    return Turn(
        template="a_mapreduce/merge",
        variables={"rules": [book.rules[item].rule for item in cluster], "limit": limit},
        response_schema=list_schema("rules", limit, book.params.rule_chars),
        schema_name="merged_rules",
    )
