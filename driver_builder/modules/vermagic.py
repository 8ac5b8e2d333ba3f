"""Version magic: the words that a module and a kernel must have in common before anything else is compared.

Place in the flow: ``verify`` compares the words of modules with each other's and with what is known of a kernel.
``6.1.0-55-cloud-amd64 SMP preempt mod_unload modversions`` is the release and what the kernel was built with.

Source: the kernel's ``include/linux/vermagic.h``; ``same_magic`` in ``kernel/module/version.c`` leaves the release out
when the module carries CRCs, and compares all that follows, word by word in this order.
"""

OPTIONS = {
    "SMP": "CONFIG_SMP",
    "preempt": "CONFIG_PREEMPT_BUILD",
    "preempt_rt": "CONFIG_PREEMPT_RT",
    "mod_unload": "CONFIG_MODULE_UNLOAD",
    "modversions": "CONFIG_MODVERSIONS",
}
"""Words that stand for one option; the others name an architecture or a layout (``aarch64``, ``RANDSTRUCT_...``)."""
ARCHITECTURE_WORDS = {"arm64": "aarch64"}
"""Kubernetes' word for an architecture to the one in every version magic of it, where it has one."""
MODVERSIONS = "modversions"


def release_of(vermagic: str) -> str:
    """The kernel release: the first word."""
    return vermagic.partition(" ")[0]


def words_of(vermagic: str) -> tuple[str, ...]:
    """What follows the release."""
    return tuple(vermagic.split()[1:])


def difference(found: str, expected: str) -> str:
    """In words, what ``found`` has and lacks beside the release; empty when the kernel would see no difference."""
    mine, theirs = words_of(found), words_of(expected)
    if mine == theirs:
        return ""
    lacks = [_explained(word) for word in theirs if word not in mine]
    has = [_explained(word) for word in mine if word not in theirs]
    parts = [f"{verb} {', '.join(words)}" for verb, words in (("lacks", lacks), ("has", has)) if words]
    return " and ".join(parts) or f"has its words in another order ({' '.join(mine)})"


def _explained(word: str) -> str:
    return f"{word} ({OPTIONS[word]})" if word in OPTIONS else word
