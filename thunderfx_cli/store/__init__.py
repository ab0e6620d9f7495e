"""Runs on disk."""

from thunderfx_cli.store.reader import RunEntry, StoredRun
from thunderfx_cli.store.store import Store
from thunderfx_cli.store.writer import RunWriter

__all__ = ["RunEntry", "RunWriter", "Store", "StoredRun"]
