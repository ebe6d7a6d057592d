"""The version of this distribution, ``__version__``, looked up when it is asked for.

``importlib.metadata`` reads and parses the installed package: a third of the time of ``macro --help``.
"""

from functools import cache


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _read_version()


@cache
def _read_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("macro-routing")
    except PackageNotFoundError:  # a source tree on PYTHONPATH, as on machines where nothing can be installed
        return "0+source"
