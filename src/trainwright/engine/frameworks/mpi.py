"""MPI: a launcher runs mpirun, which starts its processes in the workers by `kubectl exec`.

Names, paths and scripts are upstream's: horovodrun recognizes a job by the path of kubexec.sh.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

from trainwright.api.job import Job
from trainwright.api.kinds.mpi import KUBECTL_DELIVERY, MPIFields
from trainwright.engine.addressing import Addresses
from trainwright.engine.children.labels import role_selector
from trainwright.engine.children.ranks import Rank
from trainwright.engine.framework import (
    CONFIG_MAP,
    ROLE,
    ROLE_BINDING,
    SERVICE_ACCOUNT,
    ExtraObject,
    ExtraResource,
    Framework,
    PodShape,
    RoleState,
    env_list,
)
from trainwright.engine.settings import KubectlDelivery, Settings
from trainwright.engine.texts import Text
from trainwright.objects import Object
from trainwright.objects.kinds.pods import Pod

LAUNCHER = Rank("Launcher", 0)

_CONFIG = "/etc/mpi"
_KUBECTL = "/opt/kube"
_KUBEXEC = f"{_CONFIG}/kubexec.sh"
_HOSTFILE = f"{_CONFIG}/hostfile"
_CONFIG_VOLUME = "mpi-job-config"
_KUBECTL_VOLUME = "mpi-job-kubectl"
_CONFIG_MOUNT = {"name": _CONFIG_VOLUME, "mountPath": _CONFIG}
_KUBECTL_MOUNT = {"name": _KUBECTL_VOLUME, "mountPath": _KUBECTL}
_DELIVERY_RESOURCES = {"cpu": "100m", "ephemeral-storage": "5Gi", "memory": "512Mi"}

_MAX_DIRECT_WORKERS = 64
"""With more workers Open MPI lets workers start others, which have no kubectl."""

_WAIT_SECONDS = 600
"""How long the launcher waits for its workers. An elastic program then starts with those that are ready."""

_READY = r"""{range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}"""

_DELIVER = r"""cp "$(command -v kubectl)" {target}/kubectl || exit 1
workers=$(sed -n 's|^\([^ ]*-worker-[0-9]*\) .*|\1|p' {hostfile})
not_ready() {{
  pods=$({target}/kubectl get pods -n "$NAMESPACE" -l {selector} -o jsonpath='{ready}') || pods=
  echo "$workers" | grep -vxF -e "$(echo "$pods" | sed -n 's| True$||p')"
}}
waiting=$workers
end=$(($(date +%s) + {seconds}))
while [ -n "$waiting" ]; do
  first=$(echo "$waiting" | head -n {at_once})
  pods=$(echo "$first" | sed 's|^|pod/|')
  if problem=$({target}/kubectl wait --for=condition=Ready --timeout=10s -n "$NAMESPACE" $pods 2>&1 >/dev/null); then
    [ "$first" != "$waiting" ] || exit 0
    waiting=$(not_ready)
  else
    echo "waiting for workers: $problem"
    sleep 1
  fi
  if [ -n "$waiting" ] && [ "$(date +%s)" -ge $end ]; then
    echo "starting after {seconds} seconds although not all workers are ready: $(echo $waiting)"
    exit 0
  fi
