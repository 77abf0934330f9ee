"""A user's own method and benchmark: the README's example as it stands there, and what a broken one ends in."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from chime_dist.adapters.directory.episode_archive import EpisodeArchive
from chime_dist.config.loading import load_sweep
from chime_dist.engine.driver import Ending
from chime_dist.errors import ConfigError, MethodError
from chime_dist.wiring import registry
from chime_dist.wiring.launch import Launch
from chime_dist.wiring.plans import plan_runs
from tests.integration.extension import installed, model_that_adds, unpacked
from tests.integration.processes import journals_of, launch_below, rows_of


@dataclass(frozen=True, slots=True)
class Workplace:
    """A folder with the user's package installed, and a model."""

    folder: Path
    site: Path
    model: str

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """``chime-dist`` in a process of its own, as the user starts it."""
        environment = {**os.environ, "PYTHONPATH": str(self.site), "OPENAI_BASE_URL": self.model, "MODEL": "adder"}
        return subprocess.run(
            [sys.executable, "-m", "chime_dist", *words],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
        )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The README's package, built and installed by pip."""
    source = tmp_path_factory.mktemp("source")
    unpacked(source)
    return installed(source, tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def model() -> Iterator[str]:
    """Shared: it remembers nothing."""
    with model_that_adds() as url:
        yield url


def test_the_example_of_the_readme_runs_as_it_stands_there(tmp_path: Path, package: Path, model: str) -> None:
    place = Workplace(tmp_path, package, model)
    unpacked(tmp_path)
    result = place.run("sweep", "sweep.yaml", "--set", "orderings=[0]")
    assert result.returncode == 0, result.stdout + result.stderr
    rows = rows_of(launch_below(tmp_path / "runs"))
    assert {row["outcome"] for row in rows} == {"success"}
    run = next(run for run in journals_of(launch_below(tmp_path / "runs")) if "cheatsheet" in run)
    bank = json.loads(place.run("bank", "at", "runs/latest", run, "last", "--json").stdout)
    [sheet] = bank["collections"]["sheet"]
    assert sheet["payload"] == {"text": "Seen 14 sums."}
    assert sheet["version"] == 13


Mistake = Callable[[str], str]
METHOD, BENCHMARK, SOLVE = "my_agents/cheatsheet.py", "my_agents/sums.py", "my_agents/prompts/solve.j2"


def instead(old: str, new: str) -> Mistake:
    """One mistake in a source."""

    def made(source: str) -> str:
        assert old in source
        return source.replace(old, new)

    return made


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Mistake, str], None]]:
    """Puts the package into this process's path, with a mistake in one of its files."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "my_agents"]:
            del sys.modules[name]
        registry._entry_points.cache_clear()
        registry._load.cache_clear()
        importlib.invalidate_caches()

    def break_it(mistake: Mistake, file: str) -> None:
        files = unpacked(tmp_path)
        (tmp_path / file).write_text(mistake(files[file]))
        info = tmp_path / "my_agents-0.1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-agents\nVersion: 0.1\n")
        points = ["[chime_dist.methods]", "cheatsheet = my_agents.cheatsheet:Cheatsheet"]
        points += ["[chime_dist.benchmarks]", "sums = my_agents.sums:Sums"]
        (info / "entry_points.txt").write_text("\n".join(points))
        forget()

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield break_it
    forget()


Break = Callable[[Mistake, str], None]
SMALL = ("orderings=[0]", "methods=[cheatsheet]", "cluster.stop_after_infra=1", "cluster.max_deliveries=1")


async def launched(folder: Path, model: str) -> tuple[Launch, Ending]:
    """The example's sweep, its method alone."""
    environ = {"OPENAI_BASE_URL": model, "MODEL": "adder"}
    sweep = load_sweep(folder / "sweep.yaml", [*SMALL, f"cluster.state_dir={folder / 'state'}"], environ=environ)
    launch = Launch.new(sweep, plan_runs(sweep))
    return launch, await launch.drive(lambda _: None)


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (
            instead('told = {**proposal.content, "sheet"', 'told = {**proposal.contents, "sheet"'),
            "in prepare: method",
        ),
        (instead("return Prepared(requests=", "return list("), "returned list from prepare, not Prepared"),
        (
            instead("return CommitReply(key=request.key, data", "return dict(key=1, data"),
            "from answer, not CommitReply",
        ),
        (instead('"sheet", "id": item}', '"shet", "id": item}'), "in collection 'shet'; it declares sheet"),
        (instead('"id": item}', '"id": "first"}'), "an event that cannot be applied"),
        (instead("if reply.data else ()", "if not reply.data else [1]"), "returned list from finish, not tuple"),
        (instead('vectors={"c": c}', 'vectors={"d": c}'), "with a vector 'd'; 'sheet' declares c"),
    ],
)
async def test_a_broken_commit_stops_the_run_before_anything_is_committed(
    tmp_path: Path, model: str, broken: Break, mistake: Mistake, told: str
) -> None:
    """A wrong bank stops the run; the message names the method, the place and the fix."""
    broken(mistake, METHOD)
    with pytest.raises(MethodError, match="method 'cheatsheet'") as caught:
        await launched(tmp_path, model)
    assert told in str(caught.value)
    assert "position 0" in str(caught.value)
    assert "resume the launch" in str(caught.value)
    assert not any(journals_of(launch_below(tmp_path / "runs")).values())


