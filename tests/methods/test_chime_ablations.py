"""CHIME's switches as config and as runs: what they are called, what they refuse, what they cost."""

from __future__ import annotations

import asyncio
import json
from typing import Any, get_args

import pytest

from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.config.expansion import expand
from chime_dist.config.run import RunConfig
from chime_dist.config.schema import Component
from chime_dist.config.sweep import SweepConfig
from chime_dist.core.episode import Role
from chime_dist.core.window import StreamShape
from chime_dist.errors import ConfigError
from chime_dist.methods.chime.options import Ablation
from chime_dist.wiring import registry
from chime_dist.wiring.results import launch_report
from tests.spec.sweeps import journal_of, launched, records_of

ABLATIONS: tuple[str, ...] = get_args(Ablation)[1:]
STEPS, TRAIN, EVAL, EPOCHS = 2, 14, 6, 2
APPEND = "evolution: {merge: append}"
"""Where merges happen at all, they make no call of the gate: what is left are the calls that a method states."""

SWEEP = f"""\
name: ablations
benchmarks: [{{name: credit_world, families: 2, tasks_per_family: 10, steps: {STEPS}, noise: 0.1}}]
methods:
  - {{name: chime, {APPEND}}}
  - {{name: chime, ablation: no_plan_memory, {APPEND}}}
  - {{name: chime, ablation: no_exec_memory, {APPEND}}}
  - {{name: chime, ablation: no_memory}}
  - {{name: chime, ablation: no_hierarchy, {APPEND}}}
  - {{name: chime, ablation: no_gate}}
  - {{name: chime, ablation: no_rerank, {APPEND}}}
  - {{name: chime, ablation: no_evolution}}
  - umem_outcome
backbones: [{{name: m, scripted: {{script: credit_world, gate_accuracy: 0.8}}}}]
orderings: [0]
embedder: {{kind: hashing, dim: 64}}
protocol: {{epochs: {EPOCHS}, window: 4}}
cluster:
  slots: 16
  endpoints: {{m: {{kind: scripted}}}}
"""


def resolved(**options: Any) -> dict[str, Any]:
    return registry.resolve("method", Component(name="chime", options=options)).options


def planned(*methods: Any) -> tuple[RunConfig, ...]:
    sweep = {
        "name": "s",
        "benchmarks": ["credit_world"],
        "methods": list(methods),
        "backbones": [{"name": "m", "scripted": {}}],
        "orderings": [0],
        "cluster": {"endpoints": {"m": {"kind": "scripted"}}},
    }
    return expand(SweepConfig.model_validate_json(json.dumps(sweep)), registry.resolve)


# --- config -----------------------------------------------------------------------------------------------------


def test_there_are_the_seven_ablations_of_the_paper() -> None:
    """R44: Table 2 of S0 has seven rows beside CHIME."""
    assert len(ABLATIONS) == 7


def test_a_switch_left_out_and_a_switch_at_its_default_are_one_run() -> None:
    """R45: with all switches at default the config hash equals chime's."""
    [bare] = planned("chime")
    [spelled] = planned({"name": "chime", "ablation": "none", "outcome": {"delta": "success_only"}})
    assert spelled.run_id == bare.run_id
    with pytest.raises(ConfigError, match="two runs are the same"):
        planned("chime", {"name": "chime", "ablation": "none"})


def test_every_switch_is_another_run_with_the_ablation_in_its_name() -> None:
    """R45: eight digests, and no folder that says only "chime"."""
    runs = planned("chime", *({"name": "chime", "ablation": ablation} for ablation in ABLATIONS))
    assert len({run.digest for run in runs}) == 8
    assert [run.run_id.split("-")[1] for run in runs] == ["chime", *(f"chime_{name}" for name in ABLATIONS)]


DECIDED: dict[str, dict[str, Any]] = {
    "no_plan_memory": {},
    "no_exec_memory": {},
    "no_memory": {},
    "no_hierarchy": {},
    "no_gate": {"evolution": {"accept": "any", "merge_threshold": 1.0, "addition": "off"}},
    "no_rerank": {"retrieval": {"alpha": 0.0, "near_tie": "off"}},
    "no_evolution": {
        "evolution": {
            "value_update": "off",
            "prune_threshold": -1.0,
            "merge_threshold": 1.0,
            "addition": "off",
        }
    },
}


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_an_ablation_changes_its_switch_and_what_follows_from_it(ablation: str) -> None:
    """R44, R45, R16 (near-tie off under no_rerank), R32 (novelty off under no_evolution)."""
    chime, without = resolved(), resolved(ablation=ablation)
    changed = {
        section: {key: value for key, value in options.items() if value != chime[section][key]}
        for section, options in without.items()
        if isinstance(options, dict) and options != chime[section]
    }
    assert changed == DECIDED[ablation]
    assert without["ablation"] == ablation
    assert resolved(**without) == without


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ablation": "no_hirarchy"}, r"ablation: .*no_hierarchy"),
        (
            {"ablation": "no_rerank", "retrieval": {"near_tie": "score"}},
            "retrieval: the ablation no_rerank sets near",
        ),
        (
            {"ablation": "no_rerank", "retrieval": {"beta": 0.3}},
            "retrieval: beta has no effect under the ablation",
        ),
        (
            {"ablation": "no_evolution", "evolution": {"value_update": "skip_zero"}},
            "no_evolution sets value_update",
        ),
        ({"ablation": "no_evolution", "evolution": {"merge": "append"}}, "merge has no effect"),
        ({"ablation": "no_evolution", "evolution": {"prune_min_count": 5}}, "prune_min_count has no effect"),
        ({"ablation": "no_evolution", "outcome": {"delta": "signed"}}, "outcome: delta has no effect"),
        (
            {"ablation": "no_memory", "retrieval": {"k": 5}},
            "retrieval: k has no effect under the ablation no_memory",
        ),
        ({"ablation": "no_memory", "gate": {"scenario": 9}}, "gate: scenario has no effect"),
        ({"ablation": "no_gate", "evolution": {"conf_threshold": 0.7}}, "conf_threshold has no effect"),
        ({"ablation": "no_gate", "evolution": {"merge_threshold": 0.9}}, "no_gate sets merge_threshold to 1.0"),
        ({"outcome": {"delta": "signed"}}, "outcome: delta has no effect under the ablation none"),
        ({"ablation": "no_hierarchy", "outcome": {"merge": True}}, "outcome: merge has no effect"),
    ],
)
def test_an_option_that_contradicts_the_ablation_is_refused(options: dict[str, Any], message: str) -> None:
    """R45: no run is two experiments, and no experiment two runs."""
    with pytest.raises(ConfigError, match=message):
        resolved(**options)


