"""The installed ``bfcl_eval``: pinned, imported quietly, and leaving nothing behind."""

from __future__ import annotations

import importlib.metadata
import locale
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from chime_dist.benchmarks.bfcl_v4 import package as bfcl_package
from chime_dist.benchmarks.bfcl_v4.benchmark import BfclV4, BfclV4Options
from chime_dist.benchmarks.bfcl_v4.package import BfclPackage, require_installed
from chime_dist.benchmarks.bfcl_v4.pins import LIVE
from chime_dist.errors import BenchmarkError, MissingExtraError

INSTALL = r"pip install 'chime-dist\[bfcl\]' && pip install --no-deps bfcl-eval==2026\.3\.23"

SCORE_ONE = """
import asyncio
from chime_dist.core.model_call import ToolCall
from chime_dist.ports import Action

async def score(benchmark, name, arguments):
    environment = await benchmark.open(benchmark.tasks()[0].id)
    await environment.act(Action(tool_calls=(ToolCall(id="1", name=name, arguments=arguments, raw=""),)))
    return await environment.score()
"""


def run(script: str, temporary: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """The script in a fresh interpreter, every warning an error, with its own empty temporary folder."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**os.environ, "TMPDIR": str(temporary), **environment},
        cwd=temporary,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_process_imports_the_package_late_quietly_and_leaves_no_files(tmp_path: Path) -> None:
    done = run(
        SCORE_ONE
        + """
import os, sys
import chime_dist.benchmarks.bfcl_v4.benchmark as module
benchmark = module.BfclV4(module.BfclV4Options(categories=("live_simple",)))
assert "bfcl_eval" not in sys.modules
assert asyncio.run(score(benchmark, "get_user_info", {"user_id": 7890, "special": "black"}))
assert os.environ["BFCL_PROJECT_ROOT"] == "as it was"
vendors = {"openai", "anthropic", "boto3", "cohere", "mistralai", "google.genai", "torch", "transformers"}
assert not vendors & sys.modules.keys(), vendors & sys.modules.keys()
assert os.listdir() == [], os.listdir()
os._exit(0)  # like a killed worker: no exit hook runs
""",
        tmp_path,
        BFCL_PROJECT_ROOT="as it was",
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def test_a_real_model_config_and_a_chosen_root_are_left_alone(tmp_path: Path) -> None:
    """The stand-in never takes the place of a module that is already imported."""
    root = tmp_path / "chosen"
    root.mkdir()
    done = run(
        SCORE_ONE
        + """
import sys, types
import bfcl_eval.constants.eval_config
real = types.ModuleType("bfcl_eval.constants.model_config")
def model(underscore_to_dot):
    return types.SimpleNamespace(underscore_to_dot=underscore_to_dot)
real.MODEL_CONFIG_MAPPING = {"prompted": model(False), "under_score": model(True), "vendor/model-FC": model(True)}
sys.modules[real.__name__] = real
from chime_dist.benchmarks.bfcl_v4.benchmark import BfclV4, BfclV4Options
benchmark = BfclV4(BfclV4Options(categories=("live_simple",), task_ids=("live_simple_2-2-0",)))
call = ("uber_ride", {"loc": "2020 Addison Street, Berkeley, CA, USA", "type": "comfort", "time": 600})
assert asyncio.run(score(benchmark, *call))
assert sys.modules[real.__name__] is real
""",
        tmp_path,
        BFCL_PROJECT_ROOT=str(root),
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sorted(path.name for path in root.iterdir()) == [".file_locks", "result", "score"]


def test_a_missing_package_is_named_with_the_install_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bfcl_eval", None)
    with pytest.raises(MissingExtraError, match=INSTALL):
        BfclV4(BfclV4Options())


def test_another_version_is_named_with_the_install_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "2025.12.17")
    with pytest.raises(MissingExtraError, match=rf"found 2025\.12\.17: {INSTALL}"):
        BfclV4(BfclV4Options())


def test_a_copy_without_metadata_counts_as_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", unknown)
    with pytest.raises(MissingExtraError, match=f"found a copy without version: {INSTALL}"):
        require_installed()


def test_a_missing_dependency_of_the_package_is_named(tmp_path: Path) -> None:
    """bfcl-eval is installed without its dependencies, so one of ours may be absent."""
    done = run(
        """
import sys
sys.modules["tenacity"] = None
from chime_dist.benchmarks.bfcl_v4.benchmark import BfclV4, BfclV4Options
BfclV4(BfclV4Options()).tasks()
""",
        tmp_path,
    )
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert "MissingExtraError" in last
    assert "tenacity is missing" in last
    assert "pip install 'chime-dist[bfcl]'" in last
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A private copy of the data folder, found where the package's own is."""
    real, copy = require_installed(), tmp_path / "data"
    (copy / "possible_answer").mkdir(parents=True)
    for path in real.rglob("BFCL_v4_live_*.json"):
        (copy / path.relative_to(real)).write_bytes(path.read_bytes())
    monkeypatch.setattr(bfcl_package, "require_installed", lambda: copy)
    return copy


@pytest.mark.parametrize("name", ["BFCL_v4_live_simple.json", "possible_answer/BFCL_v4_live_simple.json"])
def test_changed_data_is_refused_and_both_hashes_are_shown(data: Path, name: str) -> None:
    BfclPackage().entries("live_simple")
    text = (data / name).read_text()
    (data / name).write_text(text.replace("7890", "7891"))
    package = BfclPackage()
    with pytest.raises(BenchmarkError, match=r"live_simple\.json of bfcl-eval 2026\.3\.23 has SHA-256 .*expected"):
        package.entries("live_simple")
    with pytest.raises(BenchmarkError, match="reinstall"):
        package.data_sha256(LIVE)
    assert len(package.entries("live_parallel")) == 16


def test_absent_data_is_refused(data: Path) -> None:
    (data / "BFCL_v4_live_simple.json").unlink()
    with pytest.raises(BenchmarkError, match=r"cannot read BFCL_v4_live_simple\.json"):
        BfclPackage().entries("live_simple")


def test_an_encoding_that_would_garble_the_questions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package opens its files in the locale's encoding; the hash of the bytes cannot see that."""
    monkeypatch.setattr(locale, "getpreferredencoding", lambda do_setlocale: "ISO-8859-1")
    with pytest.raises(BenchmarkError, match="PYTHONUTF8=1"):
        BfclPackage()


def test_threads_that_load_at_once_share_one_copy() -> None:
    package, barrier = BfclPackage(), threading.Barrier(8)

    def load(_: int) -> int:
        barrier.wait(timeout=30)
        return id(package.entries("live_parallel_multiple"))

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(load, range(8)))) == 1


def test_a_category_without_reference_answers_cannot_be_checked_by_the_ast_checker() -> None:
    package = BfclPackage()
    entry = next(iter(package.entries("live_relevance").values()))
    with pytest.raises(BenchmarkError, match=f"{entry.id} with FileNotFoundError"):
        package.accepts(entry, [{"anything": {}}])
