"""From the results of a launch's runs to its report. Pure; what would mislead is left out or refused.

Incomplete orderings are not averaged unless asked for (H1, G3); the notes say how to read every number, and
whether memory was online or frozen (H4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from chime_dist.core.aggregate import Tally, mean, mean_of_cells, percent
from chime_dist.core.comparison import LEVEL, RESAMPLES, SEED
from chime_dist.core.episode import Usage
from chime_dist.core.paper import PAPER
from chime_dist.errors import ConfigError
from chime_dist.report.charges import by_endpoint, by_launch, by_purpose, charge, spent
from chime_dist.report.comparing import compared
from chime_dist.report.counting import CountedRun, count_run
from chime_dist.report.document import (
    BenchmarkMean,
    MethodAverage,
    Paired,
    Problem,
    Report,
    ReportOptions,
    Row,
    Score,
)
from chime_dist.report.results import RunResults
from chime_dist.report.rows import build_row


def build_report(
    runs: Sequence[RunResults], options: ReportOptions, prerequisites: Mapping[str, Usage] | None = None
) -> Report:
    """Rows come in the order in which their first run is given. ``prerequisites`` is by backbone what was used for
    building what episodes rest on.

    An average over incomplete orderings is left out (None) and explained in ``problems``, unless
    ``options.partial``. Raises RunDirectoryError for stale, doubled or foreign records, ConfigError for no runs,
    for a method to compare that is not there, and where the orderings of a row are not one experiment,
    JournalError where the bank changed during eval.
    """
    if not runs:
        raise ConfigError(f"{options.directory}: there are no runs to report; is it a launch's run directory?")
    groups: dict[tuple[object, ...], list[CountedRun]] = {}
    for run in runs:
        key = (run.benchmark, run.backbone, run.method, tuple(sorted(run.deviations.items())))
        groups.setdefault(key, []).append(count_run(run, options))
    rows = tuple(build_row(members, options) for members in groups.values())
    comparisons = compared(rows, tuple(groups.values()), options)
    everything = spent(by_launch(runs, prerequisites or {}), options.prices)
    return Report(
        options=options,
        rows=rows,
        averages=_averages([row for row in rows if not row.forked], options),
        comparisons=comparisons,
        spent=by_endpoint(everything),
        purposes=by_purpose(everything),
        total=charge(everything),
        problems=tuple(problem for row in rows for problem in _problems(row, options)),
        notes=(*_notes(rows, options), *notes_on_comparisons(comparisons, options)),
    )


def _averages(rows: Sequence[Row], options: ReportOptions) -> tuple[MethodAverage, ...]:
    benchmarks = Counter({row.benchmark for row in rows})
    if len(benchmarks) < 2:
        return ()
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.backbone, row.method), []).append(row)
    train = "train_first" if options.train_metric == "first" else "train_selected"
    averages = []
    for (backbone, method), members in groups.items():
        one_row_each = Counter(row.benchmark for row in members) == benchmarks
        averages.append(
            MethodAverage(
                backbone=backbone,
                method=method,
                train=_over_benchmarks([row.scores[train] for row in members], one_row_each),
                eval=_over_benchmarks([row.eval for row in members], one_row_each),
                complete=one_row_each and all(row.complete for row in members),
            )
        )
    return tuple(averages)


def _over_benchmarks(scores: Sequence[Score], one_row_each: bool) -> BenchmarkMean:
    means = [score.average.mean for score in scores if score.average.mean is not None]
    comparable = one_row_each and len(means) == len(scores)
    return BenchmarkMean(
        cell=mean_of_cells([percent(value) for value in means]) if comparable else None,
        exact=mean(means) if comparable else None,
        total=sum((score.total for score in scores), Tally(planned=0)),
    )


def _problems(row: Row, options: ReportOptions) -> Iterator[Problem]:
    name = f"{row.benchmark} / {row.backbone} / {row.method}"
    resume = f"finish with `{options.command('resume', options.directory)}`"
    lines = {line.ordering: line for line in row.runs}
    for ordering in options.orderings:
        where = f"{name}, ordering {ordering}"
        line = lines.get(ordering)
        if line is None and row.forked:
            continue
        if line is None:
            yield Problem(where=where, what="it has no run", fix=resume)
            continue
        for split, counted in row.splits(line):
            if not counted.complete:
                empty = row.committed_empty(line)[split]
                yield Problem(
                    where=f"{where}, {split}", what=_shortfall(counted), fix=_fix(counted, empty, resume)
                )


def _fix(counted: Tally, empty: int, resume: str) -> str:
    # Resuming runs infra of eval again; an empty commit of the train stream is history (design).
    if not empty:
        return resume
    if counted.scored + empty < counted.planned:
        return f"{resume}; positions committed empty stay so"
    return "they were committed empty and stay so; --partial shows the numbers with their n"


def _shortfall(counted: Tally) -> str:
    return (
        f"{counted.scored} of {counted.planned} episodes scored, {counted.infra} infra, {counted.missing} missing"
    )


def _notes(rows: Sequence[Row], options: ReportOptions) -> Iterator[str]:
    k, named = options.k, ", ".join(map(str, options.orderings))
    yield (
        f"Accuracy is success / {options.denominator} episodes in percent. A cell is Avg@{k}: the exact mean over"
        f" {k} ordering{'s' if k > 1 else ''} ({named}; 0-based), rounded half-up once."
    )
    yield "± is the sample standard deviation over orderings (divisor k - 1), in percentage points."
    yield "Train accuracy is online: memory is updated after each task, and carried over from epoch to epoch."
    memory = Counter(line.eval_memory for row in rows for line in row.runs)
    yield (
        "Eval memory is frozen: retrieved, never updated. The bank's digest was the same before and after eval in"
        f" {memory['frozen']} of {memory['frozen'] + memory['unverified']} runs with a bank"
        f" ({memory['unverified']} not verified); {memory['none']} runs have no memory."
    )
    if options.partial:
        yield "Partial: incomplete orderings are averaged over what they have; n is scored/planned episodes."
    elif not all(row.complete for row in rows):
        yield "Averages over incomplete orderings are left out; --partial shows what there is, with its n."
    if len({row.benchmark for row in rows}) > 1:
        yield (
            "Average is the unweighted mean of the displayed cells of all benchmarks, rounded half-up once; the"
            f" train column takes the {options.train_metric} epoch. Exact is the mean of the unrounded accuracies."
        )
    yield (
        "Calls, tokens and durations are those of the attempt that counts; attempts before it are not in them. Per"
        " success they are the sums over all episodes, solved or not, and without the embedder's. At commits is"
        " what the bank asked at a position's turn, such as merges: it comes on top of the episodes' own."
    )
    yield from _notes_on_costs(options)
    left_out = sum(cost.left_out for row in rows for _, cost in row.spending)
    yield f"Observations left out of prompts that were too long: {left_out} in all."
    if any(row.growth for row in rows):
        yield (
            "Bank sizes are records, as means over orderings, after that share of the train stream of all epochs"
            " or at an epoch's end."
        )
    yield from _differences_from_paper(rows)


def _notes_on_costs(options: ReportOptions) -> Iterator[str]:
    yield (
        "Spent by the launch is the sum over all attempts, those that were tried again included, over what the"
        " bank's commits asked, and over what was built before the runs; probes of whether a model answers are not"
        " in it."
    )
    if options.currency is not None:
        yield (
            f"Costs are in {options.currency}, at the prices that the launch knows now, of the tokens that were"
            " reported. - is a cost that is not known, because an endpoint without a price"
            " (cluster.endpoints.NAME.price) answered. Per success the unsolved episodes are paid for too."
        )


def notes_on_comparisons(comparisons: Sequence[Paired], options: ReportOptions) -> Iterator[str]:
    """How to read them; nothing where there are none."""
    if not comparisons:
        return
    made = len(comparisons)
    yield (
        f"{made} paired comparison{'s were' if made > 1 else ' was'} made; no p value is adjusted for that. A pair"
        " is one task in one ordering that both methods scored; a difference is the first method's accuracy minus"
        " the second's over the pairs, in percentage points. Train pairs are of each method's"
        f" {'first' if options.train_metric == 'first' else 'last'} epoch."
    )
    yield (
        "p is McNemar's exact test, two-sided: over pairs, as if the orderings of one task were independent, and"
        f" over tasks, each with the sign of its wins minus losses. The {LEVEL}% interval is the percentile"
        f" bootstrap of the difference ({RESAMPLES:,} resamples, seed {SEED}) that draws tasks with all their"
        " orderings. Neither knows what another ordering of the stream would have done to the memory: see ±."
    )


def _differences_from_paper(rows: Sequence[Row]) -> Iterator[str]:
    for benchmark, train, held_out in dict.fromkeys((r.benchmark, r.train_size, r.eval_size) for r in rows):
        printed = PAPER.get(benchmark)
        if printed is None:
            continue
        streams = {name: (stream.train, stream.eval) for name, stream in printed.streams.items()}
        if (train, held_out) not in streams.values():
            known = ", ".join(f"{a}/{b} ({name})" for name, (a, b) in streams.items())
            yield (
                f"{benchmark} ran on {train} train and {held_out} eval tasks, which is not a stream of the paper:"
                f" {known}."
            )