def test_what_an_ablation_leaves_open_can_be_set() -> None:
    """R44 no_gate: merge and novelty are off by default and can be on, with their thresholds."""
    opened = {"delta": "signed", "merge": True, "novelty": True}
    options = resolved(
        ablation="no_gate", outcome=opened, evolution={"merge_threshold": 0.9, "addition_threshold": 0.2}
    )
    evolution = options["evolution"]
    assert (evolution["merge_threshold"], evolution["addition"]) == (0.9, "content_novelty")
    assert resolved(ablation="no_rerank", retrieval={"near_tie": "off"}) == resolved(ablation="no_rerank")


def test_outcome_based_evolution_needs_no_switch_and_takes_no_other() -> None:
    """R44: umem_outcome is no_gate by the name of what it stands for."""

    def outcome(**options: Any) -> dict[str, Any]:
        return registry.resolve("method", Component(name="umem_outcome", options=options)).options

    assert {"ablation": "no_gate", **outcome()} == resolved(ablation="no_gate")
    assert outcome(**outcome(outcome={"delta": "signed"}))["outcome"]["delta"] == "signed"
    with pytest.raises(ConfigError, match="ablation"):
        outcome(ablation="no_memory")


# --- runs -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def launch(tmp_path_factory: pytest.TempPathFactory) -> LaunchDirectory:
    """CHIME, the seven, and umem_outcome on the simulated world."""
    return asyncio.run(launched(tmp_path_factory.mktemp("ablations"), SWEEP))


def config_of(launch: LaunchDirectory, run: str) -> RunConfig:
    return RunConfig.model_validate_json(json.dumps(launch.manifest.runs[run].config))


def test_every_episode_costs_what_its_method_states(launch: LaunchDirectory) -> None:
    """R43, R44: planner and gate calls of every episode, train and eval, beside the executor's steps."""
    for run in launch.manifest.runs:
        method = registry.method(config_of(launch, run).method)
        for phase in ("train", "eval"):
            due = {
                role.value: n
                for role, n in method.calls(STEPS).items()
                if role is not Role.GATE or phase == "train"
            }
            records = records_of(launch, run, phase)
            assert len(records) == (EVAL if phase == "eval" else launch.manifest.runs[run].epochs * TRAIN)
            for record in records:
                spent = {role: used.calls for role, used in record.usage.items() if role != "embedder"}
                assert spent == {**due, "executor": STEPS}, record.unit.key


def test_only_a_method_with_memory_repeats_the_stream(launch: LaunchDirectory) -> None:
    """R6, R44 no_memory: without a bank there is nothing to carry over."""
    for run, entry in launch.manifest.runs.items():
        without = "chime_no_memory-" in run
        assert (entry.stateful, entry.epochs) == (not without, 1 if without else EPOCHS)
        assert any(e.events for e in journal_of(launch, run)) is not without


def test_outcome_based_evolution_is_no_gate_event_by_event(launch: LaunchDirectory) -> None:
    """R44, R47: the same content chain under another name."""
    chains = [
        [entry.content_hash for entry in journal_of(launch, run)]
        for run in launch.manifest.runs
        if "no_gate" in run or "umem_outcome" in run
    ]
    assert len(chains) == 2
    assert chains[0] == chains[1]
    assert len(chains[0]) == StreamShape(epoch_size=TRAIN, epochs=EPOCHS, window=4).total


def test_reports_name_the_ablation(launch: LaunchDirectory) -> None:
    """R45, R16: the method's column says what was taken away, and the near-tie mode is the one that ranked."""
    report = launch_report(launch)
    rows = {row.method: row for row in report.rows}
    assert set(rows) == {"chime", "umem_outcome", *(f"chime {name}" for name in ABLATIONS)}
    modes = {name: row.deviations.get("near_tie") for name, row in rows.items()}
    assert modes.pop("chime no_rerank") == "off"
    assert modes.pop("chime no_memory") is None
    assert set(modes.values()) == {"relevance"}
    assert report.complete