done
"""
"""Waits for some of the workers that are not ready; then one `get` finds the others."""


class MPI(Framework):
    extra_resources: tuple[ExtraResource, ...] = (CONFIG_MAP, SERVICE_ACCOUNT, ROLE, ROLE_BINDING)
    records_exit_code_zero = False  # only the launcher ends by itself, and the job's own event says that it succeeded

    def extra_objects(self, job: Job, states: Mapping[str, RoleState]) -> Iterable[ExtraObject]:
        launcher, account = _launcher_name(job), _service_account(job)
        binding = {
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": launcher},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": job.namespace}],
        }
        extra = partial(ExtraObject, job_field=f"spec.{job.kind.replicas_field}[Launcher]", labels={"app": job.name})
        yield extra(of=CONFIG_MAP, name=f"{job.name}-config", content={"data": _config(job, states)})
        yield extra(of=SERVICE_ACCOUNT, name=account, content={}, shared=account != launcher)
        yield extra(of=ROLE, name=launcher, content={"rules": _rules(job)})
        yield extra(of=ROLE_BINDING, name=launcher, content=binding)

    def pod_shapes(self, job: Job, addresses: Addresses, settings: Settings) -> Callable[[Rank], PodShape]:
        worker = PodShape(
            main_command=["sleep"],
            main_args=["365d"],
            main_mounts=[_CONFIG_MOUNT],  # Open MPI looks for the agent in every rank
            volumes=[_config_volume(job, {"kubexec.sh": 0o555})],
        )
        launcher = PodShape(
            main_env=_launcher_env(job),
            main_mounts=[_KUBECTL_MOUNT, _CONFIG_MOUNT],
            volumes=[
                {"name": _KUBECTL_VOLUME, "emptyDir": {}},
                _config_volume(job, {"kubexec.sh": 0o555, "hostfile": 0o444, "discover_hosts.sh": 0o555}),
            ],
            init_containers=[_kubectl_delivery(job, settings.kubectl_delivery)],
            service_account=_launcher_name(job),
        )
        return lambda rank: launcher if rank == LAUNCHER else worker

    def uses_other_pods(self, rank: Rank) -> bool:
        """mpirun would start its processes in a pod of another owner that has the name of a worker."""
        return rank == LAUNCHER

    def counted_roles(self, job: Job, states: Mapping[str, RoleState]) -> Iterable[str]:
        """As upstream does: workers do not count after the launcher has finished."""
        launcher = states["Launcher"]
        return ["Launcher"] if launcher.completed or launcher.failed else states

    def failing_roles(self, job: Job, states: Mapping[str, RoleState]) -> Iterable[str]:
        """A worker that fails the job comes first: the launcher fails because of it."""
        failing = list(super().failing_roles(job, states))
        if "Worker" in failing and job.replicas["Worker"].restart_policy == "Never":
            failing.reverse()
        return failing

    def failure_text(self, job: Job, role: str, failed: Sequence[Pod]) -> Text:
        evicted = sum(pod.status.reason == "Evicted" for pod in failed)
        if role == "Worker" and evicted:
            return Text("Evicted", f"{evicted}/{_workers(job)} workers are evicted")
        return super().failure_text(job, role, failed)


def _launcher_name(job: Job) -> str:
    """The name of the launcher's pod, ServiceAccount, Role and RoleBinding."""
    return job.child_name("Launcher", 0)


def _service_account(job: Job) -> str:
    spec = job.replicas["Launcher"].template["spec"]
    return str(spec.get("serviceAccountName") or spec.get("serviceAccount") or _launcher_name(job))


def _workers(job: Job) -> int:
    return job.replicas["Worker"].count if "Worker" in job.replicas else 0


def _worker_names(job: Job) -> list[str]:
    return [job.child_name("Worker", index) for index in range(_workers(job))]


def _slots(job: Job) -> int:
    return job.own_fields(MPIFields).slots_per_worker or 1


def _launcher_has_gpus(job: Job) -> bool:
    """Such a launcher computes as the workers do."""
    containers: list[Object] = job.replicas["Launcher"].template["spec"]["containers"]
    limits = [name for container in containers for name in (container.get("resources") or {}).get("limits") or {}]
    return any("gpu" in name for name in limits)


def _config(job: Job, states: Mapping[str, RoleState]) -> dict[str, str]:
    """The files in /etc/mpi."""
    return {
        "hostfile": _hostfile(job),
        "kubexec.sh": _kubexec(job),
        "discover_hosts.sh": _discover_hosts(job, _present_workers(job, states)),
    }


def _hostfile(job: Job) -> str:
    launcher = [_launcher_name(job)] if _launcher_has_gpus(job) else []
    slots = _slots(job)
    return "".join(f"{host} slots={slots}\n" for host in [*launcher, *_worker_names(job)])