async def test_an_error_in_prepare_is_told_with_its_line(tmp_path: Path, model: str, broken: Break) -> None:
    broken(instead("sheets = state.collection", "sheets = state.colection"), METHOD)
    line = unpacked(tmp_path / "again")[METHOD].split("def prepare")[0].count("\n") + 2
    with pytest.raises(MethodError, match=rf"has no attribute 'colection' \(cheatsheet.py, line {line}\)"):
        await launched(tmp_path, model)


async def test_a_broken_attempt_is_infra_and_says_whose_it_is(tmp_path: Path, model: str, broken: Break) -> None:
    broken(instead('payload["text"] if hits', 'payload["text"] if hit'), METHOD)
    launch, ending = await launched(tmp_path, model)
    assert ending is Ending.PAUSED
    [row, *_] = rows_of(launch.directory.path)
    assert row["end_reason"] == "unknown"
    assert row["detail"].startswith("method 'cheatsheet': NameError: name 'hit' is not defined")


async def test_a_prompt_that_is_not_there_is_told_with_the_line_that_asked(
    tmp_path: Path, model: str, broken: Break
) -> None:
    broken(instead("cheatsheet/solve", "cheatsheet/salve"), METHOD)
    launch, _ = await launched(tmp_path, model)
    detail = rows_of(launch.directory.path)[0]["detail"]
    assert detail.startswith("method 'cheatsheet': ConfigError: prompt 'cheatsheet/salve' does not exist")
    assert "(cheatsheet.py, line " in detail


async def test_an_attempt_that_executes_nothing_is_told_so(tmp_path: Path, model: str, broken: Break) -> None:
    broken(instead("await ctx.execute(", "dict(turn="), METHOD)
    launch, _ = await launched(tmp_path, model)
    assert (
        "method 'cheatsheet' ended its attempt without ctx.execute" in rows_of(launch.directory.path)[0]["detail"]
    )


async def test_a_broken_benchmark_is_infra_and_says_whose_it_is(tmp_path: Path, model: str, broken: Break) -> None:
    broken(instead("action.text.strip()", "action.text.strap()"), BENCHMARK)
    launch, _ = await launched(tmp_path, model)
    assert rows_of(launch.directory.path)[0]["detail"].startswith("benchmark 'sums': AttributeError")


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        (instead("return Reflection(", "return 1 / 0 or Reflection("), "method 'cheatsheet': ZeroDivisionError"),
        (instead("return Reflection(", "return dict("), "method 'cheatsheet' returned dict from reflect"),
    ],
)
async def test_a_broken_reflect_is_a_gate_error_with_its_reason(
    tmp_path: Path, model: str, broken: Break, mistake: Mistake, told: str
) -> None:
    broken(mistake, METHOD)
    launch, ending = await launched(tmp_path, model)
    assert ending is Ending.COMPLETE
    [run] = launch.runs
    trace = EpisodeArchive(launch.directory).trace_at(run.run_id, "train", 0)
    assert trace is not None
    assert trace.record.gate_status == "gate_error"
    assert told in trace.gate["reason"]


@pytest.mark.parametrize(
    ("file", "mistake", "told"),
    [
        (METHOD, instead("class Cheatsheet", "import nothing_like_it\nclass Cheatsheet"), "cannot be loaded"),
        (METHOD, instead("class Cheatsheet", "class Chatsheet"), "cannot be loaded: AttributeError"),
        (METHOD, instead("    Options = Options\n", ""), "no class with an attribute Options"),
        (METHOD, instead("self.options = options", "self.options = option"), "cannot be built: NameError"),
        (METHOD, instead("def calls", "def call"), "lacks calls; see chime_dist.ports.Method"),
        (METHOD, instead("async def reflect", "def reflect"), "must have async def reflect"),
        (METHOD, instead("def finish", "async def finish"), "must have def finish"),
        (BENCHMARK, instead("name, action_mode", "name, action_mod"), "lacks action_mode"),
        (BENCHMARK, instead("async def open", "def open"), "must have async def open"),
    ],
)
def test_a_class_that_is_no_method_is_refused_before_anything_starts(
    tmp_path: Path, broken: Break, file: str, mistake: Mistake, told: str
) -> None:
    broken(mistake, file)
    with pytest.raises(ConfigError, match=r"my_agents.* of the package my-agents") as caught:
        plan_runs(
            load_sweep(tmp_path / "sweep.yaml", SMALL, environ={"OPENAI_BASE_URL": "http://m", "MODEL": "m"})
        )
    assert told in str(caught.value)
    assert list(tmp_path.glob("runs/*")) == []


def test_a_method_without_prompts_is_refused_with_the_folder(tmp_path: Path, broken: Break) -> None:
    broken(str, METHOD)
    for path in (tmp_path / "my_agents" / "prompts").iterdir():
        path.unlink()
    (tmp_path / "my_agents" / "prompts").rmdir()
    with pytest.raises(ConfigError, match=r"has no folder of prompts: expected .*my_agents/prompts"):
        plan_runs(
            load_sweep(tmp_path / "sweep.yaml", SMALL, environ={"OPENAI_BASE_URL": "http://m", "MODEL": "m"})
        )
