"""The errors that a user can meet, one tree.

    MitlError
    ├── UsageError          the command line asks for something that cannot be meant (exit status 2)
    │   └── FormError       a command, a wording or an option is for data sets of another form
    ├── SettingsError       mitl.toml, the environment or credentials
    ├── DatasetError        a data file is missing, malformed or inconsistent
    ├── AnnotatorError      a machine annotator is unknown, lacks its weights or misfits the data
    ├── RetrievalError      rankings: depth, shapes, ids
    ├── ProposalError       sampling of queries, gold controls
    ├── PackingError        pairs that cannot be put on pages
    ├── TemplateError       a HIT template, or a page that breaks a limit
    ├── CrowdError          the requester API answered with an error or an impossible state
    │   ├── EndpointError   nothing answers at the endpoint, or another server than the one expected
    │   └── FundsError      the balance or the cost ceiling does not allow the call
    ├── AnswerError         an answer document that cannot be read at all
    ├── StoreError          the database: version, uniqueness, missing rows
    │   └── OutageError     it cannot be reached or used: down, busy, full, damaged, closed to this user
    ├── AuditError          a sample that cannot be drawn, a bound that its answers cannot give
    │   └── TooFewAnswersError  more candidates have to be asked at random first
    ├── TrainingError       too little to learn from, a network that cannot train, weights of another one
    ├── RoundError          a round that is not in the state that a step needs
    │   └── UnfusedError    its strategy goes by probabilities, and there are none
    ├── ReleaseError        building or reading a release
    └── MetricError         a metric that is undefined for its input

A message says what was found, what would be right and what to do next: lower case, the user's words quoted
with ``!r``, no final stop. The command line prints it as one line and exits with ``exit_status``.
"""


class MitlError(Exception):
    """Anything that a user can mend; shown as one line."""

    exit_status = 1


class UsageError(MitlError):
    """The command line asks for something that cannot be meant."""

    exit_status = 2


class FormError(UsageError):
    """A command, a wording or an option is for data sets of another form, which the message names."""


class SettingsError(MitlError):
    """A setting is missing, malformed or contradicts another."""


class DatasetError(MitlError):
    """A data file is missing, malformed or inconsistent with the others."""


class AnnotatorError(MitlError):
    """A machine annotator is unknown, lacks its weights or misfits the data."""


class RetrievalError(MitlError):
    """Rankings cannot be made or read: depth, shapes or ids disagree."""


class ProposalError(MitlError):
    """Queries cannot be sampled or gold controls cannot be drawn."""


class PackingError(MitlError):
    """Pairs cannot be put on pages under the packing invariants."""


class TemplateError(MitlError):
    """A HIT template is unknown or broken, or a rendered page breaks a limit."""


class CrowdError(MitlError):
    """The requester API answered with an error or with an impossible state."""

    code: str | None = None
    """The API's TurkErrorCode, where it gave one."""
    unclear: bool = False
    """Whether the call may have had its effect all the same, because its reply never came."""


class EndpointError(CrowdError):
    """Nothing answers at the endpoint, or another server than the expected one."""


class UntraceableError(CrowdError):
    """A call may have had its effect, and the server has nothing left by which that could be found out."""


class FundsError(CrowdError):
    """The balance or the cost ceiling does not allow a call."""


class AnswerError(MitlError):
    """An answer document cannot be read at all."""


class StoreError(MitlError):
    """The database is of another version, lacks a row or refuses a duplicate."""


class OutageError(StoreError):
    """The database cannot be reached or used, which may be over a while later."""


class AuditError(MitlError):
    """An audit cannot be drawn, or its answers cannot give a bound."""


class TooFewAnswersError(AuditError):
    """More candidates have to be answered, drawn at random, before anything can be estimated from them."""


class TrainingError(MitlError):
    """An annotator cannot learn from what there is."""


class RoundError(MitlError):
    """A round is not in the state that was asked for: closed already, not open, a step missing."""


class UnfusedError(RoundError):
    """A strategy goes by probabilities, and no pair has one yet."""


class ReleaseError(MitlError):
    """A release cannot be built or read."""


class MetricError(MitlError):
    """A metric is undefined for its input."""
