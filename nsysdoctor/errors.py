"""The few ways in which nsysdoctor says no."""

from __future__ import annotations


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
