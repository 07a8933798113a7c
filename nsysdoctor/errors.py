"""The few ways in which nsysdoctor says no."""

from __future__ import annotations

import traceback
from pathlib import Path

_MOST_TOLD = 300
"""Longer texts of errors that nobody foresaw are cut."""


class NsysDoctorError(Exception):
    """An answer for the user: what is wrong (`message`) and what to do (`hint`)."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __reduce__(self) -> tuple[type[NsysDoctorError], tuple[str, str]]:
        """Both words travel with an error that a worker process raises."""
        return type(self), (self.message, self.hint)


class UnreadableTraceError(NsysDoctorError):
    """The file is missing, cut off, corrupt or no nsys export."""


class EmptyTraceError(NsysDoctorError):
    """The export is sound and holds no GPU activity."""


class UsageError(NsysDoctorError):
    """An option, a limit or a configuration file cannot be meant as given."""


class RuleError(NsysDoctorError):
    """A rule's files contradict themselves or each other."""


class MissingTableError(NsysDoctorError):
    """The trace lacks what a table needs; a rule that asked for it is skipped.

    `hint` names the nsys option that records it.
    """


def unexpected(error: BaseException, what: str) -> NsysDoctorError:
    """Returns what to tell of an error that nobody foresaw: what could not be done, and where in
    the code it ended."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    text = str(error)[:_MOST_TOLD]
    return NsysDoctorError(
        f"{what}: {type(error).__name__}{': ' if text else ''}{text}{where}",
        "nsysdoctor --debug shows the traceback; please report it",
    )
