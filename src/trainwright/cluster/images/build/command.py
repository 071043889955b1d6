"""A whole build, as the command line and tests call it."""

import os
import tempfile

from trainwright.cluster.images.blobs import StoreError
from trainwright.cluster.images.build.bases import Bases
from trainwright.cluster.images.build.builder import Builder, make_plan, unused_arguments
from trainwright.cluster.images.build.files.context import Context, read_context_rules
from trainwright.cluster.images.build.messages import BuildError, Progress
from trainwright.cluster.images.build.options import BuildOptions, Pull
from trainwright.cluster.images.dockerfile.instructions import Dockerfile
from trainwright.cluster.images.dockerfile.lines import DockerfileError
from trainwright.cluster.images.dockerfile.parser import parse
from trainwright.cluster.images.layers.namespace import ContainerRootError, run_as_container_root
from trainwright.cluster.images.store import Image, ImageStore


def build_image(store: ImageStore, options: BuildOptions, pull: Pull, progress: Progress) -> Image:
    """Raises BuildError, with nothing stored but layers for the next attempt."""
    dockerfile = _read_dockerfile(options)
    if not options.context.is_dir():
        raise BuildError(f"{options.context} is not a directory: the last argument is the directory to build from")
    rules = read_context_rules(options.context, options.dockerfile)
    try:
        with store.lease(), tempfile.TemporaryFile() as kept:
            plan = make_plan(dockerfile, options, Bases(store, options, pull))
            for name in unused_arguments(dockerfile, options):
                progress.warning(f"no ARG declares the build argument {name}")
            output = kept.fileno() if progress.quiet else 1

            def build() -> Image:
                context = Context(options.context, rules, store.directory / "tmp")
                try:
                    return Builder(store, options, plan, context, progress, output).build()
                finally:
                    context.close()

            try:
                return run_as_container_root(build)
            except BuildError:
                kept.seek(0)
                while data := kept.read(1 << 16):
                    os.write(2, data)
                raise
    except StoreError as error:
        raise BuildError(str(error)) from error
    except ContainerRootError as error:
        raise BuildError(f"RUN, COPY and ADD need a container: {error}") from error


def _read_dockerfile(options: BuildOptions) -> Dockerfile:
    path = options.dockerfile
    try:
        return parse(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError as error:
        raise BuildError(f"{path} is not a text file in UTF-8: byte {error.start} is not text") from error
    except FileNotFoundError as error:
        raise BuildError(f"unable to read the Dockerfile: {path} does not exist; name another with -f") from error
    except OSError as error:
        raise BuildError(f"unable to read the Dockerfile {path}: {error.strerror}") from error
    except DockerfileError as error:
        raise BuildError(f"{path.name}:{error.line}:{error.column}: {error.message}") from error
