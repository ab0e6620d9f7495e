"""Reading files of a store that anyone may have filled."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from thunderfx_cli.store.compression import MAX_FILE_BYTES


def read_regular_file(path: Path | str) -> bytes:
    """The content of a regular file. Raises ``OSError`` also for a pipe or device, which could be read without end,
    and for a file of more than ``MAX_FILE_BYTES``."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe would wait for its writer
    try:
        status = os.fstat(handle)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "Not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        parts = []
        while part := os.read(handle, 1 << 24):
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)
    finally:
        os.close(handle)
