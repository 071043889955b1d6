"""Gang schedulers and their PodGroups. The engine creates the groups, the embedded cluster's scheduler honours them."""

from dataclasses import dataclass

from trainwright.objects.resources import Resource

VOLCANO_GROUP_ANNOTATION = "scheduling.k8s.io/group-name"
GROUP_LABEL = "scheduling.x-k8s.io/pod-group"


@dataclass(frozen=True, slots=True)
class GangScheduler:
    """`volcano`, in any letter case, has its own PodGroups, which an annotation of pods names. All others use those of
    Kubernetes' scheduler-plugins, which a label names."""

    name: str

    @property
    def is_volcano(self) -> bool:
        return self.name.lower() == "volcano"

    @property
    def scheduler(self) -> str:
        """The schedulerName of its pods."""
        return "volcano" if self.is_volcano else self.name

    @property
    def resource(self) -> Resource:
        group, version = (
            ("scheduling.volcano.sh", "v1beta1") if self.is_volcano else ("scheduling.x-k8s.io", "v1alpha1")
        )
        return Resource(group, version, "podgroups", "PodGroup")
