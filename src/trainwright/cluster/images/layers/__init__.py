"""The layers of images as files: unpacked, packed, and changed as the root of containers."""
