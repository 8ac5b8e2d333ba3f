"""What a template of the admin's own may say, as it is rendered: without the process around it."""

from contextlib import suppress
from dataclasses import replace

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver_builder.builds.templates.template_engine import TemplateInvalid, rendered
from driver_builder.builds.templates.template_values import template_values
from driver_builder.model.build import SourceFiles
from tests.support.driver_builder.factories import node, snapshot
from tests.support.driver_builder.plans import request_of

PLACE = "ConfigMap team/edu/Dockerfile.j2"
VALUES = template_values(replace(request_of(snapshot(node())), source=SourceFiles(files={})))


def own(text: str) -> str:
    """Render a text as an admin's template."""
    return rendered(PLACE, VALUES, jinja2.DictLoader({PLACE: text}))


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        pytest.param(
            "FROM {{ base_image }}\nRUN {{ kernel_versio }}",
            2,
            "'kernel_versio' is undefined; there are architecture, base_image, build_packages, driver, extra_symvers,",
            id="unknown value",
        ),
        pytest.param("FROM x\n\n{% if %}\n", 3, "Expected an expression", id="syntax error"),
        pytest.param("FROM x\n{% for a in modules %}\n", 2, "Unexpected end of template", id="a loop without an end"),
        pytest.param("a\nb\n{{ modules.pop() }}", 3, "pop", id="a value that is to be changed"),
        pytest.param("a\n{{ version.missing.more }}", 2, "has no attribute 'missing'", id="unknown attribute"),
        pytest.param("a\n{{ 1 / 0 }}", 2, "division by zero", id="arithmetic"),
        pytest.param("a\n{% for i in range(10000000) %}x{% endfor %}", 2, "Range too big", id="a huge loop"),
        pytest.param("a\n{{ {}['b'] }}", 2, "'dict object' has no attribute 'b'", id="a key that is not there"),
        pytest.param("a\n{% include '/etc/passwd' %}", 2, "it cannot include '/etc/passwd'", id="a file"),
        pytest.param("a\n{% import 'os' as os %}", 2, "it cannot include 'os'", id="another template"),
        pytest.param("a\n{% extends 'b' %}", 2, "it cannot include 'b'", id="a base template"),
        pytest.param("a\n{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", 2, "recursion", id="a loop of macros"),
    ],
)
def test_an_error_in_an_own_template_is_reported_by_its_line(text: str, line: int, message: str) -> None:
    """With the ConfigMap and its key, and what is wrong there; it is the template's fault, and never a crash."""
    with pytest.raises(TemplateInvalid) as caught:
        own(text)
    assert str(caught.value).startswith(f"template {PLACE}:{line} cannot be rendered: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "expression",
    [
        "''.__class__.__mro__[1].__subclasses__()",
        "modules.__init__.__globals__",
        "self.__init__.__globals__",
        "cycler.__init__.__globals__.os",
        "lipsum.__globals__['os'].popen('id').read()",
        "''['__class__']",
        "version | attr('__class__')",
        "'{0.__class__}'.format(version)",
        "'{0.__class__.__mro__}'.format_map({'0': 1})",
        "joiner.__init__.__globals__",
        "namespace.__class__",
        "version.format.__self__.__class__",
        "get_flashed_messages.__globals__",
        "request.application.__globals__",
    ],
)
def test_an_own_template_does_not_leave_its_sandbox(expression: str) -> None:
    """It is a text out of the cluster: it reaches neither Python nor files, it is refused."""
    with pytest.raises(TemplateInvalid):
        own(f"{{{{ {expression} }}}}")


def test_a_dockerfile_has_an_end() -> None:
    """A template that multiplies is stopped."""
    text = "{% for i in range(50000) %}{{ 'x' * 1000 }}{% endfor %}"
    with pytest.raises(TemplateInvalid, match="renders to more than 1048576 characters"):
        own(text)


@given(st.text(alphabet="{}%# ()[]|.'\"_abmodulesversion0123+*\n", max_size=60))
def test_no_text_of_an_own_template_is_a_crash(text: str) -> None:
    """It is rendered, or it is the template's fault."""
    with suppress(TemplateInvalid):
        own(text)


def test_a_text_that_is_no_utf8_is_refused() -> None:
    """A Dockerfile is written in UTF-8."""
    with pytest.raises(TemplateInvalid, match="a character that is not valid in UTF-8"):
        own("FROM \ud800")
