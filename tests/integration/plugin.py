"""A benchmark of somebody else's: an installed distribution with an entry point, and three tasks from hell.

Its source stands here as text, because it must be found the way users' benchmarks are found, in every process of a
launch, and nowhere else.
"""

from __future__ import annotations

from pathlib import Path

SOURCE = """\
import asyncio, os, signal, subprocess
from pathlib import Path
from chime_dist.core.episode import EndReason
from chime_dist.core.frozen import Frozen
from chime_dist.core.task import Task, TaskView
from chime_dist.ports import Observation


class Options(Frozen):
    marks: str
    poison: str
    crashing: str


class Environment:
    def __init__(self, options, task):
        self._options, self._task = options, task
        request = f"Do {task}."
        self.view = TaskView(request=request, messages=({"role": "user", "content": request},))

    async def act(self, action):
        if self._task == self._options.poison:
            while not Path(self._options.marks, "armed").exists():
                await asyncio.sleep(0.05)
            # Children as benchmarks have them, out of reach in a session of their own, then the death that the
            # memory killer deals.
            leader = subprocess.Popen(["bash", "-c", "sleep 311 & wait"], start_new_session=True).pid
            with open(os.path.join(self._options.marks, "deaths"), "a") as file:
                file.write(f"{leader}\\n")
            os.kill(os.getpid(), signal.SIGKILL)
        first = Path(self._options.marks, f"seen-{self._task}")
        if self._task == self._options.crashing and not first.exists():
            first.touch()
            raise RuntimeError("the simulator fell over")
        return Observation(done=True, end_reason=EndReason.SCORED)

    async def score(self):
        return True

    async def close(self):
        pass


class Hell:
    Options = Options
    name, action_mode, max_steps, usual_steps = "hell", "tools", 2, 1

    def __init__(self, options):
        self._options = options

    def tasks(self):
        return [Task(id=f"task-{n}", domain="hell") for n in range(10)]

    def fingerprint(self):
        return {}

    async def open(self, task_id):
        return Environment(self._options, task_id)
"""

ENTRY_POINTS = "[chime_dist.benchmarks]\nhell = field_plugin:Hell\n"
METADATA = "Metadata-Version: 2.1\nName: field-plugin\nVersion: 1.0\n"


def installed(folder: Path) -> Path:
    """The distribution in a folder that belongs on PYTHONPATH."""
    info = folder / "field_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(METADATA)
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    (folder / "field_plugin.py").write_text(SOURCE)
    return folder
