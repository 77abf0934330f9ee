"""Methods of one launch have one name each."""

from __future__ import annotations

from chime_dist.analyses.naming import method_names
from chime_dist.config.schema import Component


def chime(**evolution: object) -> Component:
    """Chime with these settings."""
    return Component(
        name="chime", options={"evolution": {"merge": "llm", "value_update": "retrieved", **evolution}}
    )


def test_a_label_that_stands_alone_is_the_name() -> None:
    """Also in several orderings."""
    ablated = Component(name="chime", options={"ablation": "no_gate"})
    assert method_names([chime(), ablated, chime()]) == ["chime", "chime no_gate", "chime"]


def test_variants_of_one_method_are_told_apart_by_what_differs() -> None:
    """R26: and by nothing else."""
    assert method_names([chime(), chime(value_update="attributed"), chime(conf_threshold=0.7)]) == [
        "chime (evolution.value_update=retrieved)",
        "chime (evolution.value_update=attributed)",
        "chime (evolution.value_update=retrieved, evolution.conf_threshold=0.7)",
    ]
