"""Layers compressed for registries."""

import gzip
import io

from hypothesis import given
from hypothesis import strategies as st

from trainwright.cluster.images.layers.compression import GzipStream


@given(st.lists(st.binary(max_size=400), max_size=6), st.integers(0, 3))
def test_what_was_compressed_can_be_read_by_any_gzip(parts: list[bytes], repeats: int) -> None:
    parts = parts + [b"0123456789abcdef" * 40_000] * repeats
    output = io.BytesIO()

    with GzipStream(output) as stream:
        for part in parts:
            stream.write(part)

    assert gzip.decompress(output.getvalue()) == b"".join(parts)
