"""Folders of runs that were changed by someone who knows how: with correct checksums, fingerprints and marks."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from occupax import serial
from occupax.training.folder import _fingerprint
from occupax.training.sealed import read_json, write_sealed


def reseal(folder: Path) -> None:
    """Make all checksums of a folder those of what it holds."""
    arrays, _ = serial.read(folder / "config.safetensors")
    config = _unsealed(folder / "config.json")
    config["fingerprint"] = _fingerprint(config["setup"], arrays)
    write_sealed(folder / "config.json", config)
    records = (folder / "metrics.csv").read_bytes() if (folder / "metrics.csv").exists() else b""
    for file in (folder / "checkpoint").glob("iteration-*"):
        arrays, content = serial.read(file)
        content["fingerprint"] = config["fingerprint"]
        if content.get("metrics"):
            size = content["metrics"]["bytes"]
            content["metrics"]["sha256"] = sha256(
                records[:size] if type(size) is int else b""
            ).hexdigest()
        serial.write(file, arrays, content)
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
