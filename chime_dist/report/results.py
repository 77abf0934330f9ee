"""What a report is made of: the results of one run, as whoever read the run directory hands them over."""

from __future__ import annotations

from pydantic import Field

from chime_dist.core.episode import EpisodeRecord, Usage
from chime_dist.core.frozen import Frozen
from chime_dist.core.spending import Payer, Purpose

FORKED = "forked_from"
"""The deviation of a run that nobody planned: it left another one at a train position. Such runs are rows of their
own, of whatever orderings there are, and enter no average over benchmarks."""

METHODS_OWN = frozenset({"near_tie", "window", FORKED})
"""Deviations that are a method's own business. Rows that differ in any other, such as the checker, were not
measured alike, and are not compared."""


class BankPoint(Frozen):
    """How large a run's bank was at a checkpoint."""

    name: str
    """See ``core.checkpoint``: ``25%`` to ``100%`` of the train stream, ``epoch-1`` and so on."""
    version: int = Field(ge=0)
    sizes: dict[str, int] = {}
    """Records by collection; one without records may be absent."""

    @property
    def total(self) -> int:
        """Records of all collections."""
        return sum(self.sizes.values())


class RunResults(Frozen):
    """One run (benchmark x method x backbone x ordering) of a sweep. A planned run that has not started yet is
    given too, without records, so that the report can say what is missing."""

    benchmark: str
    backbone: str
    method: str
    endpoints: dict[str, str] = {}
    """Who answers a role: its backbone, or ``embedder``. A role that is not named asks ``backbone``."""
    ordering: int = Field(ge=0)
    """0-based."""
    run_id: str
    deviations: dict[str, str] = {}
    """What a reader must know beside the names, e.g. ``{"checker": "official", "near_tie": "relevance",
    "action_mode": "json_schema", "window": "16"}``. Runs that differ in it are never averaged together."""
    train_size: int = Field(ge=0)
    """Positions of one epoch."""
    epochs: int = Field(ge=0)
    """Passes over the train stream; the selected checkpoint is after the last one (R6)."""
    eval_size: int = Field(ge=0)
    eval_version: int = Field(ge=0)
    """The bank version whose eval episodes are reported; others (R47) are left out."""
    attempts: tuple[str, ...] = ()
    """Of the train positions in the journal, in order; empty for a damaged entry. Rows of other attempts at these
    positions are history, and those that ended infra stay so (D9)."""
    records: tuple[EpisodeRecord, ...] = ()
    """Rows of episodes.jsonl in file order, attempts that were tried again included."""
    at_commits: dict[str, Usage] = {}
    """By role, what the requests of its commits used; of a fork those from ``forked_at`` on."""
    forked_at: int = Field(default=0, ge=0)
    """Train positions before it are copies of another run's: that one has paid for them."""
    has_bank: bool = True
    """False for a method without state."""
    bank_size: int | None = None
    """Records in the bank at ``eval_version``, all collections together; None while there is no such version."""
    growth: tuple[BankPoint, ...] = ()
    """The bank at every checkpoint that was reached, by version."""
    bank_digest_before_eval: str | None = None
    """State digest when eval was admitted; None where it was not taken."""
    bank_digest_after_eval: str | None = None
    """State digest when eval was over; None where it was not taken. R5: the same as before."""

    def asked(self, role: str, purpose: Purpose = "episodes") -> Payer:
        """Whom a role of this run asks."""
        return Payer(self.endpoints.get(role, self.backbone), role, purpose)
