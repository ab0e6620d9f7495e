"""Files of a run that are stored compressed: gzip, so that ``zcat`` reads them too."""

from __future__ import annotations

import zlib

#: Suffix of a compressed file. Reading goes by content: runs of older versions hold plain files.
SUFFIX = ".gz"
#: No file of a run is expanded beyond this: about a million lines of a trace.
MAX_FILE_BYTES = 1 << 28
_MAGIC = b"\x1f\x8b"
_GZIP = 31  #: ``wbits`` of zlib: the gzip format
_LEVEL = 1  #: a trace of 12.8 MB: 47 ms to 0.85 MB; level 6 takes 3 times as long for a quarter less


class CompressionError(ValueError):
    """The bytes are not what was compressed, or expand beyond the limit."""


def compress(data: bytes) -> bytes:
    """``data`` in the gzip format without a time stamp: equal data give equal bytes."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    return packer.compress(data) + packer.flush()


def expand(data: bytes, limit: int = MAX_FILE_BYTES) -> bytes:
    """``data``, expanded where it is compressed. Raises :class:`CompressionError` before more than ``limit`` bytes."""
    if not data.startswith(_MAGIC):
        out = data
    else:
        unpacker = zlib.decompressobj(_GZIP)
        try:
            out = unpacker.decompress(data, limit + 1)
        except zlib.error as e:
            raise CompressionError(f"its compressed data are damaged ({e})") from None
        if len(out) <= limit and (not unpacker.eof or unpacker.unused_data):
            raise CompressionError("its compressed data are cut off" if not unpacker.eof else "data follow its end")
    if len(out) > limit:
        raise CompressionError(f"it is larger than {limit >> 20} MiB")
    return out