def _discover_hosts(job: Job, workers: Sequence[str]) -> str:
    """The script that horovodrun calls to find the present hosts."""
    slots = _slots(job)
    lines = ["#!/bin/sh"]
    if _launcher_has_gpus(job):
        lines += [f"echo {_launcher_name(job)}:{slots}", ""]  # the empty line is upstream's
    lines += [f"echo {worker}:{slots}" for worker in workers]
    return "\n".join(lines)


def _present_workers(job: Job, states: Mapping[str, RoleState]) -> list[str]:
    """The workers that run, in the order of their indexes; until the launcher runs, all for which it waits.

    So the list is right when the launcher starts, and is not written for every worker that does. A change would reach
    the launcher's files up to a minute later."""
    if not states["Launcher"].active:
        return _worker_names(job)
    return [job.child_name("Worker", index) for index in sorted(states["Worker"].active)] if "Worker" in states else []


def _kubexec(job: Job) -> str:
    container = job.own_fields(MPIFields).main_container
    option = f" --container {container}" if container else ""
    return f'#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n{_KUBECTL}/kubectl exec ${{POD_NAME}}{option} -- /bin/sh -c "$*"'


def _rules(job: Job) -> list[Object]:
    rules: list[Object] = [{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["pods"]}]
    if names := _worker_names(job):  # a rule without names would allow exec in all pods
        rules.append({"verbs": ["create"], "apiGroups": [""], "resources": ["pods/exec"], "resourceNames": names})
    return rules


def _launcher_env(job: Job) -> list[Object]:
    """Open MPI 4 reads OMPI_MCA_*, Open MPI 5 PRTE_MCA_*, Intel MPI I_MPI_*."""
    own = {variable.get("name") for variable in job.replicas["Launcher"].main_container.get("env") or []}
    env = {"OMPI_MCA_plm_rsh_agent": _KUBEXEC, "OMPI_MCA_orte_default_hostfile": _HOSTFILE}
    if not _launcher_has_gpus(job):  # some container runtimes show a container all GPUs unless these are empty
        env |= {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
    defaults = {
        "I_MPI_HYDRA_BOOTSTRAP": "rsh",
        "I_MPI_HYDRA_BOOTSTRAP_EXEC": _KUBEXEC,
        "PRTE_MCA_plm_ssh_agent": _KUBEXEC,
        "PRTE_MCA_prte_default_hostfile": _HOSTFILE,
    }
    if _workers(job) > _MAX_DIRECT_WORKERS:
        defaults |= {"OMPI_MCA_plm_rsh_no_tree_spawn": "1", "PRTE_MCA_plm_ssh_no_tree_spawn": "1"}
    return env_list({**env, **{name: value for name, value in defaults.items() if name not in own}})


def _config_volume(job: Job, modes: Mapping[str, int]) -> Object:
    items = [{"key": name, "path": name, "mode": mode} for name, mode in modes.items()]
    return {"name": _CONFIG_VOLUME, "configMap": {"name": f"{job.name}-config", "items": items}}


def _kubectl_delivery(job: Job, settings: KubectlDelivery) -> Object:
    """Puts kubectl into the launcher and waits until the workers are ready: mpirun fails if one is not."""
    script = _DELIVER.format(
        target=_KUBECTL,
        hostfile=_HOSTFILE,
        selector=role_selector(job, "Worker"),
        ready=_READY,
        at_once=settings.waits_at_once,
        seconds=_WAIT_SECONDS,
    )
    container: Object = {
        "name": KUBECTL_DELIVERY,
        "image": settings.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["/bin/sh", "-c", script],
        "env": env_list({"TARGET_DIR": _KUBECTL, "NAMESPACE": job.namespace}),
        "volumeMounts": [_KUBECTL_MOUNT, _CONFIG_MOUNT],
    }
    if settings.limited:
        container["resources"] = {"limits": _DELIVERY_RESOURCES, "requests": _DELIVERY_RESOURCES}
    return container
