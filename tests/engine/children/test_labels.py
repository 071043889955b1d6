"""Labels of all generations."""

from trainwright.engine.children.labels import modern_labels


def test_child_with_labels_of_the_second_generation_gets_the_current_ones() -> None:
    earlier = {"job-name": "digits", "replica-type": "master", "replica-index": "0", "job-role": "master", "mine": "1"}
    assert modern_labels(earlier, controller="pytorchjob-controller") == {
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "digits",
        "training.kubeflow.org/replica-type": "master",
        "training.kubeflow.org/replica-index": "0",
        "training.kubeflow.org/job-role": "master",
    }
    assert "training.kubeflow.org/job-role" not in modern_labels({"job-name": "digits"}, controller="c")
