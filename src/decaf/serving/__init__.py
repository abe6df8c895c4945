"""The service: a model folder over HTTP, with labels that come and go."""

from decaf.serving.server import serve
from decaf.serving.settings import ServeSettings

__all__ = ["ServeSettings", "serve"]
