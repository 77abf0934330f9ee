"""Whose fault an exception is, for who writes methods and benchmarks; and prompts as one writes them first."""

from __future__ import annotations

from pathlib import Path

from chime_dist.benchmarks.credit_world.benchmark import CreditWorld, CreditWorldOptions
from chime_dist.core.model_call import Turn
from chime_dist.engine.culprit import told
from chime_dist.engine.prompting import PromptLibrary
from chime_dist.methods.no_plan.method import NoPlan, NoPlanOptions


class Theirs(NoPlan):
    """A method whose module is this one."""

    def fall(self) -> None:
        """Fall."""
        raise ValueError("over")


class World(CreditWorld):
    """A benchmark whose module is this one too."""


METHOD = Theirs(NoPlanOptions())


def fallen() -> Exception:
    """What comes out of the method."""
    try:
        METHOD.fall()
    except ValueError as error:
        return error
    raise AssertionError("unreachable")


def test_an_exception_is_told_with_the_part_and_its_line() -> None:
    line = Theirs.fall.__code__.co_firstlineno + 2
    assert told(fallen(), METHOD) == f"method 'no_plan': ValueError: over (test_culprit.py, line {line})"
    elsewhere = CreditWorld(CreditWorldOptions())
    assert told(fallen(), METHOD, elsewhere).startswith("method 'no_plan': ValueError: over")


def test_parts_of_one_module_are_both_named() -> None:
    both = told(fallen(), METHOD, World(CreditWorldOptions()))
    assert both.startswith("method 'no_plan' or benchmark 'credit_world': ValueError: over")


def test_what_neither_part_had_a_hand_in_names_neither() -> None:
    assert told(ValueError("over"), METHOD) == "ValueError: over"


def test_a_prompt_that_extends_nothing_is_the_users_words(tmp_path: Path) -> None:
    """Servers refuse a conversation that is one system message."""
    (tmp_path / "plain.j2").write_text("{% block user %}Say {{ word }}.{% endblock %}")
    (tmp_path / "parted.j2").write_text("Be brief.\n{{ boundary }}\nSay {{ word }}.")
    library = PromptLibrary({"m": tmp_path})
    said = library.render(Turn(template="m/plain", variables={"word": "yes"}))
    assert said == ({"role": "user", "content": "Say yes."},)
    said = library.render(Turn(template="m/parted", variables={"word": "yes"}))
    assert [message["role"] for message in said] == ["system", "user"]
