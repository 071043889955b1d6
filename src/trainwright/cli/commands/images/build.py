"""`trainwright image build`."""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from trainwright.cli.commands.images.store import check_mirrors, open_store, parse_name, report_image_errors
from trainwright.cli.errors import CommandError
from trainwright.cli.flags import data_dir_flag
from trainwright.cli.pods_python import default_python
from trainwright.cluster.facade import all_data_directories
from trainwright.cluster.images.build.command import build_image
from trainwright.cluster.images.build.messages import BuildError, Progress
from trainwright.cluster.images.build.options import BuildOptions, Unreachable
from trainwright.cluster.images.build.sources import open_source
from trainwright.cluster.images.formats import FormatError, Platform
from trainwright.cluster.images.reference import ImageReference
from trainwright.cluster.images.registry.errors import RegistryError, UnreachableRegistryError
from trainwright.cluster.images.store import Image, ImageStore

_CONNECT_SECONDS = 5.0
_LARGEST_SECRET = 500_000
"""As in BuildKit."""
_SECRETS = (
    *(".kube", ".docker", ".ssh", ".gnupg", ".aws", ".azure", ".kaggle", ".config/gcloud", ".config/gh"),
    *(".netrc", ".pypirc", ".git-credentials", ".cache/huggingface/token"),
)
"""What programs of a build must not see of the home directory."""
_PASSED_ON = ("PIP_", "UV_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "http_proxy", "https_proxy", "no_proxy", "all_proxy")
"""Variables that say where packages come from."""


@click.command(name="build")
@click.argument("context", metavar="DIR|URL|-", required=False, type=click.Path(allow_dash=True))
@click.option(
    "-f",
    "--file",
    "dockerfile",
    metavar="FILE",
    help="The Dockerfile (default: DIR/Dockerfile); - reads standard input.",
)
@click.option("-t", "--tag", "tags", multiple=True, metavar="NAME[:TAG]", help="A name of the image; can be repeated.")
@click.option("--build-arg", "build_args", multiple=True, metavar="NAME[=VALUE]", help="The value of an ARG.")
@click.option(
    "--secret",
    "secrets",
    multiple=True,
    metavar="id=NAME,src=FILE|env=VAR",
    help="A secret for RUN --mount=type=secret,id=NAME; it is no part of the image.",
)
@click.option(
    "--ssh",
    "agents",
    multiple=True,
    metavar="default|ID[=SOCKET]",
    help="An SSH agent for RUN --mount=type=ssh (default: that of SSH_AUTH_SOCK).",
)
@click.option("--label", "labels", multiple=True, metavar="NAME[=VALUE]", help="A label of the image.")
@click.option("--target", default="", metavar="STAGE", help="Build up to this stage.")
@click.option("--platform", metavar="OS/ARCH", help="The platform of the image (default: that of this machine).")
@click.option("--no-cache", is_flag=True, help="Run every instruction again.")
@click.option("--pull", is_flag=True, help="Ask the registry of FROM even if the store has the image.")
@click.option("--strict", is_flag=True, help="Fail if FROM cannot be had, instead of using the files of this machine.")
@click.option(
    "--skip-run",
    multiple=True,
    metavar="PATTERN",
    help="Do not run the RUN lines whose command matches, such as 'apt *'; they are recorded in the image.",
)
@click.option(
    "--python",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="PATH",
    help="The Python of an image over the files of this machine (default: the active one).",
)
@click.option(
    "--mirror",
    "mirrors",
    multiple=True,
    metavar="HOST",
    callback=check_mirrors,
    help="Ask this registry before that of FROM.",
)
@click.option("--plain-http", is_flag=True, help="Reach registries without encryption.")
@click.option("--iidfile", type=click.Path(path_type=Path), metavar="FILE", help="Write the ID of the image to it.")
@click.option("-q", "--quiet", is_flag=True, help="Only print the ID of the image.")
@click.option(
    "--network",
    type=click.Choice(["default", "host", "none"]),
    default="default",
    help="The network of RUN: that of this machine (default, host), or none.",
)
# Flags of Docker that change nothing here.
@click.option(
    "--progress", type=click.Choice(["auto", "plain", "tty"]), default="auto", hidden=True, expose_value=False
)
@click.option("--rm/--no-rm", default=True, hidden=True, expose_value=False)
@click.option("--force-rm", is_flag=True, hidden=True, expose_value=False)
@click.option("--load", is_flag=True, hidden=True, expose_value=False)
@click.option("--compress", is_flag=True, hidden=True, expose_value=False)
@click.option("--provenance", hidden=True, expose_value=False)
@click.option("--sbom", hidden=True, expose_value=False)
@click.option("--cache-from", multiple=True, hidden=True, expose_value=False)
@data_dir_flag
def build_command(
    context: str | None,
    dockerfile: str | None,
    tags: tuple[str, ...],
    build_args: tuple[str, ...],
    secrets: tuple[str, ...],
    agents: tuple[str, ...],
    labels: tuple[str, ...],
    platform: str | None,
    python: Path | None,
    mirrors: tuple[str, ...],
    plain_http: bool,
    iidfile: Path | None,
    quiet: bool,
    data_dir: Path | None,
    **flags: Any,  # fields of BuildOptions as they are
) -> None:
    """Build an image from a Dockerfile and the files in DIR.

    URL is the address of an archive with both, of a Dockerfile, or of a Git repository (ADDRESS.git#BRANCH:DIRECTORY);
    with - an archive or a Dockerfile is read from standard input.

    RUN lines really run, on the layers of the image, without access to the files of this machine. FROM takes the image
    from the store, else from its registry. If no registry is reachable, the files of this machine stand in for it: the
    build says so, the image records it, and --strict refuses it. Instructions of which nothing has changed come from
    the cache.
    """
    if context is None:
        raise click.UsageError("Missing argument 'DIR|URL|-': name the directory to build from, . for this one.")
    store = open_store(data_dir)
    with report_image_errors():
        wanted = Platform.parse(platform) if platform else Platform.of_this_machine()
    with _report_build_errors(), open_source(store, context, dockerfile, sys.stdin.buffer) as source:
        options = BuildOptions(
            dockerfile=source.dockerfile,
            context=source.context,
            tags=[_tag(tag) for tag in tags],
            build_args=dict(_build_arg(text, os.environ) for text in build_args),
            secrets=dict(_secret(text, os.environ) for text in secrets),
            ssh=dict(_agent(text, os.environ) for text in agents),
            labels={name: value for name, _, value in (text.partition("=") for text in labels)},
            platform=wanted,
            python=default_python(python.absolute() if python else None).path,
            hidden=_hidden(store, data_dir),
            environment={name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)},
            is_root=os.geteuid() == 0,
            created=_source_date(os.environ),
            **flags,
        )
        registries = _Registries(store, mirrors, plain_http)
        image = build_image(store, options, registries.pull, Progress(quiet=quiet))
        if iidfile:
            iidfile.write_text(image.id)
    if quiet:
        click.echo(image.id)


