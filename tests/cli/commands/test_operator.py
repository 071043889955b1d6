"""`trainwright operator` as a process on a real cluster: its flags, its log, its end on a signal."""

import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path

import pytest

from tests.support.commands.trainwright import command_line, trainwright
from tests.support.kubernetes.controlplane import ControlPlane, free_ports
from tests.support.objects.shell_jobs import shell_job, write_manifest
from tests.support.waiting import wait_until
from trainwright.kube.client.sync_client import SyncClient
from trainwright.objects.resources import PODS

NO_PORTS = ("--metrics-bind-address=0", "--health-probe-bind-address=0", "--webhook-server-port=0")


def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    answer = trainwright("operator", "--kubeconfig", str(tmp_path / "none"), environment=os.environ)
    assert answer.code == 1
    assert str(tmp_path / "none") in answer.err
    assert "Traceback" not in answer.err


def test_an_unknown_scheme_is_named(tmp_path: Path) -> None:
    answer = trainwright("operator", "--enable-scheme", "zebrajob", environment=os.environ)
    assert answer.code == 1
    assert "zebrajob" in answer.err
    assert "PyTorchJob" in answer.err


@pytest.mark.apiserver
def test_it_reconciles_jobs_until_sigterm(control_plane: ControlPlane, real_namespace: str, tmp_path: Path) -> None:
    cluster = ["--kubeconfig", str(control_plane.kubeconfig)]
    words = command_line("operator", *cluster, "--namespace", real_namespace, "--install-crds", *NO_PORTS)
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        ready = next(line for line in process.stderr if "reconciling" in line)
        assert (
            f"reconciling PyTorchJob, TFJob, XGBoostJob, PaddleJob, JAXJob, MPIJob in namespace {real_namespace}"
            in ready
        )
        manifest = write_manifest(tmp_path, shell_job("watched", "true"))
        run = ("run", *cluster, "-n", real_namespace, manifest)
        assert trainwright(*run, "--no-follow", environment=os.environ).code == 0
        with SyncClient(control_plane.config) as client:
            wait_until(lambda: client.list(PODS, namespace=real_namespace).items)
        answer = trainwright(*run, "--timeout", "1s", environment=os.environ)
        assert answer.code == 124, answer.all
        assert answer.err.startswith(f"→ context {control_plane.config.context} at {control_plane.config.server} ")
        # There is no node: the pod is created and stays Pending.
        assert "watched: master-0 Pending" in answer.out
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert process.returncode == 0


@pytest.mark.apiserver
def test_the_arguments_of_a_deployment_start_probes_metrics_and_leader_election(
    control_plane: ControlPlane, real_namespace: str
) -> None:
    metrics, health = free_ports(2)
    words = command_line(
        "operator",
        *("--kubeconfig", str(control_plane.kubeconfig), "-namespace", real_namespace),
        *("-leader-elect=true", "--leader-election-namespace", real_namespace, "--zap-devel=false"),
        *(f"--metrics-bind-address=127.0.0.1:{metrics}", f"--health-probe-bind-address=127.0.0.1:{health}"),
        *("--webhook-server-port=0", "--zap-stacktrace-level=error"),
    )
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(json.loads(line))
            if "reconciling" in lines[-1]["msg"]:
                break
        messages = [line["msg"] for line in lines]
        assert "--zap-stacktrace-level has no effect" in messages
        with urllib.request.urlopen(f"http://127.0.0.1:{health}/readyz?verbose") as answer:
            assert b"[+]leader-election ok: leading" in answer.read()
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/metrics") as answer:
            assert b'leader_election_master_status{name="1ca428e5.training-operator.kubeflow.org"} 1.0' in answer.read()
        process.send_signal(signal.SIGTERM)
        process.stderr.read()
    assert process.returncode == 0


@pytest.mark.apiserver
def test_the_python_flag_is_refused_on_other_clusters(control_plane: ControlPlane, tmp_path: Path) -> None:
    words = ["--kubeconfig", str(control_plane.kubeconfig), "--python", "/bin/sh"]
    answer = trainwright("run", *words, write_manifest(tmp_path, shell_job("x", "true")), environment=os.environ)
    assert answer.code == 1
    assert "--python is for the embedded cluster" in answer.err
