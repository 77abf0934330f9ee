"""The benches run: ``make bench`` must not be found broken on the day it is needed. No time is asserted."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from chime_dist.core.window import StreamShape
from tests.bench.__main__ import main
from tests.bench.catalogue import BENCHES
from tests.bench.makespan import list_schedule, simulate
from tests.bench.measurement import Measurement, percentile


@pytest.mark.slow
@pytest.mark.parametrize("name", BENCHES)
def test_every_bench_runs_and_reports_numbers_beside_floors(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--only", name, "--quick", "--json", str(tmp_path / "bench.json")])
    written = json.loads((tmp_path / "bench.json").read_text())
    assert written["host"]["cores"] >= 1
    measurements = written["benches"][name]["measurements"]
    assert measurements
    for one in measurements:
        assert one["case"]
        assert one["metric"]
        assert one["unit"]
        assert math.isfinite(one["value"])
        assert one["value"] >= 0
        assert one["floor"] > 0
        assert one["floor_of"]
        assert (one["aim"] is None) == (one["reached"] is None)
    assert len({(one["case"], one["metric"]) for one in measurements}) == len(measurements)
    assert BENCHES[name].title in capsys.readouterr().out


def test_an_unknown_bench_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "speed"])
    assert "no bench speed; there are overhead" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("better", "value", "reached"), [("lower", 5.0, True), ("lower", 5.1, False), ("higher", 4.9, False)]
)
def test_an_aim_is_compared_in_its_own_direction(better: str, value: float, reached: bool) -> None:
    one = {"bench": "b", "case": "c", "metric": "m", "unit": "s", "value": value, "aim": 5.0, "better": better}
    assert Measurement.model_validate(one).reached is reached


def test_an_aim_for_the_ratio_is_compared_with_the_ratio() -> None:
    one = Measurement(
        bench="b",
        case="c",
        metric="m",
        unit="1/s",
        value=7.0,
        floor=10.0,
        aim=0.6,
        aim_of="ratio",
        better="higher",
    )
    assert one.ratio == pytest.approx(0.7)
    assert one.reached is True


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(value) for value in range(100, 0, -1)]
    assert percentile(values, 0.5) == 51.0
    assert percentile(values, 0.99) == 100.0
    assert percentile([3.0], 0.99) == 3.0


def test_a_stream_with_a_window_of_one_takes_the_sum_and_with_a_full_window_the_list_schedule() -> None:
    """R7: the simulation admits a position when its read version is committed."""
    durations = [3.0, 1.0, 2.0, 5.0]
    one_by_one = StreamShape(epoch_size=4, epochs=1, window=1)
    all_at_once = StreamShape(epoch_size=4, epochs=1, window=4)
    assert simulate([durations], one_by_one, slots=2) == 11.0
    assert simulate([durations], all_at_once, slots=2) == list_schedule(durations, 2) == 8.0
    assert simulate([durations, durations], one_by_one, slots=2) == 11.0
