"""The files of the node as a source, shared by profiles: a change waits for what containers have, as with GPUs.

A resource that no profile shares is offered as it is described, and never waits. While one is shared, and until the
last container has given back what it got then, its units go the way of :mod:`device_agent.profiles.transition`.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from device_agent.allocations.remembered import Allocations
from device_agent.boot import read_boot_id
from device_agent.config.config_file import Description
from device_agent.config.options import Settings
from device_agent.devices.model import Policy, Traits, Unit
from device_agent.errors import ProfileRefused
from device_agent.profiles.current import Current, ProfileFolder
from device_agent.profiles.profile import Profile
from device_agent.profiles.transition import listed_units
from device_agent.profiles.verdict import Verdict
from device_agent.sources.files.by_profile import (
    Resources,
    as_described,
    in_another_way,
    offers,
    only_of,
    shares_in,
    together,
    with_common_units,
)
from device_agent.sources.files.files_source import FilesSource
from device_agent.sources.files.notes import folder_of_files
from device_agent.sources.profile_reading import ProfileReading
from device_agent.sources.said import Said
from device_agent.sources.sharing import Sharing, Supply
from device_agent.sources.source import Known, unchanged
from device_agent.users.asking import Users
from device_agent.users.look import Places
from file_watch.inotify import Place

log = logging.getLogger(__name__)


class Timing(NamedTuple):
    """Seconds. ``users``: from one look at who has devices to the next, while a change waits.

    ``first_ask``: after which the default profile counts where nobody asks for any, though somebody was expected to.
    ``moment``: how long a look waits for profiles; ``slow``: after which they count as ones that cannot be read.
    """

    users: float = 2.0
    first_ask: float = 30.0
    moment: float = 1.0
    slow: float = 10.0


USUAL = Timing()


class ProfiledFiles:
    """Finds units as ``FilesSource`` does. ``given``: remembers what was given of these resources, and nothing else.

    ``folder``: reads the profiles; that of the settings if none is given.
    """

    name = FilesSource.name

    def __init__(
        self,
        settings: Settings,
        given: Allocations | None = None,
        timing: Timing = USUAL,
        folder: ProfileFolder | None = None,
    ) -> None:
        # A file of its own: each source forgets what was given lately by what it has seen itself.
        self.given = given or Allocations(folder_of_files(settings.state_dir), read_boot_id("/"))
        self._files = FilesSource(settings.root)
        self._folder = folder or ProfileFolder(settings.profiles, settings.default_profile)
        self._timing = timing
        users = Users(Places.of(settings), self._wake_up, timing.users)
        self._sharing = Sharing(users, self.given, Said(log, "files"), "devices")
        self._reading = ProfileReading(self._folder, self._wake_up, moment=timing.moment, slow=timing.slow)
        self._asked: str | None = ""
        self._expected_since = 0.0
        self._current: Current | None = None
        self._shared: frozenset[str] | None = None
        self._direct: Resources = {}
        self._made: dict[str, tuple[Unit, ...]] = {}

    @property
    def resources(self) -> Known:
        """Return the units of all that is described, as they are offered; nothing before a profile was looked for."""
        if self._shared is None:
            return {}
        direct = {name: units for name, units in self._files.resources.items() if name not in self._shared}
        # One that is described has the name of another one's shares, as long as a container has such a share.
        both = {name: (*units, *(direct.get(name) or ())) for name, units in self._made.items() if name in direct}
        return {**direct, **self._made, **both}

    @property
    def missing(self) -> str:
        """Say why nothing can be offered yet."""
        return self._sharing.missing

    @property
    def verdict(self) -> Verdict:
        """Say what became of the profile that is asked for, at the last look; where nothing is described, nothing."""
        found = self._sharing.verdict if self._files.resources else Verdict()
        return replace(found, resources=tuple(sorted(self.resources)))

    def start(self, wake: Callable[[], None]) -> None:
        """Remember whom to wake."""
        self._wake = wake
        self._files.start(wake)

    def configure(self, description: Description) -> None:
        """Describe these resources and no others."""
        self._files.configure(description)

    def expect(self) -> None:
        """Wait for the first :meth:`ask` before anything is offered, or changed; not for ever."""
        self._asked, self._expected_since = None, asyncio.get_running_loop().time()

    def ask(self, key: str) -> None:
        """Have the profile with this key count from the next look on; empty: the default one."""
        if key != self._asked:
            self._asked = key
            self._wake()

    def places(self) -> Iterator[Place]:
        """Watch the folders of devices, and the profiles."""
        yield from self._files.places()
        yield Place(self._folder.path, self.name)

    async def look(self) -> None:
        """Look at all files, and go one step towards what the profile makes of them."""
        await self._files.look()
        if not self._files.resources:  # as where all are GPUs, whose source says what is wrong with the profile
            self._shared, self._direct, self._made = frozenset(), {}, {}
            return
        current = await self._read()
        if current is not None and await self._sharing.begin():
            self._advance(current)

    def traits(self, resource: str) -> Traits:
        """Have what is given remembered; what the profile says of shares counts for what it shares."""
        profile = self._sharing.good.profile
        if resource not in {becomes for becomes, _ in self._shares_of(profile).values()}:
            return Traits(is_remembered=True)
        policy = Policy.DISTRIBUTED if profile.policy is None else Policy(profile.policy)
        return Traits(is_remembered=True, policy=policy, one_share=profile.fails_greater_than_one)

    def registered(self, resources: frozenset[str], taken: frozenset[str] = frozenset()) -> None:
        """Take no note."""

    def commands(self, resource: str) -> Mapping[str, int]:
        """Count the commands of a resource, also under its new name."""
        name = self._described_as(resource)
        return self._files.commands(name) if name in self._files.resources else {}

    async def close(self) -> None:
        """End what is under way."""
        await self._sharing.close()
        await self._files.close()
        await self._reading.close()

    async def _read(self) -> Current | None:
        """Read the profile that counts; the last one while the disk does not answer, None while there is none yet."""
        is_due = asyncio.get_running_loop().time() >= self._expected_since + self._timing.first_ask
        if self._asked is not None or is_due:
            self._current = await self._reading.read(self._asked or "") or self._current
        return self._current

    def _advance(self, current: Current) -> None:
        """Go one step with the resources that a profile shares or shared, and offer the others as they are."""
        sharing = self._sharing
        resources = {name: units for name, units in self._files.resources.items() if units is not None}
        shared = self._involved(current, resources)
        units = {unit.id: unit for name in shared for unit in resources[name]}
        # What was offered as described until now is what containers may have: it has to end first.
        new = {name: self._direct[name] for name in shared if name in self._direct}
        sharing.listing = together(only_of(sharing.listing, units), as_described(new))
        sharing.advance_on(Supply(lambda profile: offers(profile, resources, shared), tuple(units)), current)
        self._shared = frozenset(shared)
        self._direct = {name: found for name, found in resources.items() if name not in shared}
        self._take(self._listed(resources, units), {name for name in shared if not resources[name]})

    def _involved(self, current: Current, resources: Resources) -> set[str]:
        """Name the resources that the profile shares or shared, and those of which somebody may have such a share."""
        profiles = [one for one in (current.profile, self._sharing.good.profile) if one is not None]
        named = {name for profile in profiles for name in self._shares_of(profile) if name in resources}
        # What a container has of a device stays, also where another resource has got the device meanwhile.
        return (named - with_common_units(resources)) | in_another_way(self._sharing.listing, resources)

    def _listed(self, resources: Resources, units: Mapping[str, Unit]) -> dict[str, tuple[Unit, ...]]:
        """Make the units of what is listed: where several resources have one, each as it is described itself."""
        made: dict[str, tuple[Unit, ...]] = {}
        for resource, devices in self._sharing.listing.items():
            own = {unit.id: unit for unit in resources.get(self._described_as(resource), ())}
            made |= listed_units({resource: devices}, {**units, **own})
        return made

    def _described_as(self, resource: str) -> str:
        """Return the name of a resource before it was shared."""
        names = {becomes: name for name, (becomes, _) in self._shares_of(self._sharing.good.profile).items()}
        return names.get(resource, resource)

    def _shares_of(self, profile: Profile) -> Mapping[str, tuple[str, int]]:
        with suppress(ProfileRefused):  # which is said where it is applied
            return shares_in(profile, self._files.resources)
        return {}

    def _take(self, made: Mapping[str, tuple[Unit, ...]], empty: Iterable[str]) -> None:
        """Offer these; units that are as before are the same object. A resource without any is offered all the same."""
        names = self._shares_of(self._sharing.good.profile)
        every = {**{names.get(name, (name, 0))[0]: () for name in empty}, **made}
        self._made = unchanged(self._made, every)

    def _wake_up(self) -> None:
        self._wake()
