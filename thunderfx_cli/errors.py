"""Errors that a user can cause, raised with the facts and shown in one place (``app.py``)."""

from __future__ import annotations

EXIT_OK = 0
EXIT_USER_CODE = 1  #: the user's model or script failed
EXIT_USAGE = 2
EXIT_GATE = 3
EXIT_NO_RUN = 4  #: no or bad run data
EXIT_INTERRUPTED = 130


class CommandError(Exception):
    """A failure that the user can act on.

    ``message`` says what happened; ``where`` is the user's ``file:line`` if there is one; ``hint`` says what to try.
    """

    def __init__(self, message: str, *, exit_code: int, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.where = where
        self.hint = hint


class UsageError(CommandError):
    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, exit_code=EXIT_USAGE, hint=hint)


class UserCodeError(CommandError):
    """The user's script or model raised. Chain the original exception with ``from``."""

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message, exit_code=EXIT_USER_CODE, where=where, hint=hint)


class RunDataError(CommandError):
    """There is no such run, or a stored run cannot be read."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message, exit_code=EXIT_NO_RUN, hint=hint)
