"""The shape every config model has, and the one way to name a pluggable part with its options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from chime_dist.core.canonical import canonical_json
from chime_dist.core.episode import Json, Role
from chime_dist.core.frozen import Frozen

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_./:-]*$", max_length=120)]
"""What people call a thing: ASCII letters, digits and ``_./:-``, starting with a letter or digit."""

RoleKey = Annotated[Role, Field(strict=False)]
"""A role written as text."""


class ConfigModel(Frozen):
    """Immutable, closed to unknown keys, and strict: ``"5"`` is not 5 and ``true`` is not 1."""

    model_config = ConfigDict(strict=True, hide_input_in_errors=True)


class Component(ConfigModel):
    """A method or a benchmark by its registered name, and its options.

    Written as ``chime``, as ``{name: chime, OPTION: ...}`` or as ``{name: chime, options: {...}}``. The part
    itself knows what its options mean; they are checked when a sweep is expanded.
    """

    name: Name
    options: dict[str, Json] = {}

    @property
    def label(self) -> str:
        """Its name in tables and ids; a method whose option ``ablation`` takes something away is named with it."""
        ablation = self.options.get("ablation", "none")
        return self.name if ablation == "none" else f"{self.name} {ablation}"

    @property
    def bare(self) -> Component:
        """The same with nothing set but what its label names."""
        return Component(name=self.name, options={k: v for k, v in self.options.items() if k == "ablation"})

    def settings(self) -> dict[str, str]:
        """Its options by dotted path, as text."""
        return dict(_leaves(self.options))

    @model_validator(mode="before")
    @classmethod
    def _read_short_forms(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"name": data}
        if not isinstance(data, dict) or "name" not in data:
            return data
        flat = {key: value for key, value in data.items() if key not in ("name", "options")}
        if not flat:
            return data
        if "options" in data:
            raise ValueError(f"write options inside 'options' or beside 'name', not both: {', '.join(flat)}")
        return {"name": data["name"], "options": flat}


def _leaves(options: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in options.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value if isinstance(value, str) else canonical_json(value)
