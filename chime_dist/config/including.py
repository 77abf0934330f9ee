"""``include``: a config file that starts from others, e.g. from the backbones in configs/backbones.

Paths start where the including file is. Mappings are put together key by key, and a later file's value stands, the
including file's last. Lists are replaced as a whole, but for ``backbones``: those of included files are added up;
where the including file lists its own, these are the sweep's. Its backbones and roles start from the included
backbone of their name, and a name alone takes it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chime_dist.config.document import Document, Tree, described
from chime_dist.config.problems import KeyPath
from chime_dist.config.yaml_reader import read_document
from chime_dist.errors import ConfigError

INCLUDE = "include"
_BACKBONES = "backbones"
_ROLES = "roles"


@dataclass(frozen=True, slots=True)
class _Node:
    """A value and where it was written; a mapping or a list holds nodes."""

    value: Any
    place: str

    @property
    def items(self) -> dict[str, _Node]:
        """Those of a mapping; none of anything else, about which validation complains."""
        return self.value if isinstance(self.value, dict) else {}

    @property
    def entries(self) -> list[_Node]:
        """Those of a list; none of anything else."""
        return self.value if isinstance(self.value, list) else []

    @property
    def name(self) -> str | None:
        """What an entry of ``backbones`` is called."""
        name = self.items["name"].value if "name" in self.items else self.value
        return name if isinstance(name, str) else None


def read_config(path: Path) -> Document:
    """Read a config file with what it includes; every value keeps the file and line where it was written.

    Raises ConfigError with every problem of the first file that has any: the file itself, then the included ones.
    """
    document = read_document(path)
    if INCLUDE not in document.root:
        return document
    under = _Node({}, document.name)
    pool: list[_Node] = []
    for at, name in enumerate(_names(document)):
        part = _nodes(_read_part(path.parent / name, document, at))
        pool = _added(pool, part.items[_BACKBONES].entries) if _BACKBONES in part.items else pool
        under = _over(under, part)
    if pool:
        under.items[_BACKBONES] = _Node(pool, under.items[_BACKBONES].place)
    own = _nodes(document)
    del own.items[INCLUDE]
    return _flat(document.name, _started(_over(under, own), pool))


def _names(document: Document) -> list[str]:
    names = document.root[INCLUDE]
    if isinstance(names, list) and all(isinstance(name, str) and name for name in names):
        return names
    message = f"is {described(names)}; write a list of files, e.g. [backbones/qwen3-8b.yaml], without variables"
    raise ConfigError(str(document.problem((INCLUDE,), message)))


def _read_part(path: Path, document: Document, at: int) -> Document:
    if not path.is_file():
        message = f"there is no file {path}; a path starts at the folder of the file that includes it"
        raise ConfigError(str(document.problem((INCLUDE, at), message)))
    part = read_document(path)
    if INCLUDE in part.root:
        message = f"an included file includes nothing itself; list both in {document.name}"
        raise ConfigError(str(part.problem((INCLUDE,), message)))
    return part


def _over(under: _Node, over: _Node) -> _Node:
    if not (isinstance(under.value, dict) and isinstance(over.value, dict)):
        return over
    merged = dict(under.value)
    for key, node in over.value.items():
        merged[key] = _over(merged[key], node) if key in merged else node
    return _Node(merged, over.place)


def _added(pool: Sequence[_Node], backbones: Sequence[_Node]) -> list[_Node]:
    """Both; a later one goes over the earlier one of its name, in its place."""
    added = list(pool)
    for backbone in backbones:
        at = _found(backbone, added)
        if at is None:
            added.append(backbone)
        else:
            added[at] = _from(added[at], backbone)
    return added


def _started(root: _Node, pool: Sequence[_Node]) -> _Node:
    """Backbones and roles of ``root``, each from the one in ``pool`` that has its name."""
    changed = dict(root.items)
    if _BACKBONES in changed and (backbones := changed[_BACKBONES].entries):
        changed[_BACKBONES] = replace(changed[_BACKBONES], value=[_from_pool(entry, pool) for entry in backbones])
    if _ROLES in changed and (roles := changed[_ROLES].items):
        started = {role: _from_pool(entry, pool) for role, entry in roles.items()}
        changed[_ROLES] = replace(changed[_ROLES], value=started)
    return replace(root, value=changed)


def _from_pool(entry: _Node, pool: Sequence[_Node]) -> _Node:
    at = _found(entry, pool)
    return entry if at is None else _from(pool[at], entry)


def _from(under: _Node, entry: _Node) -> _Node:
    return replace(under, place=entry.place) if isinstance(entry.value, str) else _over(under, entry)


def _found(entry: _Node, pool: Sequence[_Node]) -> int | None:
    return next((at for at, known in enumerate(pool) if entry.name is not None and known.name == entry.name), None)


def _nodes(document: Document) -> _Node:
    def node(tree: Tree, path: KeyPath) -> _Node:
        value = tree
        if isinstance(tree, dict):
            value = {key: node(child, (*path, key)) for key, child in tree.items()}
        elif isinstance(tree, list):
            value = [node(child, (*path, at)) for at, child in enumerate(tree)]
        return _Node(value, document.place(path))

    return node(document.root, ())


def _flat(name: str, root: _Node) -> Document:
    places: dict[KeyPath, str] = {}

    def plain(node: _Node, path: KeyPath) -> Tree:
        places[path] = node.place
        if isinstance(node.value, dict):
            return {key: plain(child, (*path, key)) for key, child in node.value.items()}
        if isinstance(node.value, list):
            return [plain(child, (*path, at)) for at, child in enumerate(node.value)]
        return node.value

    return Document(name, plain(root, ()), places)
