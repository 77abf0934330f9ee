"""Every method and every ablation, as a sweep's file lists them."""

from __future__ import annotations

METHODS = """\
  - chime
  - {name: chime, ablation: no_plan_memory}
  - {name: chime, ablation: no_exec_memory}
  - {name: chime, ablation: no_memory}
  - {name: chime, ablation: no_hierarchy}
  - {name: chime, ablation: no_gate}
  - {name: chime, ablation: no_rerank}
  - {name: chime, ablation: no_evolution}
  - no_plan
  - webanchor
  - {name: todoevolve, adapt_every: 2}
  - {name: a_mapreduce, rules: {start: 2, compare_every: 2, merge_every: 4}}
  - umem
  - umem_outcome
"""
"""Intervals are short, so that small streams see revised lists and rewritten rules."""
