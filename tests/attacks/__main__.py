"""All attacks, with their counts: `make attack`. It takes about an hour on two cores."""

import sys
import time
from typing import Any

from attacks import disk, folders, inputs, kills, memory, simulators


def say(text: Any) -> None:
    """Print a line at once."""
    print(text, flush=True)  # noqa: T201


def main() -> None:
    """Run the named attacks or all of them. The exit code is 1 after any wrong result."""
    kinds: dict[str, Any] = {
        "inputs": inputs.attack,
        "folders": folders.attack,
        "simulators": simulators.attack,
        "disk": disk.attack,
        "kills": kills.attack,
        "signals": kills.interrupt,
        "memory": lambda say: memory.measure(600.0, say),
    }
    wrong = 0
    for name in sys.argv[1:] or kinds:
        began = time.monotonic()
        counts = kinds[name](say)
        wrong += counts.get("wrong", 0) + (counts.get("MB a minute", 0.0) > 1.0)
        say(f"{name}: {counts}, in {time.monotonic() - began:.0f} s")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
