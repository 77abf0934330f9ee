"""Methods of one launch have one name each."""

from __future__ import annotations

from chime_dist.analyses.naming import method_names
from chime_dist.config.schema import Component


def chime(**evolution: object) -> Component:
    """Chime with these settings, all others written out."""
    usual = {"merge": "llm", "value_update": "retrieved", "conf_threshold": 0.5}
    return Component(name="chime", options={"evolution": usual | evolution})


def test_a_label_that_stands_alone_is_the_name() -> None:
    """Also in several orderings."""
    ablated = Component(name="chime", options={"ablation": "no_gate"})
    assert method_names([chime(), ablated, chime()]) == ["chime", "chime no_gate", "chime"]


def test_variants_of_one_method_are_told_apart_by_what_differs() -> None:
    """R26: from most of them, and by nothing else."""
    attributed, eager = chime(value_update="attributed"), chime(value_update="attributed", conf_threshold=0.7)
    assert method_names([chime(), attributed]) == ["chime", "chime (evolution.value_update=attributed)"]
    assert method_names([attributed, eager, chime(), chime(), chime()]) == [
        "chime (evolution.value_update=attributed)",
        "chime (evolution.value_update=attributed, evolution.conf_threshold=0.7)",
        *["chime"] * 3,
    ]
