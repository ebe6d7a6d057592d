"""MACRO: Markov chain routing of transformer layers. Runs the layers of a frozen language model in a better order."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("macro-routing")
except PackageNotFoundError:  # a source tree on PYTHONPATH, as on machines where nothing can be installed
    __version__ = "0+source"

__all__ = ["__version__"]
