"""What A-MapReduce's model calls are asked to answer, and how their answers are read. Pure.

A reply is read as a whole or not at all; what is unusable inside of a usable one is left out, never mended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from chime_dist.core.episode import Json
from chime_dist.core.json_schema import bounded_text, closed
from chime_dist.core.reply import Fault, sole_object, word
from chime_dist.core.rule_book import Operation, Review, RuleParams
from chime_dist.core.text import is_visible

_OPS: Mapping[str, Literal["REMOVE", "AGREE", "EDIT", "ADD"]] = {
    "remove": "REMOVE",
    "agree": "AGREE",
    "edit": "EDIT",
    "add": "ADD",
}


def list_schema(field: str, most: int, chars: int) -> dict[str, Json]:
    """Schema of an object whose one ``field`` lists 1 to ``most`` texts of at most ``chars`` characters."""
    texts = {
        "type": "array",
        "minItems": 1,
        "maxItems": most,
        "items": bounded_text(chars, least=1),
    }
    return closed({field: texts})


def read_list(text: str, finish_reason: str, field: str, most: int) -> tuple[str, ...]:
    """The first ``most`` visible texts of ``field``, each once; none where the reply is no such object."""
    found = sole_object(text, finish_reason)
    entries = [] if isinstance(found, Fault) else found.get(field)
    if not isinstance(entries, list):
        return ()
    texts = [entry.strip() for entry in entries if isinstance(entry, str) and is_visible(entry)]
    return tuple(dict.fromkeys(texts))[:most]


def operations_schema(review: Review, params: RuleParams) -> dict[str, Json]:
    """Schema of a comparison's answer; only what there is can be named."""
    ops = ["AGREE", "EDIT", "ADD", "REMOVE"] if review.rules else ["ADD"]
    operation = closed(
        {
            "op": {"type": "string", "enum": ops},
            "rule": {"type": "string", "enum": [*review.rules, ""]},
            "text": bounded_text(params.rule_chars),
            "cases": {
                "type": "array",
                "maxItems": len(review.cases),
                "items": {"type": "string", "enum": [case.name for case in review.cases]},
            },
        }
    )
    return closed({"operations": {"type": "array", "maxItems": params.max_operations, "items": operation}})


def read_operations(text: str, finish_reason: str, params: RuleParams) -> tuple[Operation, ...] | Fault:
    """The operations of a comparison, or why there are none to read. Whether rules and cases exist is the rule
    book's business; EDIT and ADD without a visible text, and unknown words, are left out."""
    found = sole_object(text, finish_reason)
    if isinstance(found, Fault):
        return found
    entries = found.get("operations")
    if not isinstance(entries, list):
        return Fault.NOT_JSON
    read = [_operation(entry) for entry in entries if isinstance(entry, dict)]
    return tuple(operation for operation in read if operation is not None)[: params.max_operations]


def _operation(entry: dict[str, Json]) -> Operation | None:
    op = word(entry.get("op"), _OPS)
    text, cases = _text(entry.get("text")), entry.get("cases")
    if op is None or (op in ("EDIT", "ADD") and not is_visible(text)):
        return None
    names = [_text(case) for case in cases] if isinstance(cases, list) else []
    return Operation(
        op=op, rule=_text(entry.get("rule")), text=text, cases=tuple(dict.fromkeys(filter(None, names)))
    )


def _text(value: Json) -> str:
    return value.strip() if isinstance(value, str) else ""
