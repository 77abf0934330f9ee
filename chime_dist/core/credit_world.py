"""A simulated world in which the causes of every outcome are known: wording, hidden rules, chance. Pure.

The benchmark ``credit_world`` and the agent double that plays it share this module and nothing else, so that
each can be judged against what is true here. A case belongs to a family. Every family has one hidden rule per
stage (how to plan, how to write arguments); a case goes well if both are kept, unless something outside
interferes. Everything is a function of the world's seed and the case, never of an order or a clock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from chime_dist.core.canonical import canonical_json, sha256_hex
from chime_dist.core.memory import Stage
from chime_dist.core.verdict import Label

RULES: dict[Stage, tuple[str, ...]] = {
    Stage.PLAN: (
        "archive the draft before editing the original",
        "ask the owner before touching shared equipment",
        "cancel the old slot before taking another",
        "collect returns before changing an order",
        "compare both offers before signing either",
        "confirm identity before opening any file",
        "count the cash before ending a shift",
        "inspect seals before accepting cargo",
        "inform neighbours before starting loud work",
        "load heavy goods before fragile ones",
        "photograph damage before moving things",
        "rehearse with understudies before opening night",
        "reserve a crew before naming the price",
        "settle open fees before granting extras",
        "sterilise instruments before calling someone in",
        "switch off mains before removing covers",
        "test every alarm before locking up",
        "translate notes before forwarding them",
        "update the map before planning routes",
        "verify stock before promising delivery",
    ),
    Stage.EXEC: (
        "attach addresses as a single line",
        "give amounts in cents",
        "leave the remark field empty",
        "mark priority by one letter",
        "name colours by hex code",
        "pad room numbers to four digits",
        "pass weights in grams",
        "prefix phone numbers with the country code",
        "put latitude first in coordinates",
        "quote order numbers without dashes",
        "round lengths to whole metres",
        "separate several names by semicolons",
        "spell languages as two letters",
        "start with the surname",
        "state times in UTC",
        "use the plural of a category",
        "use upper case for reference codes",
        "write dates as year-month-day",
        "write durations in minutes",
        "write percentages as fractions",
    ),
}
"""What a family's hidden rule may be. They are worded apart, so that no bank takes two for one (R32)."""

TOOL = "act"
"""The one tool of the world: one call is one step."""
ARGUMENTS = {Stage.PLAN: "plan_rule", Stage.EXEC: "detail"}
"""The tool's arguments, both text: the rule that a step goes by, for each stage."""

_MARKS = {Stage.PLAN: "Plan rule", Stage.EXEC: "Argument rule"}
_STATEMENT = re.compile(rf"({'|'.join(_MARKS.values())}): ([^.\n]+)\.")
_CASE = re.compile(r"Desk (\d+), case (\d+): ([a-z ]+)\.")
_OPENINGS = ("", "A case of ", "Late in the day, papers complete, nobody else waiting at the counter: ")


@dataclass(frozen=True, slots=True)
class Family:
    """Cases of one kind, told alike. Families stand in pairs that share most words and no hidden rule."""

    title: str
    story: str
    """What is asked for, with a ``{thing}`` and a ``{place}``."""
    thing: str
    """The word for any of ``things``; ``place`` likewise."""
    place: str
    things: tuple[str, ...]
    places: tuple[str, ...]


def _pair(
    thing: str, things: tuple[str, ...], place: str, places: tuple[str, ...], **stories: str
) -> tuple[Family, ...]:
    return tuple(
        Family(title.replace("_", " "), story, thing, place, things, places) for title, story in stories.items()
    )


FAMILIES: tuple[Family, ...] = (
    *_pair(
        "vessel",
        ("barge", "ketch", "sloop", "trawler"),
        "quay",
        ("fish quay", "long quay", "north quay"),
        berth_booking="The skipper of the {thing} wants to moor at the {place} overnight and asks the harbour "
        "office for a free berth with shore power",
        berth_release="The skipper of the {thing} wants to sail from the {place} early and asks the harbour "
        "office to give up the berth and cut shore power",
    ),
    *_pair(
        "volume",
        ("atlas", "dictionary", "novel", "songbook"),
        "branch",
        ("castle branch", "mill branch", "station branch"),
        loan_extension="A reader at the {place} would like to keep the {thing} two more weeks and asks the "
        "librarian to extend the loan",
        loan_recall="A reader at the {place} needs the {thing} that another member took and asks the "
        "librarian to recall the loan",
    ),
    *_pair(
        "joint",
        ("ankle", "knee", "shoulder", "wrist"),
        "ward",
        ("east ward", "garden ward", "upper ward"),
        visit_scheduling="A patient with a sore {thing} was referred to the {place} and needs a first "
        "appointment with any physician",
        visit_transfer="A patient with a sore {thing} cannot come to the {place} any longer and needs the "
        "appointment moved to another physician",
    ),
    *_pair(
        "goods",
        ("bricks", "cider", "paper", "tiles"),
        "ramp",
        ("cold ramp", "rail ramp", "south ramp"),
        pallet_intake="A driver stands at the {place} with one pallet of {thing} and wants the depot to unload, "
        "label and store it",
        pallet_dispatch="A driver stands at the {place} for one pallet of {thing} and wants the depot to fetch, "
        "label and load it",
    ),
    *_pair(
        "show",
        ("ballet", "comedy", "opera", "recital"),
        "house",
        ("chamber house", "grand house", "summer house"),
        seat_exchange="Someone holding a ticket for the {thing} in the {place} asks the box office for an equal "
        "seat on a later evening",
        seat_upgrade="Someone holding a ticket for the {thing} in the {place} asks the box office for a nearer "
        "seat, same evening, and pays extra",
    ),
    *_pair(
        "supply",
        ("gas", "heat", "power", "water"),
        "district",
        ("hill district", "river district", "west district"),
        meter_exchange="One household in the {place} reports its {thing} meter broken, and the utility should "
        "send technicians who fit a new device",
        meter_reading="One household in the {place} doubts its {thing} bill, and the utility should send "
        "technicians who read the device again",
    ),
)
"""All families; a case names its own by index."""


