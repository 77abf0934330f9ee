"""What to call the methods of a launch, so that no two of them have one name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from chime_dist.config.schema import Component


def method_names(methods: Sequence[Component]) -> list[str]:
    """A name for each: its label, with the options that most others of the same label have otherwise.

    ``chime``, or ``chime (evolution.value_update=attributed)``. Options are resolved, so all of them are there.
    """
    options = [method.settings() for method in methods]
    values: dict[tuple[str, str], Counter[str]] = {}
    for method, own in zip(methods, options, strict=True):
        for path, value in own.items():
            values.setdefault((method.label, path), Counter())[value] += 1
    # Of values that are equally common, the one that came first.
    usual = {place: found.most_common(1)[0][0] for place, found in values.items()}
    names = []
    for method, own in zip(methods, options, strict=True):
        unusual = [f"{path}={value}" for path, value in own.items() if value != usual[method.label, path]]
        names.append(f"{method.label} ({', '.join(unusual)})" if unusual else method.label)
    return names
