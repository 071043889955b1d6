"""The runtime config of pods by Kubernetes' rules, without a cluster or a disk."""

import base64
from dataclasses import replace
from typing import Any

import pytest

from tests.support.cluster.runtime_configs import (
    OVERLAY,
    PLAIN,
    container,
    main,
    on_node,
    pod,
    run,
    targets,
    waiting_reasons,
    warnings,
)
from trainwright.cluster.node.devices.nvidia import Gpu
from trainwright.cluster.node.pods.config.container_image import is_host_image
from trainwright.cluster.node.pods.config.pod_context import PodContext
from trainwright.cluster.node.pods.config.runtime_config import WaitingReason
from trainwright.cluster.node.supervisor.sandbox.detection import Sandbox
from trainwright.cluster.node_settings import NodeSettings
from trainwright.objects import Object
from trainwright.objects.node_annotations import DIRECTORY

FAILED = 'MountVolume.SetUp failed for volume "v" :'
NOT_FOUND = "not found: create it in namespace default, or correct its name"


# Identity


def test_the_config_names_the_labels_and_the_controller_of_the_pod() -> None:
    subject = pod()
    owner = {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "digits", "uid": "j", "controller": True}
    subject["metadata"]["ownerReferences"] = [{"kind": "Secret", "name": "other", "uid": "s"}, owner]
    found = run(subject).pod_json
    assert found["labels"] == {"app": "digits"}
    assert found["owner"] == {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "digits", "uid": "j"}
    assert run(pod()).pod_json["owner"] is None


def test_the_size_of_log_files_can_be_chosen() -> None:
    assert run(pod()).pod_json["logLimit"] == 10 * 1024 * 1024
    assert run(pod(annotations={"log-max-size": "100Ki"})).pod_json["logLimit"] == 100 * 1024
    for text in ("much", "0", "-1Mi", "0.1"):
        (reason,) = waiting_reasons(pod(annotations={"log-max-size": text}))
        assert reason.message == f"annotation node.trainwright.dev/log-max-size: {text!r}: write a size such as 100Mi"


# Pods that policies exempt


@pytest.mark.parametrize("context", [OVERLAY, PLAIN])
def test_pods_of_another_system_are_refused(context: PodContext) -> None:
    (reason,) = waiting_reasons(pod(os={"name": "windows"}), context)
    assert (reason.reason, reason.container) == ("PodOSNotSupported", None)
    assert reason.message == "spec.os.name is windows, and this node runs Linux: correct it, or leave it out"
    run(pod(os={"name": "linux"}), context)


def test_pods_with_users_of_their_own_are_refused_if_the_cluster_runs_as_root() -> None:
    as_root, ordinary = on_node(OVERLAY, user=0), on_node(OVERLAY, sandbox=Sandbox("overlay", user_namespace=True))
    (reason,) = waiting_reasons(pod(hostUsers=False), as_root)
    assert reason.reason == "UserNamespacesNotSupported"
    run(pod(hostUsers=True), as_root)
    run(pod(hostUsers=False), ordinary)


# Images


@pytest.mark.parametrize(
    ("image", "known"),
    [
        ("trainwright/host", True),
        ("trainwright/host:1.2", True),
        ("trainwright/host@sha256:0", True),
        ("trainwright/hosts", False),
        ("pytorch", False),
        ("", False),
    ],
)
def test_which_image_is_the_host_itself(image: str, known: bool) -> None:
    assert is_host_image(image) is known
    assert ("UnknownImage" in warnings(pod(container(image=image)))) is not known


def test_an_unknown_image_runs_with_a_warning_that_names_it_and_the_python() -> None:
    subject = pod(container(image="pytorch/pytorch:2"))
    text = warnings(subject)["UnknownImage"]
    assert "pytorch/pytorch:2" in text
    assert "/opt/venv/bin/python" in text
    assert main(subject)["missingImage"] is True
    assert "missingImage" not in main(pod(container(image="trainwright/host")))


def test_without_a_command_the_pod_waits_and_names_the_fix() -> None:
    subject = pod(container(), {"name": "side", "image": "busybox", "args": ["x"]})
    (waiting,) = waiting_reasons(subject)
    assert (waiting.reason, waiting.container) == ("ImageHasNoCommand", "side")
    assert waiting.message == (
        "this node has no image busybox that could define the command: build, pull or load it with "
        "`trainwright image`, or add `command:` to container side"
    )


# Directories and volumes


