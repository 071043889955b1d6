"""The text that a pod can make of its manifest is bounded as the kernel bounds a program, before it is built."""

import base64
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.cluster.runtime_configs import OVERLAY, PLAIN, container, main, pod, run, waiting_reasons
from trainwright.cluster.node.pods.config.environment import MAX_PROGRAM_BYTES, MAX_STRING_BYTES, expand
from trainwright.cluster.node.referenced_objects import PodConfigError
from trainwright.objects import Object

LONG = "x" * 100_000


@contextmanager
def memory_below(limit: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit
    finally:
        tracemalloc.stop()


def doubling(count: int) -> list[Object]:
    entries = [{"name": "E_0", "value": "0123456789abcdef"}]
    return entries + [{"name": f"E_{i}", "value": f"$(E_{i - 1})$(E_{i - 1})"} for i in range(1, count)]


def only_message(subject: Object, **sources: Any) -> str:
    (waiting,) = waiting_reasons(subject, **sources)
    assert (waiting.reason, waiting.container) == ("CreateContainerConfigError", "main")
    return waiting.message


def test_variables_that_double_are_an_error_of_the_pod() -> None:
    with memory_below(4 * 1024 * 1024):
        message = only_message(pod(container(env=doubling(24))))
    assert message == (
        'container "main": env "E_13" has 131,072 bytes, and Linux allows 131,071: shorten it, or put the value into a '
        "file of a volume"
    )


def test_the_longest_variable_that_the_kernel_passes_is_allowed() -> None:
    longest = "é" * ((MAX_STRING_BYTES - len("V=")) // 2)
    assert main(pod(container(env=[{"name": "V", "value": longest}])))["env"]["V"] == longest
    assert 'env "V" has' in only_message(pod(container(env=[{"name": "V", "value": longest + "ee"}])))


@pytest.mark.parametrize(
    ("fields", "place"),
    [
        ({"args": ["$(V)" * 50_000]}, "command and args[2]"),
        ({"command": ["sh", "-c", "$(V)" * 50_000]}, "command and args[2]"),
        ({"livenessProbe": {"exec": {"command": ["$(V)" * 50_000]}}}, "livenessProbe.exec.command[0]"),
        ({"startupProbe": {"exec": {"command": ["x", "$(V)" * 50_000]}}}, "startupProbe.exec.command[1]"),
    ],
)
def test_a_text_with_many_references_is_not_built(fields: Object, place: str) -> None:
    with memory_below(16 * 1024 * 1024):
        message = only_message(pod(container(env=[{"name": "V", "value": LONG}], **fields)))
    assert message.startswith(f'container "main": {place} has 5,000,000,000 bytes')


@pytest.mark.parametrize("field", ["args", "livenessProbe"])
def test_many_words_with_references_are_not_built(field: str) -> None:
    words = ["$(V)"] * 1000
    fields = {"args": words} if field == "args" else {field: {"exec": {"command": words}}}
    with memory_below(16 * 1024 * 1024):
        message = only_message(pod(container(env=[{"name": "V", "value": LONG}], **fields)))
    assert f"arguments and environment together have more than {MAX_PROGRAM_BYTES:,} bytes" in message


def test_an_expanded_sub_path_is_no_longer_than_a_path() -> None:
    mount = {"name": "v", "mountPath": "/v", "subPathExpr": "$(V)" * 50}
    spec = container(env=[{"name": "V", "value": "x" * 100}], volumeMounts=[mount])
    message = only_message(pod(spec, volumes=[{"name": "v", "emptyDir": {}}]))
    assert message.startswith('container "main": volumeMounts v: subPathExpr has 5,000 bytes, and Linux allows 4,095')


def test_an_object_that_is_a_source_many_times_is_bounded() -> None:
    objects = {"c": {"data": {"key": LONG}}}
    sources = [{"prefix": f"P{i}_", "configMapRef": {"name": "c"}} for i in range(1000)]
    with memory_below(16 * 1024 * 1024):
        message = only_message(pod(container(envFrom=sources)), config_maps=objects)
    assert "arguments and environment together have more than" in message


def test_a_secret_with_many_references_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded = []
    actual = base64.b64decode

    def decode(text: str) -> bytes:
        decoded.append(text)
        return actual(text)

    monkeypatch.setattr(base64, "b64decode", decode)
    reference = {"secretKeyRef": {"name": "s", "key": "k"}}
    env = [{"name": f"V{i}", "valueFrom": reference} for i in range(100)]

    found = main(pod(container(env=env)), secrets={"s": {"data": {"k": "QQ==", "other": "QQ=="}}})

    assert (found["env"]["V99"], len(decoded)) == ("A", 2)


def test_containers_of_a_pod_share_a_bound() -> None:
    objects = {"c": {"data": {f"k{i}": LONG for i in range(20)}}}
    many = [container(name=f"c{i}", envFrom=[{"configMapRef": {"name": "c"}}]) for i in range(40)]
    (waiting,) = waiting_reasons(pod(*many), config_maps=objects)
    assert "the containers of this pod have more than 67,108,864 bytes together" in waiting.message


def test_files_from_the_api_are_bounded() -> None:
    objects = {"c": {"data": {"key": "x" * 1_000_000}}}
    volumes = [{"name": f"v{i}", "configMap": {"name": "c"}} for i in range(80)]
    with memory_below(32 * 1024 * 1024):
        (waiting,) = waiting_reasons(pod(volumes=volumes), config_maps=objects)
    assert waiting.reason == "FailedMount"
    assert 'volume "v67": the files of ConfigMaps, Secrets and fields' in waiting.message


def test_references_without_an_end_take_linear_time() -> None:
    assert expand("$(A)" + "$(" * 60_000, {"A": "b"}) == "b" + "$(" * 60_000
    assert expand("$(" * 60_000 + "$$", {}) == "$(" * 60_000 + "$"


def test_many_variables_take_linear_time() -> None:
    env = [{"name": f"V{i}", "value": "$(V0)"} for i in range(20_000)]
    assert len(run(pod(container(env=env))).pod_json["containers"][0]["env"]) > 20_000


def test_many_paths_and_variables_at_sandbox_plain_take_little_time() -> None:
    env = [{"name": f"V{i}", "value": "x"} for i in range(2000)]
    mounts = [{"name": "v", "mountPath": f"/m{i}"} for i in range(2000)]
    subject = pod(container(env=env, volumeMounts=mounts), volumes=[{"name": "v", "emptyDir": {}}])
    assert main(subject, PLAIN)["env"]["V1999"] == "x"


def test_an_expansion_that_is_too_long_names_its_place() -> None:
    with pytest.raises(PodConfigError, match="the text has 200 bytes, and Linux allows 100"):
        expand("$(A)$(A)", {"A": "x" * 100}, limit=100)


def test_an_annotation_with_thousands_of_digits_is_a_reason_to_wait() -> None:
    (waiting,) = waiting_reasons(pod(annotations={"log-max-size": "9" * 5000}))
    assert waiting.reason == "InvalidAnnotation"
    assert "write a size such as 100Mi" in waiting.message
    assert len(waiting.message) < 300


def test_numbers_with_thousands_of_digits_have_no_effect() -> None:
    digits = "9" * 5000
    spec = container(command=["torchrun", f"--nproc-per-node={digits}"])
    assert main(pod(spec, annotations={"replicas": digits}), OVERLAY)["env"]["OMP_NUM_THREADS"] == "1"
