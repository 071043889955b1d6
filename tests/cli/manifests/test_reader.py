"""Manifests as users write them; every error names its place."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cli.errors import CommandError
from trainwright.cli.manifests.reader import parse_manifest, read_manifests

CONFIG_MAP = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: one\n"


def parse(text: str) -> list[dict[str, Any]]:
    return [document.object for document in parse_manifest(text, "job.yaml", Path("/home/me"))]


def refusal(text: str) -> str:
    with pytest.raises(CommandError) as caught:
        parse(text)
    return caught.value.message


def test_every_document_knows_its_line() -> None:
    documents = parse_manifest(f"# first\n{CONFIG_MAP}---\n{CONFIG_MAP}", "job.yaml", Path("/home/me"))
    assert [str(document.place) for document in documents] == ["job.yaml:2", "job.yaml:7"]
    assert documents[0].directory == Path("/home/me")


def test_empty_documents_are_skipped() -> None:
    assert len(parse(f"---\n---\n{CONFIG_MAP}---\n# only a comment\n")) == 1


def test_lists_are_expanded() -> None:
    item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}}
    assert parse(json.dumps({"apiVersion": "v1", "kind": "List", "items": [item]})) == [item]


def test_json_may_be_indented_with_tabs() -> None:
    assert parse('{\n\t"apiVersion": "v1",\n\t"kind": "Secret",\n\t"metadata": {"name": "x"}\n}')[0]["kind"] == "Secret"


def test_dates_stay_strings() -> None:
    [config] = parse(f"{CONFIG_MAP}data:\n  day: 2026-11-15\n")
    assert config["data"] == {"day": "2026-11-15"}


def test_keys_are_strings_as_they_are_written() -> None:
    [config] = parse(f"{CONFIG_MAP}data:\n  1: one\n  true: yes it is\n  no: norway\n")
    assert config["data"] == {"1": "one", "true": "yes it is", "no": "norway"}


def test_merge_keys_are_expanded() -> None:
    [config] = parse(f"{CONFIG_MAP}data: &base {{a: x, b: y}}\nmore:\n  <<: *base\n  b: z\n")
    assert config["more"] == {"a": "x", "b": "z"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("apiVersion: v1\nkind: [unclosed\n", "job.yaml:3:1: invalid YAML"),
        ("a: b: c\n", "job.yaml:1:5: invalid YAML"),
        ("\tkind: x\n", "job.yaml:1:1: invalid YAML"),
        ("just words\n", "job.yaml:1: must be an object with apiVersion, kind and metadata"),
        ("- a\n- b\n", "job.yaml:1: must be an object"),
        ("kind: PyTorchJob\n", "job.yaml:1: `apiVersion` is missing"),
        ("apiVersion: v1\n", "job.yaml:1: `kind` is missing"),
        ("apiVersion: v1\nkind: 3\n", "`kind` must be a string, not 3"),
        ("apiVersion: v1\nkind: Pod\n", "`metadata.name` of Pod is missing"),
        ("apiVerison: v1\nkind: Pod\n", "`apiVersion` is missing: is `apiVerison` a misspelling of it?"),
        ("apiVersion: v1\nkind: Pod\nmetdata: {name: a}\n", "of Pod is missing: is `metdata` a misspelling of it?"),
        ("apiVersion: v1\nkind: Pod\nmetadata: {nmae: a}\n", "of Pod is missing: is `nmae` a misspelling of it?"),
        (
            "apiVersion: v1\nkind: Pod\nmetadata: {name: 5}\n",
            "`metadata.name` must be a string, not 5: put it in quotes",
        ),
        (f"{CONFIG_MAP}  labels: {{version: 1.5}}\n", "`metadata.labels.version` must be a string, not 1.5"),
        (f"{CONFIG_MAP}spec: [1]\n", "`spec` must be an object, not [1]"),
        (f"{CONFIG_MAP}data: {{a: .nan}}\n", "nan is not a JSON number"),
        (f"{CONFIG_MAP}data: !!binary aGk=\n", "cannot contain a value of type bytes"),
        (f"{CONFIG_MAP}data: !!python/object:os.system {{}}\n", "invalid YAML"),
        (f"{CONFIG_MAP}data: &again [*again]\n", "an anchor contains itself"),
        pytest.param('{"a": ' + "[" * 5000 + "]" * 5000 + "}", "max depth", id="deep JSON"),
        ('{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "\\ud800"}}', "not a string of Unicode characters"),
        ('{"apiVersion": "v1", "kind": "Pod", "\\ud800": 1}', "not a string of Unicode characters"),
        pytest.param("[" * 200_000, "exceeded max depth", id="deep YAML"),
        pytest.param(f"{CONFIG_MAP}data: {'[' * 80}{']' * 80}\n", "too deeply nested", id="deep values"),
        ("apiVersion: v1\nkind: List\nitems: 3\n", "`items` of a List must be a list"),
    ],
)
def test_errors_name_place_and_cause(text: str, words: str) -> None:
    assert words in refusal(text)


def test_a_duplicate_key_is_refused_with_its_place() -> None:
    assert (
        refusal(f"{CONFIG_MAP}metadata:\n  name: two\n")
        == "job.yaml:5:1: duplicate key 'metadata'\n  5 | metadata:\n    | ^"
    )


def test_aliases_that_expand_to_millions_are_refused() -> None:
    bomb = "".join(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10) if n else '1'}]\n" for n in range(9))
    assert "too large" in refusal(CONFIG_MAP + bomb)


def test_merge_keys_that_expand_to_millions_are_refused() -> None:
    bomb = "".join(f"l{n}: &l{n} {{<<: [{', '.join([f'*l{n - 1}'] * 10)}]}}\n" for n in range(1, 9))
    assert "too large" in refusal(f"{CONFIG_MAP}l0: &l0 {{a: 1}}\n{bomb}")


def test_times_are_strings() -> None:
    [document] = parse(f"{CONFIG_MAP}data: {{date: 2026-11-15, time: 12:30:45}}\n")
    assert document["data"] == {"date": "2026-11-15", "time": "12:30:45"}


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    refused = ""
    documents = []
    try:
        documents = parse(text)
    except CommandError as problem:
        refused = problem.message
    assert refused.startswith("job.yaml") or all(isinstance(document, dict) for document in documents)


def test_files_and_directories_are_read_in_order(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.json"):
        (tmp_path / name).write_text(CONFIG_MAP.replace("one", name))
    (tmp_path / "notes.txt").write_text("not a manifest")
    documents = read_manifests([str(tmp_path)])
    assert [document.name for document in documents] == ["a.yaml", "b.yml", "c.json"]
    assert documents[0].directory == tmp_path


def test_a_relative_file_knows_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.yaml").write_text(CONFIG_MAP)
    monkeypatch.chdir(tmp_path)
    assert read_manifests(["job.yaml"])[0].directory == tmp_path


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO(CONFIG_MAP))
    [document] = read_manifests(["-"])
    assert (str(document.place), document.directory) == ("stdin:1", tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"failed to read .*/job.yaml: No such file"):
        read_manifests([str(tmp_path / "job.yaml")])


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"PK\x03\x04\xff\xfe")
    with pytest.raises(CommandError, match=r"model\.pt is not a manifest"):
        read_manifests([str(tmp_path / "model.pt")])


def test_a_directory_without_manifests_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no manifests found in directory"):
        read_manifests([str(tmp_path)])


def test_a_file_without_objects_is_named(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    with pytest.raises(CommandError, match=r"no objects found in .*empty.yaml"):
        read_manifests([str(tmp_path / "empty.yaml")])


def test_the_same_object_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(f"{CONFIG_MAP}---\n{CONFIG_MAP}")
    with pytest.raises(CommandError, match=r"job.yaml:6: ConfigMap one is already defined at .*job.yaml:1"):
        read_manifests([str(tmp_path / "job.yaml")])
