"""What the paper prints of its benchmarks, beside the splits that ``test_split`` checks."""

from __future__ import annotations

from chime_dist.core.paper import PAPER


def test_episodes_are_capped_as_table_7_says() -> None:
    """R39, R40, R41, R42."""
    caps = {"tau2": 100, "vitabench": 100, "browsecomp_zh": 10, "bfcl_v4": 10}
    assert {name: facts.max_steps for name, facts in PAPER.items()} == caps


def test_every_domain_has_its_size_and_topics_without_a_name_are_numbered() -> None:
    """R3: BrowseComp-ZH's eleven topics are printed as sizes only."""
    assert PAPER["tau2"].streams["paper_text"].tasks_by_domain == {
        "airline": 50,
        "retail": 114,
        "telecom": 114,
        "banking_knowledge": 97,
    }
    topics = PAPER["browsecomp_zh"].streams["paper_numbers"].tasks_by_domain
    assert (len(topics), sum(topics.values()), topics["domain-0"]) == (11, 289, 45)