@dataclass(frozen=True, slots=True)
class Case:
    """One task of the world."""

    world: int
    """The world's seed, at least 0: it deals the hidden rules."""
    family: int
    """0-based index into ``FAMILIES``."""
    number: int
    """0-based inside the family."""

    @property
    def id(self) -> str:
        """Unique inside a world, e.g. ``berth_booking-007``."""
        return f"{domain(self.family)}-{self.number:03d}"

    @property
    def request(self) -> str:
        """The case in words: what anyone may know of it. ``read_case`` is the inverse."""
        family = FAMILIES[self.family]
        thing, place = (
            options[int(chance(self.world, self.id, kind) * len(options))]
            for kind, options in (("thing", family.things), ("place", family.places))
        )
        story = family.story.format(thing=thing, place=place)
        return f"Desk {self.world}, case {self.number}: {family.title}. {story}."


def domain(family: int) -> str:
    """The family's name in task ids and splits."""
    return FAMILIES[family].title.replace(" ", "_")


def read_case(text: str) -> Case | None:
    """The first case that ``text`` tells of, or None."""
    found = _CASE.search(text)
    titles = [family.title for family in FAMILIES]
    if found is None or found[3] not in titles:
        return None
    return Case(world=int(found[1]), family=titles.index(found[3]), number=int(found[2]))


def family_in(text: str) -> int | None:
    """The family whose title comes first in ``text``, or None."""
    places = {text.find(family.title): index for index, family in enumerate(FAMILIES) if family.title in text}
    return places[min(places)] if places else None


def scenario(family: int, variant: int) -> str:
    """The family's cases in general, as a lesson would describe them; ``variant`` (any integer) varies words."""
    told = FAMILIES[family]
    story = told.story.format(thing=told.thing, place=told.place)
    return f"{_OPENINGS[variant % len(_OPENINGS)]}{told.title}. {story}."


def hidden_rule(case: Case, stage: Stage) -> str:
    """What the case's family needs at ``stage``. Families of one world never share a rule."""
    return _dealt(case.world, stage)[case.family]


def wrong_rule(case: Case, stage: Stage, *draw: object) -> str:
    """Some rule that does not help the case; which one follows from ``draw`` (JSON values)."""
    right = hidden_rule(case, stage)
    others = [rule for rule in RULES[stage] if rule != right]
    return others[int(chance(case.world, stage, case.id, *draw) * len(others))]


@cache
def _dealt(world: int, stage: Stage) -> tuple[str, ...]:
    rules = sorted(RULES[stage], key=lambda rule: chance(world, "deal", stage, rule))
    return tuple(rules[: len(FAMILIES)])


def stated(rule: str, stage: Stage) -> str:
    """The sentence in which plans and lessons state a rule."""
    return f"{_MARKS[stage]}: {rule}."


def statements(text: str) -> tuple[tuple[Stage, str], ...]:
    """Every rule that ``text`` states, with its stage, in its order, repetitions included."""
    stages = {mark: stage for stage, mark in _MARKS.items()}
    return tuple((stages[mark], rule) for mark, rule in _STATEMENT.findall(text))


def rules_in(text: str, stage: Stage) -> tuple[str, ...]:
    """The rules among ``statements`` that are about ``stage``."""
    return tuple(rule for about, rule in statements(text) if about is stage)


def interfered(case: Case, noise: float) -> bool:
    """Whether something outside turns the case's outcome into its opposite; so for a share ``noise`` of them."""
    return chance(case.world, "noise", case.id) < noise


def true_label(success: bool, plan_right: bool, exec_right: bool) -> Label:
    """The attribution that is right by construction (R19, R20).

    A failure is due to each stage that broke its rule, a success to both stages, since it takes both. An outcome
    that does not follow from the stages came from outside: none.
    """
    if success != (plan_right and exec_right):
        return Label.NONE
    if success or not (plan_right or exec_right):
        return Label.BOTH
    return Label.EXECUTION if plan_right else Label.PLANNING


def all_right(case: Case, stage: Stage, used: Sequence[str]) -> bool:
    """Whether at least one rule was used at ``stage``, and only the family's own."""
    return bool(used) and set(used) == {hidden_rule(case, stage)}


def chance(*draw: object) -> float:
    """A uniform number in [0, 1) that depends on ``draw`` (JSON values) alone."""
    return int(sha256_hex(canonical_json(draw))[:13], 16) / 16**13
