"""A custom template that leaves out the image of tools which the spec names. Pure.

Place in the flow: ``lint`` calls it, where the ConfigMap with the template is among the files. What else a template
leaves out ends the build; this changes nothing in an image, and so does not.
"""

from collections.abc import Iterator

from driver_builder.api.driver_spec import DriverSpec
from driver_builder.builds.templates.template_engine import TemplateInvalid, mentioned


def without_tools_image(spec: DriverSpec, template: str | None) -> Iterator[str]:
    """Return what is wrong with ``build.toolsImage``; nothing where the template is not known, or does not parse."""
    place = spec.build.template_config_map
    if place is None or template is None or not spec.build.tools_image:
        return
    try:
        found = mentioned(template)
    except TemplateInvalid:
        # The build says so, with the line.
        return
    if "tools_image" not in found:
        yield f"has no effect: the template in ConfigMap {place.name} does not mention tools_image"
