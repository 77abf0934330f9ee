"""Values that reach the service they are for and nothing else: no dump, log, representation or message (H6).

A secret remembers what it was written as. ``${NAME}`` is shown and stored as ``${NAME}``, so that a resume reads
the variable again; what was written out is masked, and a resume asks for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Self
from urllib.parse import unquote, urlsplit

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from chime_dist.config.problems import looks_secret

MASK = "**********"
"""Stands for a secret that was written out in the config."""

_REFERENCE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_DEFAULTED = re.compile(r"(\$\{[A-Za-z_][A-Za-z0-9_]*:-)([^}]+)\}")
_USERINFO = re.compile(r"(?<=://)([^/?#]*)@")
_QUERY_VALUE = re.compile(r"([?&])([^=&#]+)=([^&#]*)")


class Interpolated(str):
    """Text that came out of ``${NAME}``, together with what was written."""

    template: str

    def __new__(cls, text: str, template: str) -> Self:
        """``text`` as it reads now, ``template`` as it was written."""
        self = super().__new__(cls, text)
        self.template = template
        return self


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """Text that only ``reveal`` gives away. In a config it is written as text."""

    _value: str
    _shown: str

    @classmethod
    def of(cls, value: str) -> Self:
        """A secret that was written out, or came out of ``${NAME}``."""
        written = value.template if isinstance(value, Interpolated) else value
        return cls(str(value), cls._displayed(written))

    def reveal(self) -> str:
        """The value, for the request that needs it and for nothing else."""
        return self._value

    @property
    def written_out(self) -> bool:
        """Whether the config held the value itself, so that a stored config lacks it."""
        return MASK in self._shown

    @classmethod
    def _displayed(cls, written: str) -> str:
        if _REFERENCE.search(written) is None and _DEFAULTED.search(written) is None:
            return MASK
        return _DEFAULTED.sub(rf"\g<1>{MASK}}}", written)

    def __str__(self) -> str:
        return self._shown

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._shown!r})"

    @classmethod
    def _parse(cls, value: object) -> Self:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str):
            raise PydanticCustomError("secret_type", "expected text; put quotes around it")
        if MASK in value:
            raise PydanticCustomError(
                "secret_masked", "was written out, so it was not stored; set it again, best as ${NAME}"
            )
        if not isinstance(value, Interpolated) and "${" in value:
            raise PydanticCustomError(
                "secret_unresolved",
                "holds a reference that was not filled; read configs by load_sweep or restore_sweep",
            )
        return cls._checked(value)

    @classmethod
    def _checked(cls, value: str) -> Self:
        if not value.strip():
            raise PydanticCustomError("secret_empty", "is empty; set the variable, or leave the key out")
        return cls.of(value)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            cls._parse, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )


class SecretUrl(Secret):
    """A URL. Its password, and query values that are named like secrets, are treated as secrets."""

    __slots__ = ()

    def require_port(self) -> None:
        """Raise ValueError for a port that is no port; without the value, which may hold a password."""
        try:
            _ = urlsplit(self._value).port
        except ValueError:
            raise ValueError("the URL's port is not a number from 0 to 65535") from None

    @property
    def scheme(self) -> str:
        """Lower case, without the colon."""
        return urlsplit(self._value).scheme

    @property
    def has_credentials(self) -> bool:
        """Whether a user, a password or a token stands before the host."""
        return "@" in urlsplit(self._value).netloc

    @property
    def credentials(self) -> tuple[str, ...]:
        """The password, or the token that stands alone before the host, as written and as decoded."""
        user, colon, password = urlsplit(self._value).netloc.rpartition("@")[0].partition(":")
        secret = password if colon else user
        return tuple(sorted({secret, unquote(secret)} - {""}))

    @classmethod
    def _displayed(cls, written: str) -> str:
        masked = _DEFAULTED.sub(lambda found: f"{found[1]}{cls._displayed(found[2])}}}", written)
        return _QUERY_VALUE.sub(_shown_query_value, _USERINFO.sub(_shown_userinfo, masked))

    @classmethod
    def _checked(cls, value: str) -> Self:
        try:
            parts = urlsplit(value)
        except ValueError:
            parts = None
        if parts is None or not parts.scheme or not (parts.netloc or parts.path):
            raise PydanticCustomError("secret_url", "expected a URL such as http://HOST:PORT")
        return cls.of(value)


def _shown_userinfo(found: re.Match[str]) -> str:
    user, colon, password = found[1].partition(":")
    if colon:
        return f"{user}:{_shown_part(password)}@"
    return f"{_shown_part(user)}@"


def _shown_query_value(found: re.Match[str]) -> str:
    value = _shown_part(found[3]) if looks_secret(found[2]) else found[3]
    return f"{found[1]}{found[2]}={value}"


def _shown_part(text: str) -> str:
    return text if not text or _REFERENCE.fullmatch(text) else MASK
