"""What can be wrong with a template, when it is parsed and when it is expanded.

::

    TemplateError           what the caller sees; the message begins with the line inside the template
    └── FunctionError       raised inside a function or a limit, where the line is not known yet
"""

from nfd_worker.errors import NfdWorkerError


class TemplateError(NfdWorkerError):
    """A template does not parse, or cannot be expanded over this node's features."""


class FunctionError(TemplateError):
    """A function refuses its arguments; the evaluator adds the line and the function's name."""
