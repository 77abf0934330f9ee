"""What the episodes of a launch asked of their models, beside what their methods state that they ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.adapters.directory.launch_directory import LaunchDirectory
from chime_dist.adapters.directory.prompt_files import load_prompts
from chime_dist.adapters.directory.trajectory_files import load
from chime_dist.core.episode import EpisodeTrace, Role
from chime_dist.methods.a_mapreduce.method import AMapReduce
from chime_dist.ports import Method
from chime_dist.wiring import registry
from chime_dist.wiring.results import run_config


def surprises(launch: LaunchDirectory) -> list[str]:
    """A line for every final episode whose calls by role are not the stated ones, or whose end is infra."""
    return [line for run in launch.manifest.runs for line in _surprises(launch, run)]


def schemas_asked(launch: LaunchDirectory, run: str) -> set[tuple[str, str]]:
    """(role, schema) of every captured call that had to follow one."""
    return {
        (call.role, call.request.schema_name)
        for record in EpisodeArchive(launch).finals(run).values()
        if (episode := load_prompts(launch.run(run), record)) is not None
        for call in episode.calls
        if call.request is not None and call.request.response_schema is not None
    }


def _surprises(launch: LaunchDirectory, run: str) -> Iterator[str]:
    method = registry.method(run_config(launch, run).method)
    for key, record in EpisodeArchive(launch).finals(run).items():
        trace = load(launch.run(run).trajectory(record.unit), record)
        asked = Counter({role: spent.calls for role, spent in record.usage.items() if role != Role.EMBEDDER})
        stated = +_stated(method, trace, steps=asked[Role.EXECUTOR.value])
        if asked != stated or record.outcome == "infra":
            yield f"{key} ({record.outcome}, {record.end_reason}): asked {dict(asked)}, stated {dict(stated)}"


def _stated(method: Method, trace: EpisodeTrace, steps: int) -> Counter[str]:
    stated = Counter({role.value: count for role, count in method.calls(steps).items()})
    stated[Role.EXECUTOR.value] = steps
    if trace.proposal is None:
        del stated[Role.GATE.value]
    else:
        # On top of what is stated: a repair, and the merges that the worker did ahead of the commit.
        repairs = max(0, len(trace.gate.get("replies", ())) - 1)
        stated[Role.GATE.value] += repairs + len(trace.proposal.content.get("merges", ()))
    if isinstance(method, AMapReduce):
        # It states the most: as many subtasks as there may be, and a projection.
        done = {step.content: step.data for step in trace.trajectory.steps if step.kind == "event"}
        stated[Role.PLANNER.value] -= method.options.max_subtasks - len(done["mapped"]["parts"])
        stated[Role.PLANNER.value] -= method.options.insights > 0 and "projected" not in done
    return stated
