"""Hints for ids that Gymnasium does not know: their package, or the version that is offered."""

from importlib.util import find_spec

PACKAGES = {
    "MiniGrid-": ("minigrid", "minigrid"),
    "BabyAI-": ("minigrid", "minigrid"),
    "MiniWorld-": ("miniworld", "miniworld"),
    "ALE/": ("ale-py", "ale_py"),
    "highway-": ("highway-env", "highway_env"),
    "Panda": ("panda-gym", "panda_gym"),
    "FlappyBird-": ("flappy-bird-gymnasium", "flappy_bird_gymnasium"),
    "Meta-World/": ("metaworld", "metaworld"),
    "dm_control/": ("shimmy[dm-control]", "shimmy"),
    "Fetch": ("gymnasium-robotics", "gymnasium_robotics"),
    "Hand": ("gymnasium-robotics", "gymnasium_robotics"),
    "AdroitHand": ("gymnasium-robotics", "gymnasium_robotics"),
    "AntMaze_": ("gymnasium-robotics", "gymnasium_robotics"),
    "PointMaze_": ("gymnasium-robotics", "gymnasium_robotics"),
    "FrankaKitchen-": ("gymnasium-robotics", "gymnasium_robotics"),
    "mo-": ("occupax[mo]", "mo_gymnasium"),
    "deep-sea-treasure": ("occupax[mo]", "mo_gymnasium"),
    "resource-gathering": ("occupax[mo]", "mo_gymnasium"),
    "four-room": ("occupax[mo]", "mo_gymnasium"),
    "fruit-tree": ("occupax[mo]", "mo_gymnasium"),
    "breakable-bottles": ("occupax[mo]", "mo_gymnasium"),
    "minecart": ("occupax[mo]", "mo_gymnasium"),
    "water-reservoir": ("occupax[mo]", "mo_gymnasium"),
}
"""Package on the index and module that register the ids with each prefix."""


def missing_env_hint(name: str) -> str | None:
    """Return a sentence on how to get an id that is not registered. None if unknown."""
    module, _, id_ = name.rpartition(":")
    for prefix, (package, package_module) in PACKAGES.items():
        if not id_.startswith(prefix):
            continue
        is_installed = find_spec(package_module) is not None
        if is_installed and module == package_module:
            continue
        full_name = f"{package_module}:{id_}"
        state = "is not installed"
        command = f"`pip install '{package}'`, then write {full_name!r}"
        if is_installed:
            state = "is installed but was not imported"
            command = f"write {full_name!r}"
        return f"{id_!r} belongs to the package {package_module}, which {state}: {command}."
    newest = _newest_version(id_)
    if newest in (None, id_):
        return None
    return f"{id_!r} is not offered by what is installed: use {newest!r}."


def _newest_version(id_: str) -> str | None:
    """Return the registered id of the same name with the highest version."""
    import gymnasium as gym

    base, dash, version = id_.rpartition("-v")
    if not dash or not version.isdecimal():
        return None
    versions: dict[int, str] = {}
    for spec in gym.registry.values():
        if spec.version is not None and spec.id.rpartition("-v")[0] == base:
            versions[spec.version] = spec.id
    return versions[max(versions)] if versions else None
