import pytest

from trainwright.cluster.images.reference import ImageReference, InvalidReferenceError

DIGEST = "sha256:" + "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "full", "familiar"),
    [
        ("python", "docker.io/library/python:latest", "python:latest"),
        ("python:3.11", "docker.io/library/python:3.11", "python:3.11"),
        ("docker.io/python", "docker.io/library/python:latest", "python:latest"),
        ("index.docker.io/a/b", "docker.io/a/b:latest", "a/b:latest"),
        ("kubeflow/mnist:1.0", "docker.io/kubeflow/mnist:1.0", "kubeflow/mnist:1.0"),
        ("localhost/app", "localhost/app:latest", "localhost/app:latest"),
        ("localhost:5000/a/b:v1", "localhost:5000/a/b:v1", "localhost:5000/a/b:v1"),
        ("127.0.0.1:5000/app", "127.0.0.1:5000/app:latest", "127.0.0.1:5000/app:latest"),
        ("[::1]:5000/app", "[::1]:5000/app:latest", "[::1]:5000/app:latest"),
        ("Registry/app", "Registry/app:latest", "Registry/app:latest"),
        ("quay.io/org/app", "quay.io/org/app:latest", "quay.io/org/app:latest"),
        (f"python@{DIGEST}", f"docker.io/library/python@{DIGEST}", f"python@{DIGEST}"),
        (f"python:3@{DIGEST}", f"docker.io/library/python:3@{DIGEST}", f"python:3@{DIGEST}"),
        ("a__b/c-d.e_f", "docker.io/a__b/c-d.e_f:latest", "a__b/c-d.e_f:latest"),
        ("docker.io/library/library/x", "docker.io/library/library/x:latest", "library/library/x:latest"),
    ],
)
def test_name_is_completed_as_docker_does(text: str, full: str, familiar: str) -> None:
    reference = ImageReference.parse(text)

    assert str(reference) == full
    assert reference.familiar == familiar
    assert ImageReference.parse(full) == reference
    assert ImageReference.parse(familiar) == reference


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "invalid reference format"),
        ("Python", "invalid reference format: repository name (library/Python) must be lowercase"),
        ("a//b", "invalid reference format"),
        ("a b", "invalid reference format"),
        ("a:b:c", "invalid reference format"),
        ("app:", "invalid reference format"),
        ("app:" + "x" * 129, "invalid reference format"),
        ("app:ü", "invalid reference format"),
        ("app@sha256:12", "invalid reference format"),
        ("app@", "invalid reference format"),
        ("-bad.io/app", "invalid reference format"),
        ("../../etc/passwd", "invalid reference format"),
        ("app\n", "invalid reference format"),
        ("x" * 256, "repository name must not be more than 255 characters"),
        ("a" * 64, f"invalid repository name ({'a' * 64}), cannot specify 64-byte hexadecimal strings"),
    ],
)
def test_what_docker_refuses_is_refused_with_its_words(text: str, reason: str) -> None:
    with pytest.raises(InvalidReferenceError) as caught:
        ImageReference.parse(text)

    assert caught.value.reason == reason
