"""The report as data: exact fractions, counts, and what is wrong. The other modules only lay it out."""

from __future__ import annotations

import shlex
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field, field_validator

from chime_dist.core.aggregate import Average, Denominator, Tally, TrainMetric
from chime_dist.core.comparison import Comparison
from chime_dist.core.episode import EndReason, Outcome, Role, Usage
from chime_dist.core.frozen import Frozen
from chime_dist.core.spending import Price, Purpose
from chime_dist.report.results import FORKED, BankPoint

Phase = Literal["train", "eval"]

AT_COMMITS = "train, at commits"
"""What commits spent, among the phases of a row."""

EvalMemory = Literal["frozen", "unverified", "none"]
"""Memory during eval: proven unchanged by the bank's digests, frozen by protocol but with no digests to prove it,
or a method without memory (R5, H4)."""


class ReportOptions(Frozen):
    """How results become numbers."""

    orderings: tuple[Annotated[int, Field(ge=0)], ...]
    """0-based orderings that were planned, ascending; each is expected of every row."""
    directory: str
    """The launch's run directory, as a person would type it; only named in hints."""
    program: str = "chime-dist"
    """This program, as a shell takes it; likewise."""
    denominator: Denominator = "scored"
    train_metric: TrainMetric = "selected"
    """Which train accuracy enters the averages over benchmarks; the rows show both (R6)."""
    partial: bool = False
    """Average what there is where orderings are incomplete; every such number then shows its n (H1)."""
    compare: tuple[str, str] | None = None
    """The two methods that are compared; None takes chime, or the first row's method, against every other."""
    prices: dict[str, Price] = {}
    """By endpoint, of those whose price is known; all in one currency."""

    @field_validator("orderings")
    @classmethod
    def _ascending(cls, orderings: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(set(orderings)))

    def command(self, *words: str) -> str:
        """A command line of this program, ready to be pasted."""
        return f"{self.program} {shlex.join(words)}"

    @property
    def k(self) -> int:
        """k of Avg@k: how many orderings were planned (R4)."""
        return len(self.orderings)

    @property
    def currency(self) -> str | None:
        """Of all costs; None where no price is known."""
        return next((price.currency for price in self.prices.values()), None)


class RunLine(Frozen):
    """One ordering of a row."""

    ordering: int
    run_id: str
    train_first: Tally
    train_selected: Tally
    eval: Tally
    empty_first: int = Field(default=0, ge=0)
    """Of the infra positions of ``train_first`` those that were committed empty: no resume runs them again."""
    empty_selected: int = Field(default=0, ge=0)
    """Likewise of ``train_selected``."""
    bank_size: int | None
    growth: tuple[BankPoint, ...] = ()
    """See ``RunResults``."""
    eval_memory: EvalMemory


class Score(Frozen):
    """One accuracy of a row."""

    average: Average
    total: Tally
    """Over all planned orderings, those without a run included."""


class GateLine(Frozen):
    """How the credit gate did on train episodes, all epochs and orderings together (R21)."""

    decided: int
    errors: int
    """Episodes whose gate gave no decision."""
    labels: dict[Outcome, dict[str, int]]
    """The attribution mix: decided episodes by outcome and label."""

    @property
    def error_rate(self) -> Fraction | None:
        """Errors over the episodes where the gate ran, in [0, 1]; None where it never ran."""
        ran = self.decided + self.errors
        return Fraction(self.errors, ran) if ran else None


class Costs(Frozen):
    """What model calls cost, all orderings together."""

    episodes: int
    successes: int = Field(ge=0)
    """Of the episodes; what a success cost is everything that was spent over these."""
    usage: dict[str, Usage]
    """By role."""
    costs: dict[str, float | None]
    """Likewise, in the report's currency; None where the price of who answered is not known."""
    cost: float | None
    """Of all roles; None where tokens were used whose price is not known, or no price is."""

    @property
    def asked(self) -> Usage:
        """All model calls together; the embedder's are not in it, for a retrieval is no turn of a model."""
        return sum((spent for role, spent in self.usage.items() if role != Role.EMBEDDER), Usage())

    @property
    def cost_per_success(self) -> float | None:
        """None where the cost is not known, or nothing succeeded."""
        return None if self.cost is None or not self.successes else self.cost / self.successes

    @property
    def left_out(self) -> int:
        """Observations that were left out of prompts because they were too long (R36)."""
        return sum(spent.left_out for spent in self.usage.values())


class CostLine(Costs):
    """What the attempts that count cost in one phase."""

    mean_duration_s: float
    """Mean seconds per episode; queueing is not in it."""
    ends: dict[EndReason, int]
    """Episodes by how they ended, infra reasons among them."""
    flags: dict[str, int]
    """Episodes by what the benchmark remarked on the way (``EpisodeRecord.flags``); one may have several."""


class CommitCosts(Costs):
    """What the bank asked when train episodes were committed, on top of what these asked themselves; those that a
    fork copied are not in it."""


