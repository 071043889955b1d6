"""Flags and configuration files of the components of a real one-node cluster."""

import json
from dataclasses import dataclass
from pathlib import Path

from trainwright.objects import Object

NODE_NAME = "node0"
NODE_ADDRESS = "10.250.0.1"
SERVER = f"https://{NODE_ADDRESS}:6443"
SERVICES = "10.96.0.0/16"
PODS = "10.244.0.0/24"
DNS_ADDRESS = "10.96.0.10"
DNS_PORT, DNS_READY_PORT = 10053, 10055
PAUSE_IMAGE = "local.test/pause:1"
CNI_PLUGINS = Path("/usr/lib/cni")
USERS = {
    "admin": ("kubernetes-admin", "system:masters"),
    "controller-manager": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "kubelet": (f"system:node:{NODE_NAME}", "system:nodes"),
    "kube-proxy": ("system:kube-proxy", ""),
}
"""Of each client: its name and group."""


@dataclass(frozen=True)
class Layout:
    """Where the cluster keeps its files."""

    directory: Path

    @property
    def data(self) -> Path:
        return self.directory / "data"

    @property
    def pki(self) -> Path:
        return self.directory / "pki"

    @property
    def containerd_socket(self) -> Path:
        return self.directory / "containerd.sock"

    def kubeconfig(self, user: str) -> Path:
        return self.directory / f"{user}.kubeconfig"

    def write(self, name: str, content: str | Object) -> Path:
        """A file of the directory; objects as JSON, which is YAML too."""
        path = self.directory / name
        path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
        return path


def apiserver_flags(layout: Layout) -> list[str]:
    pki = layout.pki
    return [
        "--etcd-servers=http://127.0.0.1:2379",
        "--secure-port=6443",
        "--bind-address=0.0.0.0",
        f"--advertise-address={NODE_ADDRESS}",
        f"--cert-dir={pki}",
        f"--token-auth-file={pki / 'tokens.csv'}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki / 'sa.pub'}",
        f"--service-account-signing-key-file={pki / 'sa.key'}",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",
    ]


def controller_manager_flags(layout: Layout) -> list[str]:
    return [
        *_clients(layout, "controller-manager"),
        f"--service-account-private-key-file={layout.pki / 'sa.key'}",
        f"--root-ca-file={layout.pki / 'apiserver.crt'}",
        "--use-service-account-credentials=true",
        f"--cluster-cidr={PODS}",
        "--allocate-node-cidrs=true",
        "--node-cidr-mask-size=24",
        f"--service-cluster-ip-range={SERVICES}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--flex-volume-plugin-dir={layout.data / 'flex'}",
        "--pvclaimbinder-sync-period=1s",
    ]


def scheduler_flags(layout: Layout) -> list[str]:
    return [*_clients(layout, "scheduler"), "--leader-elect=false", "--bind-address=127.0.0.1"]


def _clients(layout: Layout, user: str) -> list[str]:
    path = layout.kubeconfig(user)
    return [f"--kubeconfig={path}", f"--authentication-kubeconfig={path}", f"--authorization-kubeconfig={path}"]


def containerd_config(layout: Layout) -> Path:
    cni = layout.directory / "cni"
    cni.mkdir()
    bridge: Object = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(layout.data / "addresses"),
            "ranges": [[{"subnet": PODS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    portmap: Object = {"type": "portmap", "capabilities": {"portMappings": True}}
    network: Object = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, portmap]}
    layout.write("cni/10-pods.conflist", network)
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return layout.write(
        "containerd.toml",
        f"""version = 2
root = "{layout.data}/containerd"
state = "{layout.data}/containerd-state"
[grpc]
  address = "{layout.containerd_socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{layout.data}/opt"
[{cri}]
  netns_mounts_under_state_dir = true
  sandbox_image = "{PAUSE_IMAGE}"
  restrict_oom_score_adj = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  stream_server_address = "127.0.0.1"
[{cri}.cni]
  bin_dir = "{CNI_PLUGINS}"
  conf_dir = "{cni}"
[{cri}.containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
  SystemdCgroup = false
""",
    )


def kubelet_flags(layout: Layout, cgroup: str) -> list[str]:
    config: Object = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{layout.containerd_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(layout.write("resolv.conf", f"nameserver {DNS_ADDRESS}\n")),
        "podLogsDir": str(layout.data / "pod-logs"),
        "volumePluginDir": str(layout.data / "volume-plugins"),
        # Nobody else is in this network.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "address": "0.0.0.0",  # noqa: S104 - in a network namespace of its own
        "healthzBindAddress": "127.0.0.1",
        "oomScoreAdj": 0,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "maxPods": 110,
        "nodeStatusUpdateFrequency": "10s",
    }
    return [
        f"--config={layout.write('kubelet.yaml', config)}",
        f"--kubeconfig={layout.kubeconfig('kubelet')}",
        f"--node-ip={NODE_ADDRESS}",
        f"--hostname-override={NODE_NAME}",
        f"--root-dir={layout.data / 'kubelet'}",
        f"--cert-dir={layout.data / 'kubelet' / 'pki'}",
    ]


def kube_proxy_flags(layout: Layout) -> list[str]:
    config: Object = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(layout.kubeconfig("kube-proxy"))},
        "clusterCIDR": PODS,
        "hostnameOverride": NODE_NAME,
        "bindAddress": "0.0.0.0",  # noqa: S104 - in a network namespace of its own
        "conntrack": {"maxPerCore": 0, "min": 0},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
    }
    return [f"--config={layout.write('kube-proxy.yaml', config)}"]


def corefile(layout: Layout) -> Path:
    return layout.write(
        "Corefile",
        f""".:{DNS_PORT} {{
  bind {NODE_ADDRESS}
  errors
  ready {NODE_ADDRESS}:{DNS_READY_PORT}
  kubernetes cluster.local in-addr.arpa ip6.arpa {{
    kubeconfig {layout.kubeconfig("admin")} real
    pods insecure
    ttl 5
  }}
}}
""",
    )


def dns_objects() -> tuple[Object, Object]:
    """The Service and the EndpointSlice by which pods reach the DNS server, which is not a pod."""
    labels = {"k8s-app": "kube-dns"}
    ports = [
        {"name": name, "protocol": protocol, "port": 53, "targetPort": DNS_PORT}
        for name, protocol in (("dns", "UDP"), ("dns-tcp", "TCP"))
    ]
    service: Object = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system", "labels": labels},
        "spec": {"clusterIP": DNS_ADDRESS, "ports": ports},
    }
    endpoints: Object = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns-host",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [NODE_ADDRESS], "conditions": {"ready": True}}],
        "ports": [{"name": port["name"], "protocol": port["protocol"], "port": DNS_PORT} for port in ports],
    }
    return service, endpoints