def test_the_working_directory_is_the_containers_or_that_of_the_manifest() -> None:
    assert main(pod())["cwd"] == "/"
    assert main(pod(annotations={"directory": "/home/me/job"}))["cwd"] == "/home/me/job"
    assert main(pod(container(workingDir="/w"), annotations={"directory": "/home/me/job"}))["cwd"] == "/w"


def test_the_node_mounts_names_and_the_directory_of_the_manifest() -> None:
    found = targets(main(pod(annotations={"directory": "/home/me/job"})))
    assert found == {"/etc/hosts": ("/node/hosts/default", True), "/home/me/job": ("/home/me/job", False)}


def test_a_python_below_a_private_directory_stays_visible() -> None:
    python = {"python": "/tmp/venv/bin/python"}
    found = targets(main(pod(annotations=python)))
    assert found["/tmp/venv"] == ("/tmp/venv", True)
    in_home = on_node(OVERLAY, shared_home="/tmp")
    assert "/tmp/venv" not in targets(main(pod(annotations=python), in_home))


@pytest.mark.parametrize("image", ["trainwright/host", "trainwright/host:1", "pytorch/pytorch:2"])
def test_pods_share_the_home_of_the_user(image: str) -> None:
    context = on_node(OVERLAY, shared_home="/home/me")
    found = run(pod(container(image=image), annotations={"directory": "/srv/job"}), context).pod_json
    assert targets(found["containers"][0]) == {
        "/etc/hosts": ("/node/hosts/default", True),
        "/home/me": ("/home/me", False),
        "/srv/job": ("/srv/job", False),
    }


@pytest.mark.parametrize(
    ("path", "shared"), [("/home", False), ("/home/me", False), ("/home/me/x", True), ("/h", True)]
)
def test_a_volume_at_or_above_the_home_replaces_it(path: str, shared: bool) -> None:
    mounts = [{"name": "v", "mountPath": path}]
    subject = pod(container(volumeMounts=mounts), volumes=[{"name": "v", "emptyDir": {}}])
    found = targets(main(subject, on_node(OVERLAY, shared_home="/home/me")))
    assert (found.get("/home/me") == ("/home/me", False)) is shared
    assert path in found


def test_at_plain_nothing_is_mounted() -> None:
    assert targets(main(pod(), on_node(PLAIN, shared_home="/home/me"))) == {}


