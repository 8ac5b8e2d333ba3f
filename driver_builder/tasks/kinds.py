"""All kinds of tasks."""

from driver_builder.tasks.proof_pod import PROOF
from driver_builder.tasks.pull_pod import PULL
from driver_builder.tasks.task_kind import TaskKind
from driver_builder.tasks.unload_pod import UNLOAD
from driver_builder.tasks.validation_pod import PLUGIN_VALIDATION, VALIDATION

KINDS: dict[str, TaskKind] = {kind.name: kind for kind in (UNLOAD, VALIDATION, PLUGIN_VALIDATION, PROOF, PULL)}
