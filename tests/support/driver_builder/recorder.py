"""Writes the journal of a world: a state before each reconcile, after each of its writes, and after each round."""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from driver_builder.model.images import MODULES_LABEL
from kube_api.client import Object
from tests.support.driver_builder.invariants import examine
from tests.support.driver_builder.journal import KINDS, Journal, Kernel, State, Write, kind_of
from tests.support.driver_builder.memory_client import copied
from tests.support.driver_builder.model_world import World

_METHODS = {"create": "POST", "replace": "PUT", "apply": "APPLY", "patch": "PATCH", "delete": "DELETE"}


class Recorder:
    """Follows a world from its begin; ``journal`` is what has happened so far."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._states: list[State] = []
        self._objects: dict[str, Object] = {}
        self._kernels: dict[str, Kernel] = {}
        self._images: dict[str, frozenset[str]] = {}
        self._reconcile = self._seen = 0
        self._is_writing = self._is_healed = False
        self._started: set[str] = set()
        self.broken: set[str] = set()
        """The invariants that a test breaks on purpose."""
        self._scan()
        self._follow_requests()
        self._follow_rounds()

    def journal(self) -> Journal:
        """Return the journal as it is now."""
        self._scan()
        symbols: Mapping[str, set[str]] = getattr(self._world, "made_for", {})
        return Journal(
            states=self._states,
            symbols={identity: frozenset(others) for identity, others in symbols.items()},
            users=getattr(self._world, "uses", {}),
        )

    def rest(self, *, again: bool = False) -> Counter[str]:
        """Note that nothing has moved in the last round, or moves if the controller reconciles ``again``; check all."""
        if again:
            self._world.reconcile()
        self._scan(is_rest=True)
        return self.check()

    def ended(self) -> Counter[str]:
        """Check the journal of a world at rest in which nothing is in the way; count the premises of invariants."""
        self._scan()
        self._world.reconcile()
        self._is_healed = True
        self._scan(is_rest=True)
        self._is_healed = False
        return self.check()

    def check(self) -> Counter[str]:
        """Check the journal as it is now; count the premises of invariants."""
        found = examine(self.journal())
        wrong = [item for item in found.violations if item.name not in self.broken]
        assert not wrong, wrong
        return found.occurred

    def _follow_requests(self) -> None:
        client: Any = self._world.client

        def follow(name: str, method: str) -> None:
            request = getattr(client, name)

            def sent(path: str, body: Object | None = None, /, **settings: Any) -> Object:
                if not self._is_writing:
                    answer: Object = request(path, *(() if body is None else (body,)), **settings)
                    return answer
                nested, self._is_writing = self._is_writing, False
                try:
                    answer = request(path, *(() if body is None else (body,)), **settings)
                finally:
                    self._is_writing = nested
                self._note(Write(method=method, path=path, body=json.loads(json.dumps(body or {}))))
                return answer

            setattr(client, name, sent)

        for name, method in _METHODS.items():
            follow(name, method)

    def _follow_rounds(self) -> None:
        world: Any = self._world
        reconcile, turn = world.reconcile, world.turn

        def reconciled(after_each: Callable[[Any], bool] = lambda _done: False) -> Any:
            self._scan()
            self._reconcile += 1
            if not getattr(world, "is_stale", False) or world._cache is None:
                self._seen = len(self._states) - 1
            self._started = set(map(str, self._running()))

            def done(action: Any) -> bool:
                self._note_builds()
                return after_each(action)

            self._is_writing = True
            try:
                return reconcile(done)
            finally:
                self._is_writing = False

        def turned() -> None:
            turn()
            self._scan()

        world.reconcile, world.turn = reconciled, turned

    def _running(self) -> list[object]:
        return [action.image for action in self._world.builds.running.values()]

    def _note_builds(self) -> None:
        if new := set(map(str, self._running())) - self._started:
            self._started |= new
            self._add(started=tuple(sorted(new)))

    def _note(self, write: Write) -> None:
        """Note a write, and what has become of its object."""
        path = write.path.removesuffix("/status").removesuffix("/eviction")
        if write.method == "POST" and not write.path.endswith("/eviction"):
            path = f"{path}/{write.body['metadata']['name']}"
        if kind_of(path) in KINDS:
            self._objects = {**self._objects}
            self._take_over(path)
        self._add(write=write)

    def _take_over(self, path: str) -> None:
        if (obj := self._world.client.objects.get(path)) is None:
            self._objects.pop(path, None)
        else:
            self._objects[path] = copied(obj)

    def _scan(self, *, is_rest: bool = False) -> None:
        """Note all that has changed since the last state."""
        now = self._world.client.objects
        changed = [
            path for path, obj in now.items() if path.split("/")[-2] in KINDS and self._objects.get(path) != obj
        ] + [path for path in self._objects if path not in now]
        kernels, images = self._read_kernels(), self._read_images()
        if changed:
            self._objects = {**self._objects}
            for path in changed:
                self._take_over(path)
        if changed or is_rest or not self._states or kernels is not self._kernels or images is not self._images:
            self._kernels, self._images = kernels, images
            self._add(is_rest=is_rest)

    def _read_kernels(self) -> dict[str, Kernel]:
        world = self._world
        broken = getattr(world, "dead_devices", ())
        found = {
            name: Kernel(boot=world.boots[name], live=dict(live), is_broken=name in broken)
            for name, live in world.live.items()
        }
        return self._kernels if found == self._kernels else found

    def _read_images(self) -> dict[str, frozenset[str]]:
        every = self._world.registries.images
        if len(every) == len(self._images) and all(str(image) in self._images for image in every):
            return self._images
        return {
            str(image): frozenset(module["identity"] for module in json.loads(labels.get(MODULES_LABEL) or "[]"))
            for image, labels in every.items()
        }

    def _add(self, *, write: Write | None = None, started: tuple[str, ...] = (), is_rest: bool = False) -> None:
        self._states.append(
            State(
                objects=self._objects,
                kernels=self._kernels,
                images=self._images,
                write=write,
                started=started,
                reconcile=self._reconcile,
                seen=self._seen,
                bad=frozenset(getattr(self._world, "bad", ())),
                is_rest=is_rest,
                is_healed=self._is_healed,
            )
        )
