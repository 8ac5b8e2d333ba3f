"""The exceptions of the rule engine.

::

    FeatureRulesError
    ├── MatchError            a rule could not be decided or its output not made: only that rule is left out
    └── TemplateError         a template of a rule; the message begins with the line inside the template
        └── FunctionError     raised inside a function or a limit, where the line is not known yet
"""


class FeatureRulesError(Exception):
    """Root of everything the rule engine raises on purpose."""


class MatchError(FeatureRulesError):
    """A condition of a rule makes no sense, alone or for the value it met; the message names what is wrong with it."""


class TemplateError(FeatureRulesError):
    """A template does not parse, or cannot be expanded over this node's features."""


class FunctionError(TemplateError):
    """A function refuses its arguments; the evaluator adds the line and the function's name."""
