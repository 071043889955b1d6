"""Dockerfiles as values: what the parser reads, and what it says about files that it cannot read."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.images.dockerfile.instructions import Arg, Copy, Pairs, Run, Shell, Start, Value, Words
from trainwright.cluster.images.dockerfile.lines import DockerfileError
from trainwright.cluster.images.dockerfile.parser import parse

KEYWORDS = (
    *("FROM", "RUN", "COPY", "ADD", "ENV", "ARG", "WORKDIR", "ENTRYPOINT", "CMD", "USER", "LABEL", "EXPOSE"),
    *("VOLUME", "SHELL", "STOPSIGNAL", "HEALTHCHECK", "ONBUILD", "MAINTAINER"),
)


def only(text: str) -> object:
    """The one instruction after FROM."""
    (instruction,) = parse(f"FROM base\n{text}\n").stages[0].instructions
    return instruction


def error_of(text: str) -> str:
    with pytest.raises(DockerfileError) as caught:
        parse(text)
    return str(caught.value)


def test_continuation_lines_are_joined_without_comments_and_empty_lines() -> None:
    parsed = parse("FROM a\nRUN one \\\n  # comment\n\n  && two \\ \n && three\nCMD x")

    run, start = parsed.stages[0].instructions
    assert isinstance(run, Run)
    assert run.command.text == "one   && two  && three"
    assert start.line == 7
    assert parsed.warnings == ["line 4: empty line in the continuation of line 2"]


def test_a_backtick_escapes_after_the_directive() -> None:
    parsed = parse("# escape=`\nFROM a\nRUN one `\n two\nCOPY c:\\a c:\\b\n")

    run, copy = parsed.stages[0].instructions
    assert isinstance(run, Run)
    assert run.command.text == "one  two"
    assert isinstance(copy, Copy)
    assert copy.sources == ("c:\\a",)


def test_commands_have_a_shell_and_an_exec_form() -> None:
    shell, exec_form, not_json = only("CMD echo hi"), only('ENTRYPOINT ["python", "/var/mnist.py"]'), only("RUN ['a']")

    assert isinstance(shell, Start)
    assert shell.command.argv(("/bin/sh", "-c")) == ["/bin/sh", "-c", "echo hi"]
    assert isinstance(exec_form, Start)
    assert exec_form.command.argv(("/bin/sh", "-c")) == ["python", "/var/mnist.py"]
    assert isinstance(not_json, Run)
    assert not_json.command.uses_shell


def test_here_documents_belong_to_their_instruction() -> None:
    parsed = parse(
        "FROM a\nRUN cat <<A <<-'B' > /x\none $X\nA\n\t\ttwo\n\tB\nCOPY <<f.txt /f.txt\nhello\nf.txt\nCMD x\n"
    )

    run, copy, start = parsed.stages[0].instructions
    assert isinstance(run, Run)
    assert [(one.name, one.content, one.expand) for one in run.heredocs] == [
        ("A", "one $X\n", True),
        ("B", "two\n", False),
    ]
    assert isinstance(copy, Copy)
    assert copy.heredocs[0].content == "hello\n"
    assert start.line == 10


def test_stages_have_names_and_platforms() -> None:
    parsed = parse(
        "ARG V=1\nFROM --platform=$BUILDPLATFORM a:$V AS Build\nRUN x\nFROM scratch\nCOPY --from=build /a /b\n"
    )

    assert parsed.arguments[0].arguments == (("V", "1"),)
    first, second = parsed.stages
    assert (first.origin.image, first.origin.alias, first.origin.platform) == ("a:$V", "build", "$BUILDPLATFORM")
    assert parsed.stage("BUILD") is first
    assert parsed.stage("1") is second
    assert parsed.stage("2") is None


def test_names_and_values_keep_quotes_until_they_are_expanded() -> None:
    env, old, arg = only('ENV a="b c" d=e\\ f'), only("LABEL name  some value"), only("ARG x y=1")

    assert isinstance(env, Pairs)
    assert env.pairs == (("a", '"b c"'), ("d", "e\\ f"))
    assert isinstance(old, Pairs)
    assert old.pairs == (("name", "some value"),)
    assert isinstance(arg, Arg)
    assert arg.arguments == (("x", None), ("y", "1"))


def test_flags_and_mounts_are_read() -> None:
    copy = only('COPY --from=base --chown=1:"2" --chmod=755 --link ["a b", "/c d/"]')
    run = only("RUN --mount=type=cache,target=/c --mount=from=base,source=/s,target=/t,rw --network=none make")

    assert isinstance(copy, Copy)
    assert (copy.origin, copy.chown, copy.chmod, copy.sources) == ("base", "1:2", "755", ("a b",))
    assert isinstance(run, Run)
    assert [(one.type, one.target, one.origin, one.read_only) for one in run.mounts] == [
        ("cache", "/c", "", False),
        ("bind", "/t", "base", False),
    ]
    assert (run.network, run.command.text) == ("none", "make")


def test_other_instructions_are_read() -> None:
    assert only("WORKDIR /a b") == Value(keyword="WORKDIR", source="WORKDIR /a b", line=2, value="/a b")
    assert only('VOLUME ["/a", "/b"]') == Words(
        keyword="VOLUME", source='VOLUME ["/a", "/b"]', line=2, words=("/a", "/b")
    )
    assert only('SHELL ["/bin/bash", "-c"]') == Shell(
        keyword="SHELL", source='SHELL ["/bin/bash", "-c"]', line=2, words=("/bin/bash", "-c")
    )


@pytest.mark.parametrize("line", ["HEALTHCHECK CMD true", "ONBUILD RUN x", "MAINTAINER me"])
def test_what_has_no_effect_is_a_warning(line: str) -> None:
    parsed = parse(f"FROM a\n{line}\n")

    assert len(parsed.warnings) == 1
    assert parsed.warnings[0].startswith(f"line 2: {line.split(maxsplit=1)[0]} ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("FORM a", "line 1, column 1: unknown instruction: FORM (did you mean FROM?)"),
        ("FROM a\n\n  ENTRYPIONT x", "line 3, column 3: unknown instruction: ENTRYPIONT (did you mean ENTRYPOINT?)"),
        ("FROM a\nENV a=b \\\n  c", "line 3, column 3: can't find = in 'c': it must be of the form NAME=VALUE"),
        ("FROM a\nCOPY --form=b c d", "line 2, column 6: unknown flag --form of COPY (did you mean --from?)"),
        ("FROM a\nCOPY x", "line 2, column 6: COPY requires at least two arguments: a source and a destination"),
        ("FROM a\nRUN <<E\nx", "line 2, column 1: here-document 'E' has no end: no line is 'E' alone"),
        ("FROM a\nRUN", "line 2, column 1: RUN requires at least one argument"),
        ("FROM a b", "line 1, column 6: FROM requires either one or three arguments: FROM IMAGE [AS NAME]"),
        ("RUN x", "line 1, column 1: RUN before the first FROM: only ARG may come before it"),
        ("ARG a", "line 1, column 1: no build stage: the Dockerfile has no FROM"),
        ("# only a comment", "line 1, column 1: the Dockerfile has no instructions"),
        ("# escape=x\nFROM a", "line 1, column 1: invalid escape token 'x': it must be ` or \\"),
        (
            "FROM a\nSHELL bash",
            'line 2, column 7: SHELL requires its arguments as a JSON list, such as ["/bin/bash", "-c"]',
        ),
    ],
)
def test_a_mistake_is_named_with_line_and_column(text: str, message: str) -> None:
    assert error_of(text) == message


_words = st.text(st.sampled_from("ab/.$\\\"'{}[]<>-=#:,`\t é"), max_size=12)
_lines = st.one_of(
    _words,
    st.tuples(st.sampled_from([*KEYWORDS, "from", "Rnu"]), st.lists(_words, max_size=4)).map(
        lambda line: " ".join((line[0], *line[1]))
    ),
    st.sampled_from(
        ["FROM a", "FROM scratch AS b", "RUN <<EOF", "EOF", "RUN x \\", "# escape=`", "COPY --from=b a b", 'CMD ["a"]']
    ),
)


@given(st.one_of(st.text(), st.lists(_lines, max_size=12).map("\n".join)))
def test_any_text_is_read_or_refused_with_its_position(text: str) -> None:
    try:
        parsed = parse(text)
    except DockerfileError as error:
        numbers = [error.line]
    else:
        numbers = [one.line for stage in parsed.stages for one in (stage.origin, *stage.instructions)]

    assert numbers == sorted(numbers)
    assert 1 <= numbers[0] <= numbers[-1] <= text.count("\n") + 1


_plain = st.text(st.sampled_from("abcXYZ019_/.-"), min_size=1, max_size=8)
_generated = st.one_of(
    st.lists(_plain, min_size=1, max_size=4).map(lambda words: ("RUN", f"RUN {' '.join(words)}", " ".join(words))),
    st.lists(_plain, min_size=2, max_size=4).map(lambda words: ("COPY", f"COPY {' '.join(words)}", " ".join(words))),
    _plain.map(lambda word: ("WORKDIR", f"WORKDIR {word}", word)),
    st.tuples(_plain, _plain).map(lambda pair: ("RUN", f"run {pair[0]} \\\n# comment\n{pair[1]}", " ".join(pair))),
)


@given(st.lists(_generated, max_size=10))
def test_well_formed_instructions_are_read_in_their_order(lines: list[tuple[str, str, str]]) -> None:
    lines = [(keyword, text, words) for keyword, text, words in lines if not words.startswith("-")]

    parsed = parse("\n".join(["FROM base", *(text for _, text, _ in lines)]))

    read = []
    for one in parsed.stages[0].instructions:
        if isinstance(one, Run):
            read.append((one.keyword, one.command.text))
        elif isinstance(one, Copy):
            read.append((one.keyword, " ".join((*one.sources, one.destination))))
        elif isinstance(one, Value):
            read.append((one.keyword, one.value))
    assert read == [(keyword, words) for keyword, _, words in lines]
