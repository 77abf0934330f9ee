"""Reading first lists and revisions out of the planner's replies, and the schemas that ask for them.

A reply is whole or it changes nothing: no text is searched for todos, no link is mended.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StrictInt, StringConstraints, ValidationError

from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.json_schema import bounded_text, closed
from chime_dist.core.reply import Fault, sole_object
from chime_dist.core.text import is_visible
from chime_dist.methods.todoevolve.architecture import Architecture, Topology, explained
from chime_dist.methods.todoevolve.todos import Todo, TodoList

MAX_OPEN = 12
"""Most todos that are open at a time."""
MAX_SKETCHED = 4
"""Most todos of a first list that is a sketch."""
_MAX_LINKS = 4
_TEXT_CHARS = 300
"""Longest todo and longest assessment that the schemas ask for, in characters."""
_WHOLE_TASK = "Do everything that the request asks for."
"""The one todo of a list that could not be read."""


class _Item(Frozen):
    text: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
    after: tuple[StrictInt, ...] = ()
    part_of: StrictInt = 0
    """0 is no part of anything."""


class _Outline(Frozen):
    todos: tuple[_Item, ...] = Field(min_length=1, max_length=MAX_OPEN)


class _Revision(Frozen):
    assessment: str = ""
    done: tuple[StrictInt, ...] = ()
    add: tuple[_Item, ...] = ()
    left: tuple[_Item, ...] | None = None


class Revised(Frozen):
    """What became of one revision."""

    todos: TodoList
    """The new list, or the old one where the reply was refused."""
    assessment: str = ""
    done: tuple[int, ...] = ()
    """Numbers that were ticked off."""
    dropped: tuple[int, ...] = ()
    """Numbers that the reply ticked off and that were not open."""
    refused: str | None = None
    """Why the reply changed nothing; None where it was taken."""


def outline_schema(architecture: Architecture) -> dict[str, Json]:
    """The JSON schema of a first list; items have the links of the topology and no others."""
    most = MAX_SKETCHED if architecture.initialisation == "sketch" else MAX_OPEN
    return closed({"todos": _items(architecture.topology, 1, most, most)})


def read_outline(text: str | None, finish_reason: str, architecture: Architecture) -> tuple[TodoList, str | None]:
    """The first list, and why it is not as designed, if so. Never raises.

    - Links that do not point to an earlier todo: the same todos as a linear list.
    - No list, or one with an item without visible text: one todo, which is the whole task.
    """
    linear = architecture.model_copy(update={"topology": "linear"})
    found = sole_object(text, finish_reason)
    try:
        if isinstance(found, Fault):
            raise ValueError(found.value)
        items = _visible(_Outline.model_validate(found).todos)
    except ValueError as error:
        return _list(linear, _numbered((_Item(text=_WHOLE_TASK),), "linear", 1)), _reason(error)
    try:
        return _list(architecture, _numbered(items, architecture.topology, 1)), None
    except ValueError as error:
        return _list(linear, _numbered(items, "linear", 1)), str(error)


def revision_schema(todos: TodoList) -> dict[str, Json]:
    """The JSON schema of a revision: what its architecture lets it do to this list."""
    numbers = [todo.number for todo in todos.open]
    properties: dict[str, Json] = {"assessment": bounded_text(_TEXT_CHARS, least=1)}
    if numbers:
        number = {"type": "integer", "enum": numbers}
        properties["done"] = {"type": "array", "maxItems": len(numbers), "items": number}
    topology, highest = todos.architecture.topology, todos.next_number + MAX_OPEN - 1
    match todos.architecture.adaptation:
        case "extend":
            properties["add"] = _items(topology, 0, MAX_OPEN - len(numbers), highest)
        case "rewrite":
            properties["left"] = _items(topology, 0, MAX_OPEN, highest)
        case "tick":
            pass
    return closed(properties)


def read_revision(text: str | None, finish_reason: str, todos: TodoList) -> Revised:
    """The list after a revision. Never raises.

    - A reply that is no object of this form, does what the architecture does not allow, links forwards, or leaves
      more than ``MAX_OPEN`` todos open is refused as a whole: the list stays, the episode goes on.
    - ``done`` ticks off open numbers; others are dropped and recorded.
    - ``add`` puts new todos behind the others. ``left`` replaces every todo that is open and not ticked off.
    """
    found = sole_object(text, finish_reason)
    try:
        if isinstance(found, Fault):
            raise ValueError(found.value)
        revision = _Revision.model_validate(found)
        return _revised(revision, todos)
    except ValueError as error:
        return Revised(todos=todos, refused=_reason(error))


def _revised(revision: _Revision, todos: TodoList) -> Revised:
    mode = todos.architecture.adaptation
    if revision.add and mode != "extend":
        raise ValueError(f"add: the adaptation {mode!r} adds nothing")
    if (revision.left is None) == (mode == "rewrite"):
        raise ValueError(
            f"left: the adaptation {mode!r} {'needs it' if mode == 'rewrite' else 'replaces nothing'}"
        )
    open_ = {todo.number for todo in todos.open}
    done = tuple(number for number in dict.fromkeys(revision.done) if number in open_)
    kept = tuple(
        todo.model_copy(update={"done": True}) if todo.number in done else todo
        for todo in todos.todos
        if mode != "rewrite" or todo.done or todo.number in done
    )
    items = _visible(revision.add or revision.left or ())
    new = _numbered(items, todos.architecture.topology, todos.next_number, kept)
    after = TodoList(
        architecture=todos.architecture, todos=(*kept, *new), next_number=todos.next_number + len(new)
    )
    if len(after.open) > MAX_OPEN:
        raise ValueError(f"{len(after.open)} todos would be open, more than {MAX_OPEN}")
    return Revised(
        todos=after,
        assessment=revision.assessment.strip(),
        done=done,
        dropped=tuple(number for number in dict.fromkeys(revision.done) if number not in open_),
    )


def _visible(items: tuple[_Item, ...]) -> tuple[_Item, ...]:
    if blank := [index for index, item in enumerate(items) if not is_visible(item.text)]:
        raise ValueError(f"item {blank[0]}: the text shows nothing")
    return items


def _numbered(
    items: tuple[_Item, ...], topology: Topology, first: int, kept: tuple[Todo, ...] = ()
) -> tuple[Todo, ...]:
    """New todos of one line each, numbered from ``first``.

    Raises ValueError where a link leads to none that is there before.
    """
    known = {todo.number for todo in kept}
    made = []
    for number, item in enumerate(items, first):
        after = tuple(dict.fromkeys(item.after)) if topology == "dag" else ()
        part_of = item.part_of or None if topology == "tree" else None
        links = after if part_of is None else (part_of,)
        if strange := [link for link in links if link not in known]:
            raise ValueError(f"todo {number} is linked to {strange[0]}, which is no earlier todo")
        known.add(number)
        made.append(Todo(number=number, text=" ".join(item.text.split()), after=after, part_of=part_of))
    return tuple(made)


def _list(architecture: Architecture, todos: tuple[Todo, ...]) -> TodoList:
    return TodoList(architecture=architecture, todos=todos, next_number=len(todos) + 1)


def _items(topology: Topology, fewest: int, most: int, highest: int) -> dict[str, Json]:
    item: dict[str, Json] = {"text": bounded_text(_TEXT_CHARS, least=1)}
    match topology:
        case "dag":
            link = {"type": "integer", "minimum": 1, "maximum": highest}
            item["after"] = {"type": "array", "maxItems": _MAX_LINKS, "items": link}
        case "tree":
            item["part_of"] = {"type": "integer", "minimum": 0, "maximum": highest}
    return {"type": "array", "minItems": fewest, "maxItems": most, "items": closed(item)}


def _reason(error: ValueError) -> str:
    return explained(error) if isinstance(error, ValidationError) else str(error)
