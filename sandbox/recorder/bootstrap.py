"""Entry of the recorder: `python bootstrap.py CONFIG.json`, under the user's interpreter."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PRIVATE_NAME = "_headroom_recorder"


def load_package(name: str, folder: Path) -> ModuleType:
    """Import a package from its folder under a name of our choosing; its relative imports then work."""
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load_recorder() -> ModuleType:
    """The recorder's session. Our folder leaves `sys.path` before any of the user's code runs."""
    folder = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if entry != str(folder)]
    load_package(PRIVATE_NAME, folder)
    return importlib.import_module(f"{PRIVATE_NAME}.session")


if __name__ == "__main__":
    # In no function: see `launch.load`.
    _recorder = load_recorder()
    _session = _recorder.begin(sys.argv[1])
    _error: "BaseException | None" = None
    try:
        exec(*_recorder.load(_session.config.program))
    except BaseException as _caught:
        _error = _caught
    _recorder.leave(_session, _error)