class Growth(Frozen):
    """Records of one collection at every checkpoint, as a mean over orderings."""

    collection: str
    sizes: dict[str, Fraction | None]
    """By checkpoint, in stream order; None where an ordering has not got there and the report is not partial."""


class Row(Frozen):
    """One benchmark x backbone x method, over its orderings."""

    benchmark: str
    backbone: str
    method: str
    endpoints: dict[str, str]
    """Who answered, by the roles that asked: a backbone's name, or ``embedder``."""
    deviations: dict[str, str]
    train_size: int
    epochs: int
    eval_size: int
    runs: tuple[RunLine, ...]
    """By ordering; planned orderings without a run are absent."""
    train_first: Score
    train_selected: Score
    eval: Score
    gate: GateLine
    growth: tuple[Growth, ...]
    """By collection; empty without a bank, and while no checkpoint was reached."""
    cost: dict[Phase, CostLine]
    """Absent for a phase without a finished episode."""
    at_commits: CommitCosts | None = None
    """None where no commit asked anything."""

    @property
    def scores(self) -> dict[str, Score]:
        """Its accuracies by field name."""
        return {"train_first": self.train_first, "train_selected": self.train_selected, "eval": self.eval}

    def splits(self, line: RunLine) -> tuple[tuple[str, Tally], ...]:
        """What is reported of one of its runs, named: first and last train epoch (once where they are the same),
        and eval."""
        named = {"eval": line.eval}
        if self.epochs:
            named = {"train epoch 1": line.train_first, f"train epoch {self.epochs}": line.train_selected} | named
        return tuple(named.items())

    def committed_empty(self, line: RunLine) -> dict[str, int]:
        """By the names of ``splits``: infra episodes that no resume runs again."""
        empty = {"eval": 0}
        if self.epochs:
            empty |= {"train epoch 1": line.empty_first, f"train epoch {self.epochs}": line.empty_selected}
        return empty

    @property
    def spending(self) -> tuple[tuple[str, Costs], ...]:
        """All that was spent for it, named, in reading order: its phases, and its commits after train."""
        named: dict[str, Costs | None] = {
            "train": self.cost.get("train"),
            AT_COMMITS: self.at_commits,
            "eval": self.cost.get("eval"),
        }
        return tuple((name, cost) for name, cost in named.items() if cost is not None)

    @property
    def forked(self) -> bool:
        """Whether its runs left others on the way; see ``report.results.FORKED``."""
        return FORKED in self.deviations

    @property
    def complete(self) -> bool:
        """Whether every planned episode of every planned ordering was scored."""
        return all(not score.average.incomplete for score in self.scores.values())


class BenchmarkMean(Frozen):
    """One accuracy over benchmarks; both means are None unless every benchmark has exactly one cell."""

    cell: Decimal | None
    """Unweighted mean of the displayed cells in percent, rounded half-up once."""
    exact: Fraction | None
    """Mean of the exact accuracies, in [0, 1]."""
    total: Tally
    """Over all rows behind it."""


class MethodAverage(Frozen):
    """The "Average" columns: one backbone and method over all benchmarks of the report (R4)."""

    backbone: str
    method: str
    train: BenchmarkMean
    eval: BenchmarkMean
    complete: bool
    """False where a benchmark is missing or incomplete."""


class Paired(Frozen):
    """Two rows of one benchmark and backbone on the tasks that both have scored in the same ordering."""

    split: Phase
    """``train`` is the epoch that ``ReportOptions.train_metric`` names, of each."""
    first: int
    """0-based row; differences are its accuracy minus the second's."""
    second: int
    planned: int = Field(ge=0)
    """Pairs if every episode were scored."""
    complete: bool
    """Whether every planned ordering of both is."""
    result: Comparison | None
    """None where it was refused, because an ordering is incomplete (H1)."""

    @property
    def left_out(self) -> int:
        """Planned pairs that are none, because one of the two has no score."""
        return self.planned - (self.result.pairs if self.result else 0)


class Charge(Frozen):
    """What was asked of an endpoint, or of all of them, and what that cost."""

    usage: Usage
    cost: float | None
    """In the report's currency; None where tokens were used whose price is not known."""


class Problem(Frozen):
    """Why a number is missing or must not be trusted, and what to do about it."""

    where: str
    what: str
    fix: str


class Report(Frozen):
    """Everything that is printed about a launch."""

    options: ReportOptions
    rows: tuple[Row, ...]
    averages: tuple[MethodAverage, ...]
    """Empty with fewer than two benchmarks."""
    comparisons: tuple[Paired, ...]
    """Every one that was made; none with fewer than two methods."""
    spent: dict[str, Charge]
    """By endpoint, over every attempt of every run, also those that were tried again, over all commits and over
    what was built before the runs."""
    purposes: dict[Purpose, Charge]
    """The same by what it was for."""
    total: Charge
    """Over all endpoints."""
    problems: tuple[Problem, ...]
    notes: tuple[str, ...]
    """How to read the numbers."""

    @property
    def complete(self) -> bool:
        """Whether nothing is missing; a caller exits with 3 otherwise (G3)."""
        return not self.problems
