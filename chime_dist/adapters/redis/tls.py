"""The certificates of a ``rediss://`` connection, checked before the first byte is sent."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from chime_dist.errors import ConfigError

_HOST_DIFFERS = 62
"""OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH; 63 and 64 are its kin for e-mail and IP addresses."""
_ADDRESS_DIFFERS = 64

_REFUSED_CLIENT = (
    "CERTIFICATE_REQUIRED",
    "HANDSHAKE_FAILURE",
    "UNKNOWN_CA",
    "BAD_CERTIFICATE",
    "CERTIFICATE_EXPIRED",
    "CERTIFICATE_UNKNOWN",
    "DECRYPT_ERROR",
)
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files, by path. Without ``ca`` only the authorities that this machine trusts are trusted."""

    ca: str | None = None
    """``redis.ca_file``: an authority that is trusted too."""
    cert: str | None = None
    """``redis.cert_file``: our certificate."""
    key: str | None = None
    """``redis.key_file``: its key; None where ``cert`` holds it."""

    def options(self) -> dict[str, str]:
        """What redis-py takes. Raises ConfigError, naming key and path, for files that cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.ca is not None:
            try:
                context.load_verify_locations(self.ca)
            except OSError as error:
                raise ConfigError(
                    f"redis.ca_file {self.ca}: {_reason(error)}; expected the PEM file of the authority that"
                    " signed the server's certificate, on every machine of the launch"
                ) from error
        if self.cert is not None:
            try:
                # An empty passphrase: without one OpenSSL would ask for it on the terminal.
                context.load_cert_chain(self.cert, self.key, password="")
            except (OSError, ValueError) as error:
                named = f"redis.cert_file {self.cert}" + (f" with redis.key_file {self.key}" if self.key else "")
                raise ConfigError(
                    f"{named}: {_reason(error)}; expected the PEM files of a certificate and of its key without a"
                    " passphrase (or both in cert_file), on every machine of the launch"
                ) from error
        given = {"ssl_ca_certs": self.ca, "ssl_certfile": self.cert, "ssl_keyfile": self.key}
        return {name: path for name, path in given.items() if path is not None}


def tls_refusal(error: BaseException) -> tuple[str, str] | None:
    """What a failed handshake means and how to mend it; None for an error that asking again may cure."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = error.verify_message
        if _HOST_DIFFERS <= error.verify_code <= _ADDRESS_DIFFERS:
            return (
                f"the server's certificate is for another name ({said})",
                "Write the host in the Redis URL as the certificate names it, or give the server a certificate for"
                " this name",
            )
        return (
            f"the server's certificate is not trusted ({said})",
            "Set redis.ca_file to the PEM file of the authority that signed it, or give the server a certificate"
            " that is valid and signed by a public one",
        )
    if not isinstance(error, ssl.SSLError):
        return None
    reason = (error.reason or "").upper()
    if any(mark in reason for mark in _REFUSED_CLIENT):
        return (
            f"the server refused our side of TLS ({error.reason})",
            "Set redis.cert_file and redis.key_file to a client certificate that the server's authority signed",
        )
    if any(mark in reason for mark in _NOT_TLS):
        return (
            f"the server does not speak TLS at this port ({error.reason})",
            "Write the port of its TLS listener, or redis:// where the network is private",
        )
    return None


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return "cannot be read as PEM" + (f" ({error.reason})" if error.reason else "")
    return getattr(error, "strerror", None) or "needs a passphrase"