VOLUMES = [
    {"name": "empty", "emptyDir": {}},
    {"name": "memory", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
    {"name": "host", "hostPath": {"path": "/srv/data/", "type": "Directory"}},
    {"name": "claim", "persistentVolumeClaim": {"claimName": "pvc"}},
    {"name": "config", "configMap": {"name": "c", "items": [{"key": "k", "path": "sub/file", "mode": 0o600}]}},
    {"name": "secret", "secret": {"secretName": "s", "defaultMode": 0o400}},
]
SOURCES: dict[str, Any] = {
    "config_maps": {"c": {"data": {"k": "v", "other": "x"}}},
    "secrets": {"s": {"data": {"token": base64.b64encode(b"hush").decode()}}},
    "claims": {"pvc": {"metadata": {"uid": "1"}, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}},
    "volumes": {"pv": {"spec": {"hostPath": {"path": "/volumes/pv"}, "claimRef": {"uid": "1"}}}},
}


def test_volumes_of_every_supported_kind() -> None:
    mounts: list[Object] = [{"name": volume["name"], "mountPath": f"/{volume['name']}"} for volume in VOLUMES]
    mounts.append({"name": "empty", "mountPath": "/part", "subPath": "a/b", "readOnly": True})
    mounts.append({"name": "empty", "mountPath": "/mine", "subPathExpr": "$(POD)"})
    variables = [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]
    found = run(pod(container(volumeMounts=mounts, env=variables), volumes=VOLUMES), **SOURCES)
    shown = targets(found.pod_json["containers"][0])
    del shown["/etc/hosts"]
    assert shown == {
        "/empty": ("/node/pods/u/volumes/empty", False),
        "/memory": ("/node/pods/u/volumes/memory", False),
        "/host": ("/srv/data", False),
        "/claim": ("/volumes/pv", False),
        "/config": ("/node/pods/u/volumes/config", True),
        "/secret": ("/node/pods/u/volumes/secret", True),
        "/part": ("/node/pods/u/volumes/empty/a/b", True),
        "/mine": ("/node/pods/u/volumes/empty/p", False),
    }
    assert found.pod_json["memoryVolumes"] == [{"path": "/node/pods/u/volumes/memory", "size": 1 << 20, "group": None}]
    by_name = {volume.name: volume for volume in found.volumes}
    config, secret = by_name["config"].files, by_name["secret"].files
    assert config is not None
    assert {name: (file.content, file.mode) for name, file in config.items()} == {"sub/file": (b"v", 0o600)}
    assert secret is not None
    assert {name: (file.content, file.mode) for name, file in secret.items()} == {"token": (b"hush", 0o400)}


@pytest.mark.parametrize(
    ("volume", "reason", "message"),
    [
        ({"ephemeral": {"volumeClaimTemplate": {}}}, "UnsupportedVolume",
         ("spec.volumes[0].ephemeral: this node supports emptyDir, hostPath, persistentVolumeClaim, nfs, configMap, "
          "secret, downwardAPI, projected")),
        ({"image": {"reference": "models:1"}}, "UnsupportedVolume",
         ("spec.volumes[0].image: this node supports emptyDir, hostPath, persistentVolumeClaim, nfs, configMap, "
          "secret, downwardAPI, projected")),
        ({"projected": {"sources": [{"clusterTrustBundle": {"name": "b", "path": "b"}}]}}, "UnsupportedVolume",
         ('volume "v": projected.sources[0].clusterTrustBundle: this node supports configMap, secret, downwardAPI, '
         "serviceAccountToken")),
        ({"configMap": {"name": "absent"}}, "FailedMount", f'{FAILED} configmap "absent" {NOT_FOUND}'),
        ({"secret": {"secretName": "absent"}}, "FailedMount", f'{FAILED} secret "absent" {NOT_FOUND}'),
        ({"secret": {"secretName": "s", "items": [{"key": "x", "path": "x"}]}}, "FailedMount",
         f'{FAILED} secret "s" references non-existent secret key: x (it has token)'),
        ({"configMap": {"name": "c", "items": [{"key": "x", "path": "x"}]}}, "FailedMount",
         f'{FAILED} configmap "c" references non-existent config key: x (it has k, other)'),
        ({"persistentVolumeClaim": {"claimName": "absent"}}, "FailedMount",
         f'persistentvolumeclaim "absent" {NOT_FOUND}'),
        ({"persistentVolumeClaim": {"claimName": "open"}}, "FailedMount",
         'persistentvolumeclaim "open" is not bound yet: its events say what it waits for'),
        ({"persistentVolumeClaim": {"claimName": "nfs"}}, "UnsupportedVolume",
         ('volume "v": this node cannot mount s:/: only root can mount it. Have it mounted on this machine, and start '
          "the cluster with `trainwright up --map-nfs s:/=DIRECTORY`")),
        ({"persistentVolumeClaim": {"claimName": "csi"}}, "UnsupportedVolume",
         'volume "v": persistentvolume "csi" of claim "csi": spec.csi: this node mounts hostPath, local and nfs'),
        ({"persistentVolumeClaim": {"claimName": "stolen"}}, "FailedMount",
         'persistentvolume "csi" is bound to a different claim than "stolen": ns/c'),
    ],
)  # fmt: skip
def test_a_missing_or_unsupported_volume_is_named(volume: Object, reason: str, message: str) -> None:
    sources = {
        "config_maps": SOURCES["config_maps"],
        "secrets": SOURCES["secrets"],
        "claims": {
            "open": {"spec": {}, "status": {"phase": "Pending"}},
            "nfs": {"metadata": {"uid": "1"}, "spec": {"volumeName": "nfs"}, "status": {"phase": "Bound"}},
            "csi": {"metadata": {"uid": "2"}, "spec": {"volumeName": "csi"}, "status": {"phase": "Bound"}},
            "stolen": {"metadata": {"uid": "3"}, "spec": {"volumeName": "csi"}, "status": {"phase": "Bound"}},
        },
        "volumes": {
            "nfs": {"spec": {"capacity": {}, "nfs": {"server": "s", "path": "/"}, "claimRef": {"uid": "1"}}},
            "csi": {
                "spec": {
                    "capacity": {},
                    "csi": {"driver": "d"},
                    "claimRef": {"uid": "2", "namespace": "ns", "name": "c"},
                }
            },
        },
    }
    assert waiting_reasons(pod(volumes=[{"name": "v", **volume}]), **sources) == (
        WaitingReason(reason=reason, message=message),
    )


@pytest.mark.parametrize(
    ("volume", "is_of_machine"),
    [
        ({"persistentVolumeClaim": {"claimName": "pvc"}}, False),
        ({"hostPath": {"path": "/volumes/pv"}}, True),  # that of another namespace's claim
    ],
)
def test_a_provisioned_volume_is_reached_by_its_claim_alone(volume: Object, is_of_machine: bool) -> None:
    mounts = [{"name": "v", "mountPath": "/v"}]
    subject = pod(container(volumeMounts=mounts), volumes=[{"name": "v", **volume}])
    found = run(subject, on_node(OVERLAY, provisioned="/volumes"), **SOURCES)
    (mount,) = [mount for mount in found.pod_json["containers"][0]["mounts"] if mount["target"] == "/v"]
    assert mount["hostPath"] == is_of_machine


def test_everything_that_is_shared_with_the_machine_is_checked_as_a_host_path() -> None:
    settings = NodeSettings(python="/tmp/venv/bin/python")
    context = replace(on_node(OVERLAY, shared_home="/home/me", settings=settings), has_resolver=True)
    subject = pod()
    subject["metadata"]["annotations"] = {DIRECTORY: "/srv/project"}
    found = run(subject, context).pod_json["containers"][0]["mounts"]
    assert {mount["source"] for mount in found if mount.get("hostPath")} == {"/home/me", "/tmp/venv", "/srv/project"}


def test_a_pod_with_a_private_home_has_its_python_of_the_home_alone() -> None:
    python = "/home/me/project/.venv/bin/python"
    prefixes = ("/home/me/project/.venv", "/home/me/.pyenv/versions/3.11", "/usr")
    context = on_node(OVERLAY, shared_home="/home/me", settings=NodeSettings(python=python))
    config = run(pod(), replace(context, private_homes=("/home",), installations={python: prefixes})).pod_json
    assert config["privateHomes"] == ["/home", "/home/me"]
    shared = [mount for mount in config["containers"][0]["mounts"] if mount.get("hostPath")]
    assert [(mount["source"], mount["readOnly"]) for mount in shared] == [(prefixes[0], True), (prefixes[1], True)]


def test_an_optional_config_map_may_be_absent() -> None:
    (volume,) = run(pod(volumes=[{"name": "v", "configMap": {"name": "absent", "optional": True}}])).volumes
    assert volume.files == {}


def test_a_mount_path_counts_from_the_root() -> None:
    mounts = [{"name": "v", "mountPath": "data/"}]
    found = main(pod(container(volumeMounts=mounts), volumes=[{"name": "v", "emptyDir": {}}]))
    assert "/data" in targets(found)


def test_a_mount_at_the_root_is_refused() -> None:
    mounts = [{"name": "v", "mountPath": "/"}]
    (waiting,) = waiting_reasons(pod(container(volumeMounts=mounts), volumes=[{"name": "v", "emptyDir": {}}]))
    assert "mountPath /" in waiting.message


def test_a_path_of_the_host_is_absolute() -> None:
    (waiting,) = waiting_reasons(pod(volumes=[{"name": "v", "hostPath": {"path": "models"}}]))
    assert waiting.reason == "UnsupportedVolume"
    assert waiting.message == "volume \"v\": hostPath.path: 'models': write an absolute path"


def test_a_sub_path_stays_in_its_volume() -> None:
    mounts = [{"name": "v", "mountPath": "/v", "subPath": "../.."}]
    (waiting,) = waiting_reasons(pod(container(volumeMounts=mounts), volumes=[{"name": "v", "emptyDir": {}}]))
    assert "leads out of the volume" in waiting.message


# The sandbox `plain`


def test_at_plain_values_have_addresses_and_host_paths() -> None:
    subject = pod(
        container(
            command=["python", "train.py", "--out=/mnt/model/run", "/mnt/models", "$(OUT)"],
            workingDir="/mnt/model",
            env=[
                {"name": "MASTER_ADDR", "value": "job-master-0"},
                {"name": "OUT", "value": "/mnt/model"},
                {"name": "BOTH", "value": "$(MASTER_ADDR):$(OUT)"},
            ],
            volumeMounts=[{"name": "v", "mountPath": "/mnt/model/"}],
        ),
        volumes=[{"name": "v", "emptyDir": {}}],
    )
    found = main(subject, PLAIN)
    real = "/node/pods/u/volumes/v"
    assert found["argv"] == ["python", "train.py", f"--out={real}/run", "/mnt/models", real]
    assert found["cwd"] == real
    assert found["env"]["MASTER_ADDR"] == "127.64.0.1"
    assert found["env"]["BOTH"] == f"127.64.0.1:{real}"
    assert "MountPathNotHonoured" not in warnings(subject, PLAIN)


def test_at_plain_the_pod_knows_its_own_name() -> None:
    """Not its address: the name of a pod is one of those that values refer to."""
    env = [
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "ADDRESS", "value": "$(POD_NAME)"},
    ]
    made = pod(container(env=env))
    values = main(made, replace(PLAIN, names={made["metadata"]["name"]: "127.64.0.9"}))["env"]
    assert (values["POD_NAME"], values["ADDRESS"]) == (made["metadata"]["name"], "127.64.0.9")


