"""Folders of runs that were changed by someone who knows how: with correct checksums, fingerprints and marks."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from occupax.io import codec
from occupax.io.checksummed_json import read_json, write_sealed
from occupax.io.run_folder import _fingerprint


def reseal(folder: Path) -> None:
    """Make all checksums of a folder those of what it holds."""
    arrays, _ = codec.read(folder / "config.safetensors")
    config = _unsealed(folder / "config.json")
    config["fingerprint"] = _fingerprint(config["setup"], arrays)
    write_sealed(folder / "config.json", config)
    records = (folder / "metrics.csv").read_bytes() if (folder / "metrics.csv").exists() else b""
    for file in (folder / "checkpoint").glob("iteration-*"):
        arrays, content = codec.read(file)
        content["fingerprint"] = config["fingerprint"]
        if content.get("metrics"):
            size = content["metrics"]["bytes"]
            content["metrics"]["sha256"] = sha256(
                records[:size] if type(size) is int else b""
            ).hexdigest()
        codec.write(file, arrays, content)
    if (folder / "summary.json").exists():
        summary = _unsealed(folder / "summary.json")
        names = json.loads((folder / "summary.json").read_text()).get("files", {})
        summary["fingerprint"] = config["fingerprint"]
        write_sealed(
            folder / "summary.json", summary, [name for name in names if (folder / name).is_file()]
        )


def _unsealed(file: Path) -> dict[str, Any]:
    content = read_json(file)
    return {name: value for name, value in content.items() if name not in ("checksum", "files")}
