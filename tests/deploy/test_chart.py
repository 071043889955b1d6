"""The chart as Helm renders it, without a cluster: values, flags, roles, pods."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.commands.helm import CHART, ROOT, Helm, Key
from trainwright.api.crd import render_crd
from trainwright.api.kinds import KINDS
from trainwright.cli.commands.operator_flags import command, options_from
from trainwright.objects import Object
from trainwright.operator import rbac
from trainwright.operator.options import OperatorOptions
from trainwright.operator.rbac import job_rules
from trainwright.operator.serving.webhook_handlers import webhook_handlers

SECTIONS = yaml.safe_load((ROOT / "tools" / "chart" / "values.yaml").read_text())
VALUES: list[dict[str, Any]] = [value for section in SECTIONS for value in section["values"]]
WITH_FLAG = [value for value in VALUES if "flag" in value]


def test_lint_finds_nothing(helm: Helm) -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", CHART)


@pytest.mark.parametrize("tool", ["generate.py", "manifests.py"])
def test_generated_files_are_up_to_date(tool: str) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "chart" / tool, "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# Values and flags


def test_every_flag_of_the_operator_has_a_value() -> None:
    flags = {parameter.opts[-1] for parameter in command.params}
    assert {value["flag"] for value in WITH_FLAG} == flags


def test_the_default_of_a_value_is_that_of_its_flag() -> None:
    defaults = parsed_flags([])
    for value in WITH_FLAG:
        if not value.get("by_hand"):
            (parameter,) = (one for one in command.params if value["flag"] in one.opts)
            assert parameter.name
            if value["default"] in UNSET:
                assert defaults[parameter.name] in UNSET, value["flag"]
            else:
                given = parsed_flags([f"{value['flag']}={value['default']}"])
                assert given == defaults, value["flag"]


def test_default_values_give_the_default_options(helm: Helm) -> None:
    options = parsed(args_of(helm.render()))
    assert options.webhooks is not None
    names = (options.webhooks.service, options.webhooks.secret, options.webhooks.configuration)
    assert names == ("trainwright", "trainwright-webhook-cert", "trainwright")
    assert options == parsed([f"--webhook-{flag}-name={name}" for flag, name in zip(NAMES, names, strict=True)])


UNSET: tuple[Any, ...] = ("", None, False, [], ())
NAMES = ("service", "secret", "configuration")
SAMPLES: dict[str, Any] = {
    "scope.namespace": ("team-a", "namespace", "team-a"),
    "jobs.enableSchemes": (["pytorchjob", "TFJob"], "enable_scheme", ("pytorchjob", "TFJob")),
    "jobs.wholeGroupRestart": (True, "whole_group_restart", True),
    "jobs.deadNodeSeconds": (300, "dead_node_seconds", 300),
    "jobs.readFailedPodLogs": (True, "read_failed_pod_logs", True),
    "jobs.clusterDomain": ("cluster.local", "cluster_domain", "cluster.local"),
    "gangScheduler.name": ("volcano", "gang_scheduler_name", "volcano"),
    "pytorch.initContainer.image": ("", "pytorch_init_container_image", ""),
    "pytorch.initContainer.maxTries": (7, "pytorch_init_container_max_tries", 7),
    "pytorch.initContainer.waitForPort": (True, "pytorch_init_container_wait_for_port", True),
    "pytorch.initContainer.template": (
        "- name: init\n  image: busybox\n",
        "pytorch_init_container_template_file",
        Path("/etc/config/initContainer.yaml"),
    ),
    "operator.installCrds": (True, "install_crds", True),
    "operator.controllerThreads": (1_000_000, "controller_threads", 1_000_000),
    "operator.parallelWrites": (1, "parallel_writes", 1),
    "operator.kubeApiQps": (12.5, "kube_api_qps", 12.5),
    "operator.kubeApiBurst": (60, "kube_api_burst", 60),
    "operator.kubeconfig": ("/etc/kubeconfig", "kubeconfig", Path("/etc/kubeconfig")),
    "operator.context": ("other", "context", "other"),
    "leaderElection.enabled": (True, "leader_elect", True),
    "leaderElection.id": ("lock", "leader_election_id", "lock"),
    "leaderElection.namespace": ("locks", "leader_election_namespace", "locks"),
    "leaderElection.leaseDuration": ("60s", "leader_election_lease_duration", 60.0),
    "leaderElection.renewDeadline": ("40s", "leader_election_renew_deadline", 40.0),
    "leaderElection.retryPeriod": ("5s", "leader_election_retry_period", 5.0),
    "webhook.port": (10443, "webhook_server_port", 10443),
    "webhook.serviceName": ("hooks", "webhook_service_name", "hooks"),
    "webhook.secretName": ("keys", "webhook_secret_name", "keys"),
    "webhook.configurationName": ("validator", "webhook_configuration_name", "validator"),
    "metrics.port": (0, "metrics_bind_address", "0"),
    "healthProbe.port": (18081, "health_probe_bind_address", ":18081"),
    "log.level": ("debug", "zap_log_level", 10),
    "log.encoder": ("json", "zap_encoder", "json"),
    "log.timeEncoding": ("epoch", "zap_time_encoding", "epoch"),
    "log.development": (False, "zap_devel", False),
    "log.stacktraceLevel": ("error", "zap_stacktrace_level", "error"),
    "log.verbose": (True, "verbose", True),
    "mpi.kubectlDeliveryImage": ("kubectl:1", "mpi_kubectl_delivery_image", "kubectl:1"),
}
"""By value: one that differs from the default, the parameter of the command, and what it becomes."""


def test_every_value_with_a_flag_sets_it(helm: Helm, tmp_path: Path) -> None:
    assert SAMPLES.keys() == {value["path"] for value in WITH_FLAG}
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps(nested({path: sample for path, (sample, _, _) in SAMPLES.items()})))

    flags = parsed_flags(args_of(helm.render("--values", values)))

    assert {name: flags[name] for _, name, _ in SAMPLES.values()} == {name: seen for _, name, seen in SAMPLES.values()}


def test_a_disabled_webhook_serves_no_port(helm: Helm) -> None:
    rendered = helm.render("--set", "webhook.enabled=false,metrics.port=0")
    assert parsed(args_of(rendered)).webhooks is None
    assert kinds(rendered).isdisjoint({"ValidatingWebhookConfiguration", "Service", "Secret", "Role"})


def test_extra_arguments_come_last(helm: Helm) -> None:
    assert args_of(helm.render("--set", "extraArgs={-v,--enable-scheme=tfjob}"))[-2:] == ["-v", "--enable-scheme=tfjob"]


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ("imgae.tag=1", "'imgae' not allowed"),
        ("image.tagg=1", "at '/image': additional properties 'tagg' not allowed"),
        ("pytorch.initContainer.maxtries=1", "at '/pytorch/initContainer': additional properties 'maxtries'"),
        ("replicas=two", "at '/replicas': got string, want integer"),
        ("jobs.enableSchemes={pytorchjbo}", "at '/jobs/enableSchemes/0': value must be one of 'PyTorchJob'"),
        ("webhook.failurePolicy=fail", "at '/webhook/failurePolicy': value must be one of 'Fail', 'Ignore'"),
        ("operator.controllerThreads=0", "at '/operator/controllerThreads': minimum"),
        ("image.digest=latest", "at '/image/digest'"),
        ("resources.limts.cpu=1", "at '/resources': additional properties 'limts' not allowed"),
        (
            "securityContext.readOnlyRoot=true",
            "at '/securityContext': additional properties 'readOnlyRoot' not allowed",
        ),
        ("tolerations[0].efect=NoSchedule", "at '/tolerations/0': additional properties 'efect' not allowed"),
        ("livenessProbe.periodSeconds=often", "at '/livenessProbe/periodSeconds': got string, want integer"),
        ("strategy.type=recreate", "at '/strategy/type'"),
        ("replicas=2", "Set leaderElection.enabled=true too."),
    ],
)
def test_a_wrong_value_is_refused_by_name(helm: Helm, setting: str, complaint: str) -> None:
    assert complaint in helm.refusal("template", "trainwright", CHART, "--set", setting)


def test_the_schema_allows_no_unknown_field_anywhere() -> None:
    def closed(node: Any) -> bool:
        if isinstance(node, list):
            return all(map(closed, node))
        if not isinstance(node, dict):
            return True
        fields = node.get("properties")
        is_closed = not isinstance(fields, dict) or node.get("additionalProperties") is False
        return is_closed and all(map(closed, node.values()))

    assert closed(json.loads((CHART / "values.schema.json").read_text()))


def test_the_chart_can_be_a_dependency(helm: Helm) -> None:
    assert helm.render("--set", "global.registry=example") == helm.render()


# Objects


def test_crds_are_those_of_the_package(helm: Helm) -> None:
    rendered = helm.render()
    for kind in KINDS.values():
        definition = render_crd(kind)
        seen = rendered["CustomResourceDefinition", "", definition["metadata"]["name"]]
        assert seen["spec"] == definition["spec"]
        assert seen["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "CustomResourceDefinition" not in kinds(helm.render("--set", "crds.enabled=false"))


def test_every_kind_has_a_webhook_that_the_operator_serves(helm: Helm) -> None:
    webhooks = helm.render()["ValidatingWebhookConfiguration", "", "trainwright"]["webhooks"]
    assert {one["rules"][0]["resources"][0] for one in webhooks} == {kind.plural for kind in KINDS.values()}
    assert {one["clientConfig"]["service"]["path"] for one in webhooks} <= webhook_handlers(KINDS).keys()


def test_with_all_features_the_roles_grant_the_rules_of_the_operator(helm: Helm) -> None:
    features = "leaderElection.enabled=true,gangScheduler.name=volcano,operator.installCrds=true"
    rendered = helm.render("--set", f"{features},jobs.readFailedPodLogs=true")
    rules = [*job_rules(KINDS.values()), *(rule for feature in rbac.FEATURES for rule in feature.rules)]

    for own_namespace, roles in ((False, ["ClusterRole"]), (True, ["Role"])):
        assert set(granted(rendered, roles)) == {
            (rule.resource.group, rule.resources, verb)
            for rule in rules
            if rule.own_namespace == own_namespace
            for verb in rule.verbs
        }


def test_an_operator_of_one_namespace_has_its_permissions_for_jobs_there_alone(helm: Helm) -> None:
    rendered = helm.render("--set", "scope.namespace=team-a", "--set", "namespace.name=operators")

    jobs = rendered["Role", "team-a", "trainwright-jobs"]
    assert {"pods", "pytorchjobs"} <= {one for rule in jobs["rules"] for one in rule["resources"]}
    assert rendered["RoleBinding", "team-a", "trainwright-jobs"]["subjects"][0]["namespace"] == "operators"
    cluster = rendered["ClusterRole", "", "trainwright-team-a"]
    assert [rule["resources"] for rule in cluster["rules"]] == [["nodes"], ["validatingwebhookconfigurations"]]
    webhooks = rendered["ValidatingWebhookConfiguration", "", "trainwright-team-a"]["webhooks"]
    selectors = [one["namespaceSelector"] for one in webhooks]
    assert selectors == [{"matchLabels": {"kubernetes.io/metadata.name": "team-a"}}] * len(KINDS)


def test_operators_of_two_namespaces_share_no_object(helm: Helm) -> None:
    both = [
        set(helm.render("--set", f"crds.enabled=false,scope.namespace={team},namespace.name={team}"))
        for team in ("team-a", "team-b")
    ]
    assert both[0].isdisjoint(both[1])


def test_an_operator_of_one_namespace_works_without_cluster_permissions(helm: Helm) -> None:
    off = "crds.enabled=false,webhook.enabled=false,rbac.clusterResources=false,aggregatedRoles.create=false"
    rendered = helm.render("--set", f"{off},scope.namespace=team-a,namespace.create=false")
    assert kinds(rendered) == {"Deployment", "Role", "RoleBinding", "Service", "ServiceAccount"}


@pytest.mark.parametrize(("election", "strategy"), [("false", "Recreate"), ("true", "RollingUpdate")])
def test_pods_overlap_only_with_leader_election(helm: Helm, election: str, strategy: str) -> None:
    rendered = helm.render("--set", f"leaderElection.enabled={election}")
    assert deployment(rendered)["spec"]["strategy"]["type"] == strategy


def test_what_users_of_charts_expect_reaches_the_pods(helm: Helm, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    given: dict[str, Any] = {
        "imagePullSecrets": [{"name": "registry"}],
        "nodeSelector": {"pool": "infra"},
        "tolerations": [{"key": "infra", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
        "priorityClassName": "system-cluster-critical",
        "runtimeClassName": "gvisor",
    }
    container: dict[str, Any] = {
        "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "512Mi"}},
        "envFrom": [{"secretRef": {"name": "proxy"}}],
    }
    others = {
        "podAnnotations": {"a": "b"},
        "podLabels": {"team": "ml"},
        "env": [{"name": "HTTPS_PROXY", "value": "http://proxy"}],
        "extraVolumes": [{"name": "more", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "more", "mountPath": "/more"}],
        "podDisruptionBudget": {"enabled": True, "minAvailable": "50%"},
        "metrics": {"serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}}},
        "serviceAccount": {"annotations": {"role": "x"}},
        "commonLabels": {"owner": "platform"},
        "hostNetwork": True,
    }
    values.write_text(json.dumps(given | container | others))

    rendered = helm.render("--values", values)

    template = deployment(rendered)["spec"]["template"]
    spec = template["spec"]
    assert given.items() <= spec.items()
    assert spec["dnsPolicy"] == "ClusterFirstWithHostNet"
    assert template["metadata"]["annotations"] == {"a": "b", "sidecar.istio.io/inject": "false"}
    assert template["metadata"]["labels"].items() >= {("team", "ml"), ("owner", "platform")}
    operator = spec["containers"][0]
    assert operator["envFrom"] == container["envFrom"]
    assert operator["resources"]["requests"] == {"cpu": "1", "memory": "128Mi"}
    assert operator["env"][-1]["name"] == "HTTPS_PROXY"
    assert (operator["volumeMounts"][0]["mountPath"], spec["volumes"][0]["name"]) == ("/more", "more")
    assert rendered["PodDisruptionBudget", "trainwright", "trainwright"]["spec"]["minAvailable"] == "50%"
    monitor = rendered["ServiceMonitor", "trainwright", "trainwright"]
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    service = rendered["Service", "trainwright", "trainwright"]
    assert monitor["spec"]["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert rendered["ServiceAccount", "trainwright", "trainwright"]["metadata"]["annotations"] == {"role": "x"}


def test_a_template_of_init_containers_is_mounted_from_a_config_map(helm: Helm, tmp_path: Path) -> None:
    template = "- name: init\n  image: {{.InitContainerImage}}\n"
    values = tmp_path / "values.yaml"
    values.write_text(json.dumps({"pytorch": {"initContainer": {"template": template}}}))

    rendered = helm.render("--values", values)

    data = rendered["ConfigMap", "trainwright", "trainwright"]["data"]
    assert data == {"initContainer.yaml": template}
    spec = deployment(rendered)["spec"]["template"]["spec"]
    assert spec["volumes"][0]["configMap"] == {"name": "trainwright"}
    assert spec["containers"][0]["volumeMounts"][0]["mountPath"] == "/etc/config"


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        *parents, name = path.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[name] = value
    return tree


def kinds(rendered: dict[Key, Object]) -> set[str]:
    return {kind for kind, _, _ in rendered}


def deployment(rendered: dict[Key, Object]) -> Object:
    (found,) = (one for (kind, _, _), one in rendered.items() if kind == "Deployment")
    return found


def args_of(rendered: dict[Key, Object]) -> list[str]:
    arguments: list[str] = deployment(rendered)["spec"]["template"]["spec"]["containers"][0]["args"]
    return arguments


def parsed_flags(arguments: list[str]) -> dict[str, Any]:
    return command.make_context("operator", list(arguments)).params


def parsed(arguments: list[str]) -> OperatorOptions:
    return options_from(parsed_flags(arguments))


def granted(rendered: dict[Key, Object], roles: list[str]) -> Iterator[tuple[str, str, str]]:
    """What the operator's roles grant; the aggregated roles are for users."""
    for (kind, _, name), one in rendered.items():
        if kind in roles and not name.endswith(("-admin", "-edit", "-view")):
            for rule in one["rules"]:
                yield from ((rule["apiGroups"][0], rule["resources"][0], verb) for verb in rule["verbs"])
