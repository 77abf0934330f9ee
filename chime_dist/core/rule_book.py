"""A-MapReduce's rules: what a comparison may do to them, when they go, how clusters of them become fewer. Pure.

A rule is one sentence of advice with a score and the tasks that it was drawn from. The two rewrites come with the
bank's growth: a comparison of succeeded and failed tasks, then a merge of rules for the same type of tasks. Both
meet the head's rules, because they rewrite the whole book; what they would be told about it lies in a ``Review``,
so that a model can be asked without the bank at hand.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field, ValidationError

from chime_dist.core.bank import BankState, Event, ItemId, Record
from chime_dist.core.episode import Json
from chime_dist.core.frozen import Frozen
from chime_dist.core.task_graph import RECORDS, Found, Label, TaskRecord, record_count, task_types
from chime_dist.core.vector import Vector
from chime_dist.errors import JournalError

RULES = "rule"
"""The rules' collection."""
RULE_VECTOR = "c"
"""Name of the vector of a rule's text."""


class Rule(Frozen):
    """The JSON payload of a rule."""

    rule: str
    score: int
    """Goes up when comparisons agree, down when they do not; at 0 the rule is dropped."""
    tasks: tuple[str, ...]
    """Nodes of the tasks it was drawn from, in numeric order: what it is recalled by."""
    sources: tuple[int, ...] = ()
    """Positions that wrote its text, itself or in rules that were merged into it."""

    @classmethod
    def of(cls, record: Record) -> Rule:
        """The typed view of ``record``; raises JournalError where it is none (a wrong bank stops the run)."""
        try:
            return cls.model_validate(record.payload)
        except ValidationError as error:
            raise JournalError(
                f"record {record.id} of {record.collection!r} is no rule, so this bank was written by another "
                f"method or version: {error}"
            ) from None


class RuleParams(Frozen):
    """When rules are rewritten, and the arithmetic of their scores."""

    start: int = Field(default=40, ge=1)
    """From so many records on."""
    compare_every: int = Field(default=20, ge=1)
    """A comparison after every so many records."""
    merge_every: int = Field(default=40, ge=1)
    """A merge after every so many, after the comparison if both are due."""
    compared: int = Field(default=20, ge=1)
    """[U] The newest so many records are compared."""
    added_score: int = Field(default=2, ge=1)
    """Score of a new rule, and of every rule after a merge."""
    step: int = Field(default=1, ge=0)
    """AGREE and EDIT add it, REMOVE takes it away."""
    crowded: int = Field(default=10, ge=1)
    """From so many rules on, REMOVE takes ``crowded_step``."""
    crowded_step: int = Field(default=3, ge=0)
    merge_share: int = Field(default=3, ge=1)
    """A cluster of n rules becomes at most max(1, n // merge_share) rules."""
    max_operations: int = Field(default=8, ge=1)
    """[U] Most operations of one comparison; further ones are ignored."""
    rule_chars: int = Field(default=400, ge=1)
    """[U] Longest rule that is asked for, in characters."""
    case_chars: int = Field(default=1500, ge=1)
    """[U] Of a task or plan that is compared, so many characters are shown."""


class Case(Frozen):
    """One record of a comparison."""

    name: str
    """S1, S2... for successes, F1, F2... for failures."""
    node: str
    outcome: Label
    task: str
    plan: str


class Review(Frozen):
    """A rewrite that is due, with all that has to be known of the bank."""

    position: int
    rules: dict[str, Rule]
    """The head's, by id in numeric order."""
    cases: tuple[Case, ...]
    """Successes, then failures, newest first; empty where no comparison is due."""
    merge: bool
    types: dict[str, str]
    """Type of tasks (see ``task_types``) of every node that a rule or a case names."""


class Operation(Frozen):
    """One thing that a comparison does to the rules."""

    op: Literal["REMOVE", "AGREE", "EDIT", "ADD"]
    rule: str = ""
    """Id of the rule; ADD needs none."""
    text: str = ""
    """The new text of ADD and EDIT."""
    cases: tuple[str, ...] = ()
    """Names of the cases it rests on; none, or unknown names only, means all of them."""


class Reviewed(Frozen):
    """What came of a ``Review``."""

    operations: tuple[Operation, ...] = ()
    merged: dict[str, tuple[str, ...]] = {}
    """The texts that replace a cluster, by the cluster's lowest rule id."""
    faults: tuple[str, ...] = ()
    """Replies that could not be used, in words."""
    skipped: bool = False
    """No model could be asked; the rules stay as they are until the next rewrite is due."""


