from trainwright.cluster.node.devices.nvidia import DriverFiles, driver_mounts, parse_linker_cache

CACHE = """123 libs found in cache `/etc/ld.so.cache'
\tlibcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1
\tlibcuda.so.1 (libc6) => /usr/lib/i386-linux-gnu/libcuda.so.1
\tlibnvidia-ml.so.1 (libc6,x86-64, OS ABI: Linux 2.3.99) => /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1
\tlibz.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libz.so.1
"""
DRIVER = DriverFiles(
    libraries=(
        ("utility", "libnvidia-ml.so.1", "/usr/lib/libnvidia-ml.so.570.1"),
        ("compute", "libcuda.so.1", "/usr/lib/libcuda.so.570.1"),
        ("video", "libnvcuvid.so.1", "/usr/lib/libnvcuvid.so.570.1"),
    ),
    programs=(("utility", "/usr/bin/nvidia-smi"),),
    sockets=(("utility", "/run/nvidia-persistenced/socket"),),
)


def targets(capabilities: str | None) -> set[str]:
    environment = {} if capabilities is None else {"NVIDIA_DRIVER_CAPABILITIES": capabilities}
    mounts = driver_mounts(DRIVER, environment=environment, library_directory="/lib64")
    assert all(mount["readOnly"] for mount in mounts)
    return {str(mount["target"]) for mount in mounts}


def test_libraries_are_found_by_the_cache_of_the_linker() -> None:
    found = parse_linker_cache(CACHE)
    assert found["libcuda.so.1"] == "/usr/lib/x86_64-linux-gnu/libcuda.so.1"
    assert set(found) == {"libcuda.so.1", "libnvidia-ml.so.1", "libz.so.1"}


def test_a_container_gets_what_its_capabilities_name() -> None:
    compute = {"/lib64/libcuda.so.1", "/lib64/libcuda.so.570.1"}
    utility = {
        "/lib64/libnvidia-ml.so.1",
        "/lib64/libnvidia-ml.so.570.1",
        "/usr/bin/nvidia-smi",
        "/run/nvidia-persistenced/socket",
    }
    assert targets(None) == compute | utility
    assert targets("compute") == compute
    assert targets("all") == compute | utility | {"/lib64/libnvcuvid.so.1", "/lib64/libnvcuvid.so.570.1"}
