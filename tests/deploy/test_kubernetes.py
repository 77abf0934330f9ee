"""k8s/ as documents: they hold together and agree with our own code; read by kustomize where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from chime_dist.adapters.ray.cluster import _ENVIRONMENT
from chime_dist.adapters.vllm.need import need_of
from chime_dist.config.problems import looks_secret
from chime_dist.config.serving import VllmEndpoint
from chime_dist.config.sweep import SweepConfig
from tests.deploy.documents import (
    BASE,
    KUBECTL,
    REFERENCE,
    ROOT,
    SMALL,
    Tree,
    kubectl_rendered,
    named,
    pod_templates,
    rendered,
    sweep_in_place,
)

FOLDERS = pytest.mark.parametrize("folder", [BASE, SMALL], ids=["base", "small"])
RAY_PODS = {"head", "workers", "gpus"}
NOT_OF_RAY = {"chime-redis", "chime-qdrant"}


def containers(documents: list[Tree]) -> Iterator[tuple[str, Tree, Tree]]:
    """Every container with the name and the template of its pods."""
    for name, template in pod_templates(documents).items():
        for container in template["spec"]["containers"]:
            yield name, template, container


def environment(container: Tree) -> dict[str, Any]:
    return {entry["name"]: entry.get("value", entry.get("valueFrom")) for entry in container.get("env", [])}


def sweep_of(documents: list[Tree], folder: Path) -> SweepConfig:
    text = named(documents, "ConfigMap")["chime-sweep"]["data"]["sweep.yaml"]
    [head] = [container for name, _, container in containers(documents) if name == "head"]
    return sweep_in_place(text, folder, dict.fromkeys(environment(head), "canary"))


@FOLDERS
def test_kustomize_renders_what_these_tests_look_at(folder: Path) -> None:
    """Where kustomize is not installed, our own reading of the few things that we use of it must do."""

    def by_identity(documents: list[Tree]) -> dict[tuple[str, str], Tree]:
        return {(d["kind"], d["metadata"]["name"]): d for d in documents}

    ours = by_identity(rendered(folder))
    assert len(ours) >= 14
    assert {d["metadata"]["namespace"] for d in ours.values()} == {"chime-dist"}
    if KUBECTL is not None:
        assert by_identity(kubectl_rendered(folder)) == ours


@FOLDERS
def test_selectors_find_pods(folder: Path) -> None:
    documents = rendered(folder)
    labels = [template["metadata"]["labels"] for template in pod_templates(documents).values()]
    wanted: list[Tree] = [d["spec"]["selector"] for d in named(documents, "Service").values()]
    for kind in ("StatefulSet", "PodDisruptionBudget"):
        wanted += [d["spec"]["selector"]["matchLabels"] for d in named(documents, kind).values()]
    for policy in named(documents, "NetworkPolicy").values():
        wanted.append(policy["spec"]["podSelector"]["matchLabels"])
        wanted += [
            peer["podSelector"]["matchLabels"] for rule in policy["spec"]["ingress"] for peer in rule["from"]
        ]
    for selector in wanted:
        assert any(selector.items() <= found.items() for found in labels), selector


@FOLDERS
def test_every_pod_that_a_launch_uses_may_reach_redis_and_qdrant(folder: Path) -> None:
    documents = rendered(folder)
    for policy in named(documents, "NetworkPolicy").values():
        [rule] = policy["spec"]["ingress"]
        [peer] = rule["from"]
        allowed = peer["podSelector"]["matchLabels"]
        for name, template in pod_templates(documents).items():
            assert (allowed.items() <= template["metadata"]["labels"].items()) == (name not in NOT_OF_RAY)


@FOLDERS
def test_every_mount_has_its_volume_and_every_volume_its_source(folder: Path) -> None:
    documents = rendered(folder)
    claims = {
        name: {claim["metadata"]["name"] for claim in document["spec"]["volumeClaimTemplates"]}
        for name, document in named(documents, "StatefulSet").items()
    }
    for name, template, container in containers(documents):
        volumes = {volume["name"]: volume for volume in template["spec"].get("volumes", [])}
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == volumes.keys() | claims.get(name, set()), name
        for volume in volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in named(documents, "ConfigMap")
            if "persistentVolumeClaim" in volume:
                assert volume["persistentVolumeClaim"]["claimName"] in named(documents, "PersistentVolumeClaim")


@FOLDERS
def test_services_and_probes_name_ports_that_are_open(folder: Path) -> None:
    documents = rendered(folder)
    for name, service in named(documents, "Service").items():
        [container] = named(documents, "StatefulSet")[name]["spec"]["template"]["spec"]["containers"]
        opened = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert {port["name"]: port["port"] for port in service["spec"]["ports"]} == opened
        probes = [container[key] for key in ("readinessProbe", "livenessProbe") if key in container]
        assert probes
        for probe in probes:
            assert "httpGet" not in probe or probe["httpGet"]["port"] in opened
        [rule] = named(documents, "NetworkPolicy")[name]["spec"]["ingress"]
        assert [port["port"] for port in rule["ports"]] == list(opened.values())


@FOLDERS
def test_secrets_are_references(folder: Path) -> None:
    """H6: no document holds a secret, and only the pod of the driver, or the service itself, gets one."""
    documents = rendered(folder)
    assert not named(documents, "Secret")
    for name, _, container in containers(documents):
        for variable, value in environment(container).items():
            is_secret = looks_secret(variable) or variable.endswith(("_PASSWORD", "_API_KEY", "REDISCLI_AUTH"))
            assert isinstance(value, dict) == is_secret, variable
            assert not is_secret or name not in ("workers", "gpus")


@FOLDERS
def test_ray_is_set_up_alike_in_every_pod(folder: Path) -> None:
    """A token here and none there is a cluster that does not form; KubeRay sets it in all where it is asked to."""
    documents = rendered(folder)
    [cluster] = named(documents, "RayCluster").values()
    assert cluster["spec"]["authOptions"] == {"mode": "token"}
    wanted = {**_ENVIRONMENT, "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL": "minor"}
    for name, _, container in containers(documents):
        if name in NOT_OF_RAY:
            continue
        assert wanted.items() <= environment(container).items()
        assert not {"RAY_AUTH_MODE", "RAY_AUTH_TOKEN"} & environment(container).keys()
        assert "/dev/shm" in [mount["mountPath"] for mount in container["volumeMounts"]]


@FOLDERS
def test_every_container_is_bounded_and_unprivileged(folder: Path) -> None:
    for name, template, container in containers(rendered(folder)):
        assert "memory" in container["resources"]["limits"], name
        assert container["resources"]["requests"].keys() >= {"cpu", "memory"}, name
        assert template["spec"]["securityContext"]["runAsNonRoot"], name
        assert container["securityContext"]["allowPrivilegeEscalation"] is False, name


def test_variables_for_ray_are_spelt_as_ray_reads_them() -> None:
    import ray

    source = Path(ray.__file__).parent
    utils = (source / "_private" / "utils.py").read_text(encoding="utf-8")
    supervisor = (source / "dashboard" / "modules" / "job" / "job_supervisor.py").read_text(encoding="utf-8")
    assert '"RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL"' in utils
    assert '"RAY_JOB_STOP_WAIT_TIME_S"' in supervisor
    [head] = [container for name, _, container in containers(rendered(BASE)) if name == "head"]
    assert float(environment(head)["RAY_JOB_STOP_WAIT_TIME_S"]) > 0


@FOLDERS
def test_the_sweep_loads_where_it_runs_and_finds_its_services(folder: Path, tmp_path: Path) -> None:
    documents = rendered(folder)
    text = named(documents, "ConfigMap")["chime-sweep"]["data"]["sweep.yaml"]
    [head] = [container for name, _, container in containers(documents) if name == "head"]
    assert set(REFERENCE.findall(text)) <= environment(head).keys()
    sweep = sweep_of(documents, tmp_path)
    assert sweep.warnings() == []
    cluster = sweep.cluster
    assert (cluster.execution, cluster.ray.remote) == ("ray", True)
    assert cluster.redis.url is not None
    assert cluster.qdrant.url is not None
    ports = {name: s["spec"]["ports"][0]["port"] for name, s in named(documents, "Service").items()}
    assert cluster.redis.url.reveal() == f"redis://:canary@chime-redis:{ports['chime-redis']}/0"
    assert cluster.qdrant.url.reveal() == f"http://chime-qdrant:{ports['chime-qdrant']}"
    assert cluster.qdrant.api_key is not None
    mounts = [mount["mountPath"] for mount in head["volumeMounts"] if mount["name"] == "data"]
    assert all(path.startswith(f"{mounts[0]}/") for path in (cluster.runs_dir, cluster.state_dir or ""))


@FOLDERS
def test_there_are_gpus_for_every_replica_that_the_sweep_serves(folder: Path, tmp_path: Path) -> None:
    documents = rendered(folder)
    sweep = sweep_of(documents, tmp_path)
    [cluster] = named(documents, "RayCluster").values()
    there = 0
    for group in cluster["spec"]["workerGroupSpecs"]:
        [container] = group["template"]["spec"]["containers"]
        there += group["replicas"] * int(container["resources"]["limits"].get("nvidia.com/gpu", 0))
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    served = [endpoint for endpoint in sweep.cluster.endpoints.values() if isinstance(endpoint, VllmEndpoint)]
    needed = sum(need_of(e).per_node["GPU"] * e.nodes * e.replicas for e in served)
    assert (needed, bool(needed)) == (there, folder == BASE)


@FOLDERS
def test_the_job_runs_a_file_that_is_mounted_on_a_cluster_that_is_there(folder: Path) -> None:
    documents = rendered(folder)
    [job] = named(documents, "RayJob").values()
    assert job["spec"]["clusterSelector"]["ray.io/cluster"] in named(documents, "RayCluster")
    [head] = [container for name, _, container in containers(documents) if name == "head"]
    [folder_of_sweep] = [mount["mountPath"] for mount in head["volumeMounts"] if mount["name"] == "sweep"]
    assert job["spec"]["entrypoint"].split()[-1] == f"{folder_of_sweep}/sweep.yaml"


def test_a_resume_goes_on_where_the_sweep_wrote(tmp_path: Path) -> None:
    resume = YAML(typ="safe").load((ROOT / "k8s" / "resume.yaml").read_text(encoding="utf-8"))
    documents = rendered(BASE)
    assert resume["spec"]["clusterSelector"]["ray.io/cluster"] in named(documents, "RayCluster")
    assert (
        resume["spec"]["entrypoint"]
        == f"chime-dist resume {sweep_of(documents, tmp_path).cluster.runs_dir}/latest"
    )