def ranked_rules(hits: Iterable[Found], voters: Sequence[str]) -> list[tuple[Found, Rule, int]]:
    """Rules by co-occurrence: how many of ``voters`` (nodes) each was drawn from; those of none are left out.

    Of equal ones the higher score, then the lower id comes first. Raises JournalError where a hit is no rule.
    """
    found = []
    for hit in hits:
        rule = Rule.of(hit.record)
        count = sum(node in rule.tasks for node in voters)
        if count:
            found.append((hit, rule, count))
    return sorted(found, key=lambda one: (-one[2], -one[1].score, ItemId.parse(one[0].record.id)))


def review_due(state: BankState, record: Event, position: int, params: RuleParams) -> Review | None:
    """The rewrite that is due once ``record``, the insert of this commit, is in the bank; mostly none."""
    count = record_count(state) + 1
    compare = count >= params.start and count % params.compare_every == 0
    merge = count >= params.start and count % params.merge_every == 0
    if not compare and not merge:
        return None
    rules = {found.id: Rule.of(found) for found in state.collection(RULES)}
    if not compare and not rules:
        return None
    cases = _cases(state, record, params) if compare else ()
    nodes = {case.node for case in cases} | {node for rule in rules.values() for node in rule.tasks}
    types = task_types(_with(state, record), sorted(nodes, key=ItemId.parse))
    return Review(position=position, rules=rules, cases=cases, merge=merge, types=types)


def _with(state: BankState, record: Event) -> BankState:
    inserted = Record(collection=RECORDS, id=str(record.id), version=0, payload=record.payload or {})
    return BankState(state.version, {**state.records, inserted.id: inserted})


def _cases(state: BankState, record: Event, params: RuleParams) -> tuple[Case, ...]:
    newest = _with(state, record).collection(RECORDS)[: -params.compared - 1 : -1]
    cases = []
    for outcome, letter in (("success", "S"), ("failure", "F")):
        group = [found for found in map(TaskRecord.of, newest) if found.outcome == outcome]
        cases += [
            Case(
                name=f"{letter}{number}",
                node=found.node,
                outcome=found.outcome,
                task=found.task[: params.case_chars],
                plan=found.plan[: params.case_chars],
            )
            for number, found in enumerate(group, 1)
        ]
    return tuple(cases)


