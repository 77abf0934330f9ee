"""The images: what they are made of, from one place, and nothing else in them."""

from __future__ import annotations

import re

import pytest

from chime_dist.adapters.ray.cluster import _ENVIRONMENT
from tests.deploy.documents import BASE, DEPLOY, IN_IMAGE, ROOT, compose, named, pod_templates, rendered, versions

DOCKERFILES = ("Dockerfile", "Dockerfile.gpu")
BOTH = pytest.mark.parametrize("name", DOCKERFILES)


def dockerfile(name: str) -> str:
    return (DEPLOY / name).read_text(encoding="utf-8")


def constraint(package: str) -> str:
    """The version that was tested."""
    found = re.search(rf"^{package}==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    return found[1]


@BOTH
def test_defaults_of_a_build_are_the_versions_of_the_one_place(name: str) -> None:
    known = versions()
    arguments = dict(re.findall(r"^ARG (\w+)=(.+)$", dockerfile(name), re.MULTILINE))
    assert arguments, "a base image without a version would be another one tomorrow"
    assert arguments == {key: known[key] for key in arguments}


def test_every_image_that_is_run_is_one_of_the_one_place() -> None:
    known = versions()
    images = {key: value for key, value in known.items() if key.endswith("_IMAGE")}
    assert not [image for image in images.values() if ":" not in image or image.endswith(":latest")]
    used = [
        container["image"]
        for template in pod_templates(rendered(BASE)).values()
        for container in template["spec"]["containers"]
    ]
    assert set(used) == {images[key] for key in ("CHIME_IMAGE", "CHIME_GPU_IMAGE", "REDIS_IMAGE", "QDRANT_IMAGE")}
    assert {service["image"] for service in compose()["services"].values()} == {
        f"${{{key}}}" for key in ("CHIME_IMAGE", "CHIME_GPU_IMAGE", "REDIS_IMAGE", "QDRANT_IMAGE")
    }


def test_our_images_are_tagged_with_our_version() -> None:
    [version] = re.findall(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    known = versions()
    assert known["CHIME_IMAGE"] == f"chime-dist:{version}"
    assert known["CHIME_GPU_IMAGE"] == f"chime-dist-gpu:{version}"


@BOTH
def test_what_is_installed_is_what_make_installs(name: str) -> None:
    makefile, text = (ROOT / "Makefile").read_text(encoding="utf-8"), dockerfile(name)
    for pinned in ("torch==", "bfcl-eval=="):
        [wanted] = set(re.findall(rf"{pinned}[\d.]+", makefile))
        assert set(re.findall(rf"{pinned}[\d.]+", text)) == {wanted}
    [extras] = re.findall(r"-c constraints\.txt '\.\[([a-z,]+)\]'", text)
    assert set(extras.split(",")) == {"embed", "edge", "bfcl", "plots"}


def test_both_images_hold_the_same_package_and_python_since_ray_may_place_an_actor_on_either() -> None:
    """C1: actors without CPUs are placed on any node."""
    python = re.findall(r"python:(\d\.\d+)-", versions()["PYTHON_IMAGE"])
    assert re.findall(r"--python (\d\.\d+)", dockerfile("Dockerfile.gpu")) == python
    lines = [
        re.findall(r"pip install (?:-c|--no-deps) .+?(?= \\|$)", dockerfile(name), re.M) for name in DOCKERFILES
    ]
    assert lines[0] == lines[1] != []


@BOTH
def test_an_image_runs_the_program_as_an_unprivileged_user(name: str) -> None:
    text = dockerfile(name)
    last = text[text.rindex("\nFROM ") :]
    users = re.findall(r"^USER (\S+)$", last, re.MULTILINE)
    [uid] = re.findall(r"useradd --uid (\d+)", last)
    assert users[-1] == uid
    for template in pod_templates(rendered(BASE)).values():
        if template["metadata"]["labels"].get("app.kubernetes.io/part-of") == "chime-dist":
            assert str(template["spec"]["securityContext"]["runAsUser"]) == uid
    assert 'ENTRYPOINT ["chime-dist"]' in last


@BOTH
def test_an_image_sets_for_ray_what_a_launch_sets(name: str) -> None:
    text = dockerfile(name)
    for variable, value in _ENVIRONMENT.items():
        assert f" {variable}={value}" in text


@BOTH
def test_what_an_image_copies_is_in_the_build_context_and_nothing_else_is(name: str) -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    allowed = {line[1:] for line in ignored if line.startswith("!")}
    copies = re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile(name), re.MULTILINE)
    copied = {source.removeprefix("./") for words in copies for source in words.split()}
    assert copied == allowed
    assert all((ROOT / path).exists() for path in allowed)
    assert f"COPY configs {IN_IMAGE}" in dockerfile(name)


def test_ray_and_qdrant_are_of_the_versions_that_were_tested() -> None:
    """Ray wants one version on all nodes; Qdrant's client and server may be one minor version apart."""
    assert named(rendered(BASE), "RayCluster")["chime"]["spec"]["rayVersion"] == constraint("ray")
    [server] = re.findall(r":v(\d+)\.(\d+)\.", versions()["QDRANT_IMAGE"])
    client = constraint("qdrant-client").split(".")
    assert server[0] == client[0]
    assert abs(int(server[1]) - int(client[1])) <= 1
