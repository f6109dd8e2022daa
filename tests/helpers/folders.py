"""Manipulated run folders with correct checksums, fingerprints and marks."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from occupax.io.files import read_arrays, read_json, write_arrays, write_json
from occupax.io.run_folder import fingerprint


def reseal(folder: Path) -> None:
    """Make all checksums of a folder those of what it holds."""
    arrays, _ = read_arrays(folder / "config.safetensors")
    config = _unsealed(folder / "config.json")
    config["fingerprint"] = fingerprint(config["setup"], arrays)
    write_json(folder / "config.json", config)
    records = (folder / "metrics.csv").read_bytes() if (folder / "metrics.csv").exists() else b""
    for file in (folder / "checkpoint").glob("iteration-*"):
        arrays, content = read_arrays(file)
        content["fingerprint"] = config["fingerprint"]
        if content.get("metrics"):
            size = content["metrics"]["bytes"]
            content["metrics"]["sha256"] = sha256(
                records[:size] if type(size) is int else b""
            ).hexdigest()
        write_arrays(file, arrays, content)
    if (folder / "summary.json").exists():
        summary = _unsealed(folder / "summary.json")
        names = json.loads((folder / "summary.json").read_text()).get("files", {})
        summary["fingerprint"] = config["fingerprint"]
        write_json(
            folder / "summary.json", summary, [name for name in names if (folder / name).is_file()]
        )


def _unsealed(file: Path) -> dict[str, Any]:
    content = read_json(file)
    return {name: value for name, value in content.items() if name not in ("checksum", "files")}
