"""Memory from outcomes alone: R44 no_gate."""

from __future__ import annotations

import json
from typing import Any, Literal

import jsonschema
import pytest

from chime_dist.core.credit import delta
from chime_dist.core.distillation import OutcomeParams, distillation_schema, parse_distillation
from chime_dist.core.memory import Stage
from chime_dist.core.reply import Fault
from chime_dist.core.verdict import Diagnosis, GateFault, GateLimits, Label, NewExperience, Verdict

NOTE = {"scenario": " returns ", "experience": "N/A"}
REPLY = {"plan_experience": NOTE, "exec_experience": {"scenario": "refunds", "experience": "give cents"}}
READ = ("3-0", "7-0", "3-0")


def parsed(reply: Any = REPLY, success: bool = True, params: OutcomeParams | None = None) -> Verdict:
    return parse_distillation(json.dumps(reply), "stop", READ, success, params or OutcomeParams())


def diagnosed(verdict: Verdict) -> Diagnosis:
    assert verdict.diagnosis is not None
    return verdict.diagnosis


@pytest.mark.parametrize(
    ("mode", "success", "feedback"),
    [("success_only", True, 1.0), ("success_only", False, 0.0), ("signed", True, 1.0), ("signed", False, -1.0)],
)
def test_the_outcome_alone_judges_every_retrieved_memory(
    mode: Literal["success_only", "signed"], success: bool, feedback: float
) -> None:
    """R44 no_gate: +1 if s = 1, else 0 or (signed) -1, whatever was said and whatever the stage."""
    diagnosis = diagnosed(parsed(success=success, params=OutcomeParams(delta=mode)))
    assert (diagnosis.label, diagnosis.confidence) == (Label.BOTH, 1.0)
    for item in READ:
        assert delta(diagnosis.confidence, success, True, item in diagnosis.misleading) == feedback


def test_both_stages_get_what_was_distilled_for_them() -> None:
    """R44 no_gate: nothing is filtered here; white space around texts goes."""
    assert diagnosed(parsed()).experience == {
        Stage.PLAN: NewExperience(scenario="returns", experience="N/A", actionable=True),
        Stage.EXEC: NewExperience(scenario="refunds", experience="give cents", actionable=True),
    }


@pytest.mark.parametrize("broken", [None, "text", {}, {"scenario": "s"}, {"scenario": "s", "experience": 3}])
def test_half_a_distillation_is_no_decision(broken: Any) -> None:
    """R21."""
    verdict = parsed({**REPLY, "exec_experience": broken})
    assert (verdict.status, verdict.diagnosis, verdict.reason) == ("gate_error", None, GateFault.BAD_EXPERIENCE)


def test_a_reply_that_was_cut_is_no_decision() -> None:
    """R21, B8: however whole it looks."""
    verdict = parse_distillation(json.dumps(REPLY), "length", READ, True, OutcomeParams())
    assert (verdict.status, verdict.reason) == ("gate_error", Fault.TRUNCATED)
    assert verdict.excerpt.startswith("{")


def test_the_schema_takes_what_the_parser_reads_and_bounds_it() -> None:
    schema = distillation_schema(GateLimits(scenario=10, experience=12))
    jsonschema.validate(REPLY, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**REPLY, "plan_experience": None}, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**REPLY, "plan_experience": {**NOTE, "experience": "longer than that"}}, schema)
