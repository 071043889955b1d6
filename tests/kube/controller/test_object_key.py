from trainwright.kube.controller.object_key import ObjectKey

JOB = {"kind": "PyTorchJob", "metadata": {"namespace": "team", "name": "digits"}}
NODE = {"kind": "Node", "metadata": {"name": "local"}}


def test_key_of_a_namespaced_object() -> None:
    key = ObjectKey.of(JOB)
    assert key == ObjectKey("PyTorchJob", "team", "digits")
    assert (key.namespaced_name, str(key)) == ("team/digits", "PyTorchJob/team/digits")


def test_key_of_a_cluster_scoped_object() -> None:
    key = ObjectKey.of(NODE)
    assert key == ObjectKey("Node", "", "local")
    assert (key.namespaced_name, str(key)) == ("local", "Node/local")
