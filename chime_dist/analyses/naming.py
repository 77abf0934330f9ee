"""What to call the methods of a launch, so that no two of them have one name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from chime_dist.config.schema import Component
from chime_dist.core.canonical import canonical_json
from chime_dist.core.episode import Json


def method_names(methods: Sequence[Component]) -> list[str]:
    """A name for each: its label, and where others have the same label, the options that differ among them.

    ``chime``, or ``chime (evolution.value_update=attributed)``.
    """
    alike: dict[str, list[dict[str, str]]] = {}
    for method in methods:
        alike.setdefault(method.label, []).append(dict(_options(method.options)))
    return [_name(method.label, dict(_options(method.options)), alike[method.label]) for method in methods]


def _name(label: str, own: Mapping[str, str], alike: Sequence[Mapping[str, str]]) -> str:
    differing = [f"{path}={value}" for path, value in own.items() if len({other.get(path) for other in alike}) > 1]
    return f"{label} ({', '.join(differing)})" if differing else label


def _options(options: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        if isinstance(value, dict):
            yield from _options(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else canonical_json(value)
