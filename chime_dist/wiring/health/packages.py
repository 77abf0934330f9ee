"""Whether Python and the installed packages are those that chime-dist asks for."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from chime_dist.wiring.health.finding import Finding, ok, problem, warning

_PACKAGE = "chime-dist"


def package_findings() -> Iterator[Finding]:
    """Python, what every installation needs, and what is there of the extras; missing extras are no finding."""
    try:
        ours = metadata.metadata(_PACKAGE)
    except metadata.PackageNotFoundError:
        yield warning(
            "packages", f"{_PACKAGE} is not installed, so its methods cannot be found", "pip install -e ."
        )
        return
    yield _python(SpecifierSet(ours["Requires-Python"] or ""))
    unmet = [
        unmet for text in metadata.requires(_PACKAGE) or () if (unmet := _unmet(Requirement(text))) is not None
    ]
    if unmet:
        yield problem("packages", "; ".join(found for found, _ in unmet), f"pip install {_quoted(unmet)}")
    else:
        yield ok("packages", f"{_PACKAGE} {metadata.version(_PACKAGE)} and what it needs are installed")


def _python(wanted: SpecifierSet) -> Finding:
    version = platform.python_version()
    if wanted.contains(version, prereleases=True):
        return ok("python", version)
    return problem("python", f"{version} is not {wanted}", f"install into a Python {wanted}")


def _unmet(wanted: Requirement) -> tuple[str, str] | None:
    """What is wrong and what to install; None where the requirement holds or does not concern this machine."""
    extra = _extra_of(wanted)
    if extra is None:
        return None
    try:
        version = metadata.version(wanted.name)
    except metadata.PackageNotFoundError:
        return None if extra else (f"{wanted.name} is missing", f"{wanted.name}{wanted.specifier}")
    if wanted.specifier.contains(version, prereleases=True):
        return None
    return f"{wanted.name} is {version}, not {wanted.specifier}", f"{wanted.name}{wanted.specifier}"


def _extra_of(wanted: Requirement) -> str | None:
    """The extra that a requirement belongs to, empty for none; None where it is for another machine."""
    if wanted.marker is None or wanted.marker.evaluate({"extra": ""}):
        return ""
    extras = metadata.metadata(_PACKAGE).get_all("Provides-Extra") or []
    return next((extra for extra in extras if wanted.marker.evaluate({"extra": extra})), None)


def _quoted(unmet: list[tuple[str, str]]) -> str:
    return " ".join(f"'{install}'" for _, install in unmet)
