"""One flat error class per boundary. All are picklable, because they cross Ray's process borders.

Every message names the place, the value and the fix. The keyword arguments are kept as attributes; they are
what a caller may branch on, the message is for people.
"""

from __future__ import annotations


class ChimeDistError(Exception):
    """Base of everything this package raises on purpose."""


class ConfigError(ChimeDistError):
    """A config file, an override or an environment variable cannot be used as given."""


class MissingExtraError(ChimeDistError):
    """An optional part is not installed; the message holds the install command."""


class ServiceError(ChimeDistError):
    """Redis, Qdrant or Ray is unreachable, or set up in a way that could lose acknowledged work."""


class TurnOverError(ServiceError):
    """This process works for a driver that another one has replaced; nothing it does may count."""


class RunDirectoryError(ChimeDistError):
    """The run directory is held by another driver, belongs to another config, or is damaged."""


class JournalError(ChimeDistError):
    """The journal's chain is broken, forked, or an entry cannot be applied. A wrong bank stops the run."""


class FencedError(ChimeDistError):
    """This bank owner was replaced: a newer fence exists, so nothing it does may count."""


class BankMismatchError(ChimeDistError):
    """The embedding model, prompt, dimension or distance differs from what the bank was built with."""


class BankFileError(ChimeDistError):
    """An exported bank is damaged, cut, of another format, or cannot be read or written."""


class ServingError(ChimeDistError):
    """A replica or router of a backbone that we serve cannot be placed, started, or shown to work."""


class OutageError(ChimeDistError):
    """A backbone stayed down for longer than a launch waits; the launch is paused, nothing is lost."""


class BenchmarkError(ChimeDistError):
    """A benchmark's package, data or evaluator failed; never the agent's fault (outcome infra)."""


class MethodError(ChimeDistError):
    """A method broke, or answered what no bank can hold; nothing of it was committed. Names the method."""


class EmbeddingError(ChimeDistError):
    """A text could not be embedded (empty, non-finite vector, wrong dimension, endpoint down)."""


class BackboneError(ChimeDistError):
    """A model call failed for good.

    Attributes:
        code: a short machine-readable reason, one of ``timeout``, ``rate_limited``, ``server_error``,
            ``unreachable``, ``empty_completion``, ``context_overflow``, ``bad_request``, ``auth``, ``budget``.
        status: the HTTP status, or None where no reply came.
        retriable: whether a later call with the same input may succeed.
        retry_after_s: what the server asked for, in seconds, or None.
        sent: the ``core.model_call.ChatRequest`` that failed, where prompts are captured, else None.
    """

    def __init__(
        self,
        message: str,
        code: str = "server_error",
        status: int | None = None,
        retriable: bool = False,
        retry_after_s: float | None = None,
    ) -> None:
        # Positional arguments all reach Exception.__init__: that is what makes the error picklable.
        super().__init__(message, code, status, retriable, retry_after_s)
        self.message = message
        self.code = code
        self.status = status
        self.retriable = retriable
        self.retry_after_s = retry_after_s
        self.sent: object = None

    def __str__(self) -> str:
        where = f" (HTTP {self.status})" if self.status is not None else ""
        return f"{self.code}: {self.message}{where}"