@dataclass(slots=True)
class RuleBook:
    """The rules while a review rewrites them. New rules get the ids ``(position, 1)``, ``(position, 2)``..."""

    review: Review
    params: RuleParams
    rules: dict[str, Rule] = field(init=False)
    _events: list[Event] = field(default_factory=list)
    _written: dict[int, str] = field(default_factory=dict)
    """Texts whose vectors events still need, by the event's index."""
    _added: int = 0

    def __post_init__(self) -> None:
        self.rules = dict(self.review.rules)

    def operate(self, operations: Sequence[Operation]) -> None:
        """Apply a comparison: removals, agreements, edits, additions; then drop every rule at 0 or below."""
        remove = self.params.crowded_step if len(self.rules) >= self.params.crowded else self.params.step
        for op in ("REMOVE", "AGREE", "EDIT", "ADD"):
            for operation in operations:
                if operation.op == op:
                    self._operate(operation, remove)
        for item in [item for item, rule in self.rules.items() if rule.score <= 0]:
            self._drop(item, "rule.drop", {"score": self.rules[item].score})

    def _operate(self, operation: Operation, remove: int) -> None:
        same = self._same(operation.text) if operation.op in ("EDIT", "ADD") else None
        known = self.rules.get(operation.rule)
        if operation.op == "ADD":
            if same is not None:
                self._ignore(operation, "already_there")
            else:
                rule = Rule(
                    rule=operation.text,
                    score=self.params.added_score,
                    tasks=self._nodes(operation),
                    sources=(self.review.position,),
                )
                self._put(self._new_id(), rule, "rule.add", {"cases": list(operation.cases)})
        elif known is None:
            self._ignore(operation, "unknown_rule")
        elif operation.op == "REMOVE":
            fallen = known.model_copy(update={"score": known.score - remove})
            self._put(operation.rule, fallen, "rule.remove", _before(known, operation))
        elif operation.op == "AGREE":
            self._support(operation.rule, known.rule, operation)
        else:
            # Rewritten into what a rule says already: that rule is meant.
            self._support(same or operation.rule, operation.text, operation)

    def _support(self, item: str, text: str, operation: Operation) -> None:
        old = self.rules[item]
        update: dict[str, Json] = {
            "score": old.score + self.params.step,
            "tasks": _ordered([*old.tasks, *self._nodes(operation)]),
        }
        kind = "rule.agree"
        if _spelling(text) != _spelling(old.rule):
            kind = "rule.edit"
            update |= {"rule": text, "sources": _joined(old.sources, [self.review.position])}
        self._put(item, old.model_copy(update=update), kind, _before(old, operation))

    def clusters(self) -> list[tuple[str, ...]]:
        """The rules by the type that most of their tasks are of (of equal ones the lowest), each in id order."""
        found: dict[str, list[str]] = {}
        for item, rule in self.rules.items():
            types = Counter(self.review.types[node] for node in rule.tasks)
            chosen = min(types, key=lambda kind: (-types[kind], ItemId.parse(kind)))
            found.setdefault(chosen, []).append(item)
        return [tuple(found[kind]) for kind in sorted(found, key=ItemId.parse)]

    def limit(self, cluster: Sequence[str]) -> int:
        """The most rules that ``cluster`` may become."""
        return max(1, len(cluster) // self.params.merge_share)

    def merge(self, texts: Mapping[str, Sequence[str]]) -> None:
        """Replace every cluster by its ``texts`` (by lowest id), and set every score back.

        The texts of a cluster without any stay, like that of a rule that is alone.
        """
        for cluster in self.clusters():
            told = list(dict.fromkeys(texts.get(cluster[0], ())))[: self.limit(cluster)]
            old = [self.rules[item] for item in cluster]
            if not told or len(cluster) == 1:
                for item, rule in zip(cluster, old, strict=True):
                    if rule.score != self.params.added_score:
                        reset = rule.model_copy(update={"score": self.params.added_score})
                        self._put(item, reset, "rule.reset", {"score_before": rule.score})
                continue
            for item, rule in zip(cluster, old, strict=True):
                self._drop(item, "rule.merge", {"score": rule.score, "cluster": list(cluster)})
            tasks = _ordered([node for rule in old for node in rule.tasks])
            sources = _joined([at for rule in old for at in rule.sources], [self.review.position])
            for text in told:
                rule = Rule(rule=text, score=self.params.added_score, tasks=tasks, sources=sources)
                self._put(self._new_id(), rule, "rule.merged", {"cluster": list(cluster)})

    def note(self, kind: str, detail: dict[str, Json]) -> None:
        """Journal something that changed no rule."""
        self._events.append(Event(op="note", kind=kind, collection=RULES, detail=detail))

    @property
    def texts(self) -> tuple[str, ...]:
        """Every text that this review wrote, once: ``events`` needs a vector of each."""
        return tuple(dict.fromkeys(self._written.values()))

    def events(self, vectors: Mapping[str, Vector]) -> tuple[Event, ...]:
        """The changes in order, given vectors by text. Raises ValueError where one is missing."""
        missing = [text for text in self.texts if text not in vectors]
        if missing:
            raise ValueError(f"position {self.review.position}: no vector of the rule {missing[0]!r}")
        return tuple(
            event.model_copy(update={"vectors": {RULE_VECTOR: vectors[self._written[index]]}})
            if index in self._written
            else event
            for index, event in enumerate(self._events)
        )

    def _same(self, text: str) -> str | None:
        wanted = _spelling(text)
        return next((item for item, rule in self.rules.items() if _spelling(rule.rule) == wanted), None)

    def _nodes(self, operation: Operation) -> tuple[str, ...]:
        named = [case.node for case in self.review.cases if case.name in operation.cases]
        return _ordered(named or [case.node for case in self.review.cases])

    def _new_id(self) -> str:
        self._added += 1
        return str(ItemId(self.review.position, self._added))

    def _put(self, item: str, rule: Rule, kind: str, detail: dict[str, Json]) -> None:
        old = self.rules.get(item)
        if old is None or old.rule != rule.rule:
            self._written[len(self._events)] = rule.rule
        self.rules[item] = rule
        payload = rule.model_dump(mode="json")
        self._events.append(Event(op="put", kind=kind, collection=RULES, id=item, payload=payload, detail=detail))

    def _drop(self, item: str, kind: str, detail: dict[str, Json]) -> None:
        del self.rules[item]
        self._events.append(Event(op="drop", kind=kind, collection=RULES, id=item, detail=detail))

    def _ignore(self, operation: Operation, reason: str) -> None:
        self.note("rule.ignored", {"reason": reason, **operation.model_dump(mode="json")})


def reviewed(review: Review, done: Reviewed, params: RuleParams) -> RuleBook:
    """The book after a review: the comparison, then the merge; what could not be done is noted."""
    book = RuleBook(review, params)
    if done.skipped:
        book.note("review.skipped", {"rules": len(book.rules)})
        return book
    for fault in done.faults:
        book.note("review.fault", {"reason": fault})
    book.operate(done.operations)
    if review.merge:
        book.merge(done.merged)
    return book


def _before(rule: Rule, operation: Operation) -> dict[str, Json]:
    return {"score_before": rule.score, "rule_before": rule.rule, "cases": list(operation.cases)}


def _ordered(nodes: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(nodes), key=ItemId.parse))


def _joined(first: Iterable[int], second: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted({*first, *second}))


def _spelling(text: str) -> str:
    return " ".join(text.casefold().split())
