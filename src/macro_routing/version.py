"""The version of this distribution."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("macro-routing")
except PackageNotFoundError:  # a source tree on PYTHONPATH, as on machines where nothing can be installed
    __version__ = "0+source"
