"""The driver of ImagePredictor: a digest of the folder, so that new files are not a cache hit."""

from __future__ import annotations

from components.contract.lookup_driver import LookupDriver
from components.predict.lookup import look_up


class Driver(LookupDriver):
    """Lists the folder before the cache is consulted."""

    lookup_function = staticmethod(look_up)
    lookup_properties = ("folder",)
