"""The first file of a model folder, model.json: whether there is a model, and whether this version can read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from decaf.config import too_deep
from decaf.errors import ModelError

__all__ = ["ADVICE", "FORMAT", "read_header"]

FORMAT = 9
_OLDEST = 5  # that is read
ADVICE = "remove the folder and train again, or restore it"


def read_header(folder: Path) -> dict[str, Any]:
    """What model.json says, checked as far as this version can read it."""
    path = folder / "model.json"
    if path.is_symlink() and path.is_file() and path.resolve().parent != folder.resolve():
        raise ModelError(f"{path}: is a link that leads out of the folder; copy the file there")
    if not path.is_file() and (folder / "checkpoint").is_dir():
        raise ModelError(f"{folder}: holds an unfinished run; run the same decaf train command again to go on")
    if not path.is_file():
        raise ModelError(f"{folder}: holds no model (there is no model.json); train one with decaf train")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version, files = content["format"], content["files"]
    except (ValueError, KeyError, TypeError, RecursionError, OSError) as error:
        raise ModelError(f"{path}: is damaged ({error}); {ADVICE}") from error
    if too_deep(content):
        raise ModelError(f"{path}: is damaged (nested too deeply); {ADVICE}")
    if not isinstance(version, int) or version > FORMAT:
        raise ModelError(f"{path}: has format {version!r} and this decaf reads up to {FORMAT}; install a newer decaf")
    if version < _OLDEST:
        raise ModelError(f"{path}: has format {version} from before the first release; train the model again")
    if not isinstance(files, dict) or not all(isinstance(digest, str) for digest in files.values()):
        raise ModelError(f"{path}: is damaged (files); {ADVICE}")
    if not isinstance(content.get("config"), dict):
        raise ModelError(f"{path}: is damaged (config); {ADVICE}")
    return dict(content)
