"""Components, backbones and embedders as they are written."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from chime_dist.config.models import BackboneModel, EmbedderModel
from chime_dist.config.schema import Component
from chime_dist.core.episode import Role


@pytest.mark.parametrize(
    "written",
    [
        {"name": "chime", "k": 3, "gate": {"on": True}},
        {"name": "chime", "options": {"k": 3, "gate": {"on": True}}},
    ],
)
def test_a_components_options_stand_beside_its_name_or_under_options(written: dict[str, object]) -> None:
    component = Component.model_validate(written)
    assert component == Component(name="chime", options={"k": 3, "gate": {"on": True}})
    assert Component.model_validate(component.model_dump()) == component


def test_a_name_alone_is_a_component_without_options() -> None:
    assert Component.model_validate("chime") == Component(name="chime", options={})
    assert Component.model_validate({"name": "chime"}) == Component(name="chime")


@pytest.mark.parametrize(
    "written",
    [{"k": 3}, {"name": "chime", "options": {}, "k": 3}, {"name": "chime", "options": 3}, "a b", "", 3, ["chime"]],
)
def test_a_component_that_is_neither_form_is_refused(written: object) -> None:
    with pytest.raises(ValidationError):
        Component.model_validate(written)


def test_a_backbone_defaults_to_the_printed_decoding() -> None:
    """R35, R36: temperature 0.0, thinking disabled, 245,000 and 16,384 tokens."""
    backbone = BackboneModel.model_validate("Qwen/Qwen3.5-Flash")
    assert (backbone.name, backbone.model) == ("Qwen/Qwen3.5-Flash", "Qwen/Qwen3.5-Flash")
    assert (backbone.max_input_tokens, backbone.max_output_tokens) == (245_000, 16_384)
    assert (backbone.temperature, backbone.thinking) == (0.0, False)
    assert backbone.structured_output == "json_schema"
    assert BackboneModel.model_validate({"name": "a"}).model == "a"


def test_the_output_limit_is_the_least_of_request_role_and_model() -> None:
    """R36: small models get lower caps by role."""
    backbone = BackboneModel.model_validate(
        {"name": "small", "max_output_tokens": 500, "max_output_by_role": {"planner": 48, "gate": 900}}
    )
    assert backbone.output_limit(Role.PLANNER) == 48
    assert backbone.output_limit(Role.PLANNER, 32) == 32
    assert backbone.output_limit(Role.GATE) == 500
    assert backbone.output_limit(Role.EXECUTOR, 900) == 500


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "embedder"},
        {"name": "a", "max_output_by_role": {"gate": 0}},
        {"name": "a", "max_output_by_role": {"gatekeeper": 5}},
        {"name": "a", "temperature": -0.1},
        {"name": "a", "temperature": "0"},
        {"name": "a", "structured_output": "guided_json"},
        {"name": "a", "model": ""},
        {"model": "a"},
    ],
)
def test_a_backbone_that_cannot_work_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        BackboneModel.model_validate(fields)


def test_an_embedder_defaults_to_the_papers_retriever() -> None:
    """R11: Qwen3-Embedding-0.6B, 1024 components, batch 16, 16,384 tokens, no instruction prefix."""
    embedder = EmbedderModel()
    assert (embedder.kind, embedder.model) == ("sentence_transformers", "Qwen/Qwen3-Embedding-0.6B")
    assert (embedder.dim, embedder.batch_size, embedder.max_length) == (1024, 16, 16_384)
    assert embedder.query_prompt == ""


def test_the_hashing_embedder_is_not_named_after_a_model() -> None:
    short = EmbedderModel.model_validate("hashing")
    assert short.model == "hashing"
    assert short == EmbedderModel.model_validate({"kind": "hashing"})
    assert EmbedderModel.model_validate(short.model_dump()) == short
    with pytest.raises(ValidationError):
        EmbedderModel.model_validate("word2vec")