@contextmanager
def _report_build_errors() -> Iterator[None]:
    try:
        with report_image_errors():
            yield
    except BuildError as error:
        raise CommandError(str(error)) from error


class _Registries:
    def __init__(self, store: ImageStore, mirrors: tuple[str, ...], plain_http: bool) -> None:
        self._store = store
        self._mirrors = mirrors
        self._plain_http = plain_http

    def pull(self, reference: ImageReference, platform: Platform) -> Image | Unreachable:
        # Most builds find their base in the store, and the HTTP client takes longer to import than they run.
        import asyncio

        from trainwright.cluster.images.registry.credentials import DockerConfig
        from trainwright.cluster.images.registry.pull import pull_image
        from trainwright.cluster.images.registry.settings import RegistrySettings

        settings = RegistrySettings(
            mirrors={reference.registry: self._mirrors},
            plain_http=frozenset([reference.registry] if self._plain_http else ()),
            connect_seconds=_CONNECT_SECONDS,
            attempts=1,
        )
        try:
            return asyncio.run(
                pull_image(
                    self._store, reference, platform=platform, credentials=DockerConfig.of_user(), settings=settings
                )
            )
        except UnreachableRegistryError as error:
            return Unreachable(str(error))
        except (RegistryError, FormatError) as error:
            raise BuildError(f"pulling {reference.familiar}: {error}") from error


def _tag(text: str) -> ImageReference:
    reference = parse_name(text)
    if reference.digest:
        raise CommandError(f"invalid argument {text!r} for -t: an image cannot get a digest as its name")
    return reference


def _build_arg(text: str, environment: Mapping[str, str]) -> tuple[str, str]:
    name, has_value, value = text.partition("=")
    if not name:
        raise CommandError(f"--build-arg {text!r}: it must be NAME=VALUE, or NAME for that of the environment")
    return name, value if has_value else environment.get(name, "")


def _secret(text: str, environment: Mapping[str, str]) -> tuple[str, bytes]:
    """As Docker: without `src` and `env`, the id names a variable or a file."""
    fields = dict(part.partition("=")[::2] for part in text.split(","))
    name, kind, variable = fields.pop("id", ""), fields.pop("type", "file"), fields.pop("env", "")
    path = fields.pop("src", "") or fields.pop("source", "")
    if not name or fields or kind not in {"file", "env"}:
        raise CommandError(f"--secret {text!r}: it must be id=NAME,src=FILE or id=NAME,env=VARIABLE")
    if not variable and (kind == "env" or not path):
        variable = (path or name) if kind == "env" or name in environment else ""
    if variable:
        if variable not in environment:
            raise CommandError(f"--secret {text!r}: the variable {variable} is not set")
        return name, os.fsencode(environment[variable])
    try:
        content = Path(path or name).expanduser().read_bytes()
    except OSError as error:
        raise CommandError(f"--secret {text!r}: cannot read {path or name}: {error.strerror}") from error
    if len(content) > _LARGEST_SECRET:
        raise CommandError(f"--secret {text!r}: {path or name} is larger than {_LARGEST_SECRET // 1000} kB")
    return name, content


def _agent(text: str, environment: Mapping[str, str]) -> tuple[str, str]:
    name, _, place = text.partition("=")
    socket = place or environment.get("SSH_AUTH_SOCK", "")
    if not socket:
        raise CommandError(f"--ssh {text}: no SSH agent runs: start one with `eval $(ssh-agent)` and `ssh-add`")
    if not Path(socket).is_socket():
        raise CommandError(f"--ssh {text}: {socket} is not the socket of an SSH agent; keys are added with `ssh-add`")
    return name, str(Path(socket).absolute())


def _hidden(store: ImageStore, data_dir: Path | None) -> list[str]:
    """Files and directories with keys, and with the files of pods and images."""
    data = [*all_data_directories(), *([data_dir.absolute()] if data_dir else ())]
    found = [*data, store.directory, *(Path.home() / name for name in _SECRETS)]
    return list(dict.fromkeys(str(path.resolve()) for path in found))


def _source_date(environment: Mapping[str, str]) -> str:
    """SOURCE_DATE_EPOCH makes the same image each time."""
    import datetime

    text = environment.get("SOURCE_DATE_EPOCH", "")
    if not text.isdecimal():
        return ""
    return datetime.datetime.fromtimestamp(int(text), datetime.UTC).isoformat().replace("+00:00", "Z")
