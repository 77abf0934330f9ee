"""Pieces of the JSON schemas of replies, within what strict ``response_format: json_schema`` takes."""

from __future__ import annotations

from chime_dist.core.episode import Json


def closed(properties: dict[str, Json]) -> dict[str, Json]:
    """The schema of an object with exactly these properties, all of them required."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def bounded_text(most: int, least: int = 0) -> dict[str, Json]:
    """The schema of a text of ``least`` to ``most`` characters.

    Unbounded strings let guided decoding run to the output limit.
    """
    shortest = {"minLength": least} if least else {}
    return {"type": "string", **shortest, "maxLength": most}
