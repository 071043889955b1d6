"""The images of the cases about images, the same on every node."""

from tests.support.images.machine_image import PATH, PYTHON, add_machine_image
from trainwright.cluster.images.formats import RunConfig
from trainwright.cluster.images.store import Image, ImageStore

PREFIX = "local.test/images"
_PRINT = "import os, sys; print(sys.argv[1:], os.getcwd(), os.environ.get('GREETING'), os.environ.get('HOME'))"


def add_case_images(store: ImageStore) -> list[Image]:
    environment = [f"PATH={PATH}", "GREETING=from the image"]
    configs = {
        "program": RunConfig(
            entrypoint=[PYTHON, "-c", _PRINT], cmd=["a", "$(GREETING)"], env=environment, working_dir="/srv/work"
        ),
        "cmd": RunConfig(cmd=["sh", "-c", "echo cmd; pwd"]),
        "trainer": RunConfig(user="trainer", cmd=["sh", "-c", "id; echo $HOME"]),
        "numeric": RunConfig(user="4321", cmd=["id"]),
        "group": RunConfig(user="trainer:gpu", cmd=["id"]),
        "stranger": RunConfig(user="stranger", cmd=["id"]),
        "nothing": RunConfig(),
        "interrupt": RunConfig(
            stop_signal="SIGINT",
            cmd=["sh", "-c", "trap 'exit 3' INT; trap '' TERM; echo started; while :; do sleep 0.1; done"],
        ),
        "volume": RunConfig(volumes={"/data": {}}, cmd=["sh", "-c", "echo 1 > /data/x && cat /data/x; echo 2 > /y"]),
    }
    return [add_machine_image(store, f"{PREFIX}/{name}:1", config=config) for name, config in configs.items()]