def test_at_plain_a_mount_path_that_no_value_names_is_a_warning() -> None:
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "same", "hostPath": {"path": "/srv/x"}}]
    mounts = [{"name": "v", "mountPath": "/mnt/model"}, {"name": "same", "mountPath": "/srv/x"}]
    subject = pod(container(volumeMounts=mounts), volumes=volumes)
    text = warnings(subject, PLAIN)["MountPathNotHonoured"]
    assert "/mnt/model" in text
    assert "/node/pods/u/volumes/v" in text
    assert "/srv/x" not in text
    assert "MountPathNotHonoured" not in warnings(subject, OVERLAY)


def test_at_plain_a_missing_token_is_a_warning_for_pods_with_a_service_account_of_their_own() -> None:
    mounts = [{"name": "t", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]
    volumes = [{"name": "t", "projected": {"sources": []}}]
    subject = pod(container(volumeMounts=mounts), volumes=volumes, serviceAccountName="default")
    assert "MountPathNotHonoured" not in warnings(subject, PLAIN)
    subject["spec"]["serviceAccountName"] = "trainer"
    assert "/var/run/secrets/kubernetes.io/serviceaccount" in warnings(subject, PLAIN)["MountPathNotHonoured"]


def test_sidecars_are_marked() -> None:
    found = run(pod(initContainers=[{**container(), "name": "side", "restartPolicy": "Always"}]))
    assert [one.get("sidecar") for one in found.pod_json["initContainers"]] == [True]
    assert "sidecar" not in found.pod_json["containers"][0]


# The rest


@pytest.mark.parametrize("annotations", [{"log-max-size": "much"}, {"python": "venv/bin/python"}, {"directory": "/"}])
def test_an_invalid_annotation_is_quoted(annotations: dict[str, str]) -> None:
    (waiting,) = waiting_reasons(pod(annotations=annotations))
    ((name, value),) = annotations.items()
    assert waiting.reason == "InvalidAnnotation"
    assert f"node.trainwright.dev/{name}: {value!r}" in waiting.message


def test_grace_period_policy_and_name_are_in_the_config() -> None:
    subject = pod(terminationGracePeriodSeconds=0, restartPolicy="OnFailure", hostname="h" * 63 + "x")
    found = run(subject).pod_json
    assert (found["grace"], found["restartPolicy"], found["hostname"]) == (0, "OnFailure", "h" * 63)
    assert run(pod()).pod_json["grace"] == 30


H200 = Gpu(uuid="GPU-1", name="NVIDIA H200", memory=141 << 30, nodes=("/dev/nvidia1", "/dev/nvidiactl"))


def test_a_container_sees_its_own_gpus_alone() -> None:
    context = replace(OVERLAY, gpus={"main": (H200,), "other": ()}, shared_memory="/dev/shm/ours/ns")
    config = run(pod(container(), container(name="other")), context)
    main, other = config.pod_json["containers"]
    assert main["env"]["CUDA_VISIBLE_DEVICES"] == main["env"]["NVIDIA_VISIBLE_DEVICES"] == "GPU-1"
    assert main["env"]["NCCL_HOSTID"] == "boot"
    assert main["gpus"] == ["GPU-1"]
    assert main["devices"] == ["/dev/nvidia1", "/dev/nvidiactl"]
    assert {"source": "/dev/shm/ours/ns", "target": "/dev/shm", "readOnly": False} in main["mounts"]
    assert other["env"]["CUDA_VISIBLE_DEVICES"] == ""
    assert (other["gpus"], other["devices"]) == ([], [])
    assert "/dev/shm" not in [mount["target"] for mount in other["mounts"]]


def test_a_machine_without_gpus_sets_no_variables_about_them() -> None:
    assert "CUDA_VISIBLE_DEVICES" not in run(pod()).pod_json["containers"][0]["env"]
