"""What vLLM's metrics mean."""

from __future__ import annotations

from chime_dist.adapters.vllm.metrics import EngineMetrics, read_metrics

TWO_ENGINES = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0",model_name="m"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.125
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1.0e+06
vllm:prefix_cache_queries_created{engine="0",model_name="m"} 1.7960539387775986e+09
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 750000.0
process_resident_memory_bytes 5.5e+08
"""


def test_counts_of_all_engines_add_up_and_the_fullest_cache_counts() -> None:
    metrics = read_metrics(TWO_ENGINES)
    assert metrics == EngineMetrics(4, 2, 0.5, 1_000_000, 750_000)
    assert (metrics.in_flight, metrics.hit_rate) == (6, 0.75)


def test_a_server_that_tells_nothing_has_no_hit_rate() -> None:
    metrics = read_metrics("")
    assert metrics == EngineMetrics(0, 0, 0.0, 0, 0)
    assert metrics.hit_rate is None
