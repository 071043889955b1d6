"""Templates of init containers: parsed once, rejected with a reason, rendered for each job."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.engine.init_template import InitTemplateError, parse_init_template

UPSTREAM = """\
- name: init-pytorch
  image: {{.InitContainerImage}}
  imagePullPolicy: IfNotPresent
  resources:
    limits: {cpu: 100m}
  command: ['sh', '-c', "for i in $(seq {{ .MaxTries }}); do nslookup {{- .MasterAddr -}} && exit 0; done; exit 1"]
"""


def test_placeholders_are_filled_in_like_in_go_templates() -> None:
    (container,) = parse_init_template(UPSTREAM).render(master="m-0", image="alpine:3.10", max_tries=100)
    assert container["image"] == "alpine:3.10"
    assert container["command"][2] == "for i in $(seq 100); do nslookup m-0 && exit 0; done; exit 1"
    assert container["resources"] == {"limits": {"cpu": "100m"}}


def test_placeholder_of_the_master_may_occur_anywhere() -> None:
    text = "[{name: a, image: x, env: [{name: ADDR, value: 'tcp://{{.MasterAddr}}:1'}], stdin: true}]"
    made = parse_init_template(text)
    assert made.render(master="m-0", image="x", max_tries=1)[0]["env"] == [{"name": "ADDR", "value": "tcp://m-0:1"}]
    assert made.render(master="n-0", image="x", max_tries=1)[0]["env"] == [{"name": "ADDR", "value": "tcp://n-0:1"}]
    assert made.render(master="n-0", image="x", max_tries=1)[0]["stdin"] is True


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "^must be a YAML list of containers, such as `- name: init-pytorch`$"),
        ("[]", "must be a YAML list of containers"),
        ("name: init", "must be a YAML list of containers"),
        ("- [", "is not YAML: "),
        ("- wait", r"\[0\] must be a container, not 'wait'"),
        ("- image: x", r"\[0\].name must be set"),
        ("- {name: a, image: x}\n- {name: b}", r"\[1\].image must be set"),
        ("- {name: 7, image: x}", r"\[0\].name must be set to a string"),
        ("- {name: a, image: x}\n- {name: a, image: y}", "names must differ: 'a' is used twice"),
        (
            "- {name: a, image: '{{.Image}}'}",
            r"\{\{.Image\}\} is not a placeholder: supported are \{\{.MasterAddr\}\}, ",
        ),
        ("- {name: a, image: '{{MasterAddr}}'}", r"\{\{MasterAddr\}\} is not a placeholder"),
        ("- {name: a, image: '{{if .MasterAddr}}'}", "is not a placeholder"),
    ],
)
def test_invalid_template_is_rejected_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(InitTemplateError, match=reason):
        parse_init_template(text)


@given(st.text(alphabet="-[]{}: nameimgx.'\"\n\t*&!|>%@`,#?MasterAddr"))
def test_any_text_is_rejected_or_renders_containers(text: str) -> None:
    try:
        made = parse_init_template(text)
    except InitTemplateError:
        return
    containers = made.render(master="m-0", image="i", max_tries=3)
    assert all(container["name"] and container["image"] for container in containers)
