"""Ids that Gymnasium does not know: the package that has them, or the version that is offered."""

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
"""How ids begin, what pip calls the package that registers them, and the module that does it when
it is imported."""


def advice(name: str) -> str | None:
    """What to do to get the environment of an id that is not registered, in one sentence; None if nobody knows."""
    module, _, id_ = name.rpartition(":")
    for beginning, (package, its_module) in PACKAGES.items():
        if id_.startswith(beginning) and (module != its_module or find_spec(its_module) is None):
            return f"{id_!r} belongs to the package {_how_to_get(package, its_module)}{its_module + ':' + id_!r}."
    offered = _newest(id_)
    return (
        None
        if offered in (None, id_)
        else f"{id_!r} is not offered by what is installed: use {offered!r}."
    )


def _how_to_get(package: str, module: str) -> str:
    if find_spec(module) is not None:
        return f"{module}, which is installed but was not imported: write "
    return f"{module}, which is not installed: `pip install '{package}'`, then write "


def _newest(id_: str) -> str | None:
    """The registered id of the same name with the highest version."""
    import gymnasium as gym

    base, dash, version = id_.rpartition("-v")
    if not dash or not version.isdecimal():
        return None
    same = [
        spec
        for spec in gym.registry.values()
        if spec.id.rpartition("-v")[0] == base and spec.version is not None
    ]
    return max(same, key=lambda spec: spec.version or 0).id if same else None
