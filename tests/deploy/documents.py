"""What deploy/ and k8s/ hold, as trees: the versions, the compose file, and the rendered kustomizations."""

from __future__ import annotations

import copy
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from chime_dist.config.loading import load_sweep
from chime_dist.config.sweep import SweepConfig

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BASE = ROOT / "k8s" / "base"
SMALL = ROOT / "k8s" / "overlays" / "small"
IN_IMAGE = "/opt/chime-dist/configs"
"""Where both images have configs/."""

REFERENCE = re.compile(r"\$\{([A-Z_]+)[}:]")
KUBECTL = shutil.which("kubectl")

Tree = dict[str, Any]


def read(path: Path) -> list[Any]:
    """Every document of a YAML file."""
    return list(YAML(typ="safe").load_all(path.read_text(encoding="utf-8")))


def versions() -> dict[str, str]:
    """deploy/versions.env."""
    lines = (DEPLOY / "versions.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def compose() -> Tree:
    """deploy/compose.yaml, its merge keys resolved, its variables as they are written."""
    [tree] = read(DEPLOY / "compose.yaml")
    return dict(tree)


def rendered(folder: Path) -> list[Tree]:
    """What ``kubectl apply -k`` would apply, by our own reading of what our kustomizations use."""
    [kustomization] = read(folder / "kustomization.yaml")
    documents: list[Tree] = []
    for name in kustomization["resources"]:
        part = folder / name
        documents += rendered(part) if part.is_dir() else read(part)
    for generator in kustomization.get("configMapGenerator", []):
        data = {name: (folder / name).read_text(encoding="utf-8") for name in generator["files"]}
        if generator.get("behavior") == "replace":
            next(d for d in documents if _is(d, "ConfigMap", generator["name"]))["data"] = data
        else:
            documents.append(
                {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator["name"]}, "data": data}
            )
    for patch in kustomization.get("patches", []):
        documents = _patched(documents, patch, folder)
    for document in documents:
        document["metadata"]["namespace"] = kustomization["namespace"]
    return documents


def kubectl_rendered(folder: Path) -> list[Tree]:
    """The same by kustomize itself."""
    assert KUBECTL is not None
    done = subprocess.run([KUBECTL, "kustomize", str(folder)], check=True, capture_output=True, text=True)
    return list(YAML(typ="safe").load_all(done.stdout))


def _patched(documents: list[Tree], patch: Tree, folder: Path) -> list[Tree]:
    if "patch" in patch:
        target = YAML(typ="safe").load(patch["patch"])
        assert target["$patch"] == "delete"
        return [d for d in documents if not _is(d, target["kind"], target["metadata"]["name"])]
    [operations] = read(folder / patch["path"])
    document = next(d for d in documents if _is(d, patch["target"]["kind"], patch["target"]["name"]))
    for operation in operations:
        _change(document, **operation)
    return documents


def _change(document: Tree, op: str, path: str, value: Any = None) -> None:
    *parents, last = path.strip("/").split("/")
    node: Any = document
    for part in parents:
        node = node[int(part) if isinstance(node, list) else part]
    key: Any = int(last) if isinstance(node, list) and last != "-" else last
    match op:
        case "test":
            assert node[key] == value, path
        case "remove":
            del node[key]
        case "replace":
            assert node[key] is not None
            node[key] = copy.deepcopy(value)
        case "add" if key == "-":
            node.append(copy.deepcopy(value))
        case _:
            raise ValueError(f"{op} at {path} is not one that our patches use")


def _is(document: Tree, kind: str, name: str) -> bool:
    return bool(document["kind"] == kind and document["metadata"]["name"] == name)


def named(documents: list[Tree], kind: str) -> dict[str, Tree]:
    """Those of one kind, by name."""
    return {d["metadata"]["name"]: d for d in documents if d["kind"] == kind}


def pod_templates(documents: list[Tree]) -> dict[str, Tree]:
    """By what makes the pods; those of a RayCluster with the labels that KubeRay puts on them."""
    templates: dict[str, Tree] = {}
    for name, document in named(documents, "StatefulSet").items():
        templates[name] = document["spec"]["template"]
    for name, document in named(documents, "RayCluster").items():
        groups = {"head": document["spec"]["headGroupSpec"]}
        groups |= {group["groupName"]: group for group in document["spec"]["workerGroupSpecs"]}
        for group, spec in groups.items():
            template = copy.deepcopy(spec["template"])
            node_type = "head" if group == "head" else "worker"
            template["metadata"]["labels"] |= {
                "ray.io/cluster": name,
                "ray.io/group": group,
                "ray.io/node-type": node_type,
            }
            templates[group] = template
    return templates


def sweep_in_place(text: str, folder: Path, environ: Mapping[str, str]) -> SweepConfig:
    """A sweep that runs inside an image, with the image's configs taken from the checkout."""
    path = folder / "sweep.yaml"
    path.write_text(text.replace(IN_IMAGE, str(ROOT / "configs")), encoding="utf-8")
    return load_sweep(path, environ=environ)
