"""The whole service as a Ray Serve application: as many replicas as wanted, one model, labels that all of them share.

    DECAF_MODEL=/models/my-model DECAF_LABELS=postgresql://me@db/shop serve run examples.ray_serve:application

The model's folder must be there on every machine, under the same path; processes of one machine share its pages. With
labels in PostgreSQL, one that is added at any replica is soon known to all. DECAF_READ_KEY and DECAF_WRITE_KEY are
keys, as for `decaf serve`. For another model, deploy anew: replicas do not look for one.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fastapi import FastAPI
from ray import serve

from decaf.serving.app import create_app
from decaf.serving.engine import Engine
from decaf.serving.service import Service
from decaf.serving.settings import ServeSettings

REPLICAS = int(os.environ.get("DECAF_REPLICAS", "2"))


class Settings(NamedTuple):
    """What a replica is told, by the environment of the machine that deploys."""

    model: str
    service: ServeSettings

    @classmethod
    def read(cls) -> Settings:
        """From the same variables that `decaf serve` reads."""
        labels, read, write = (os.environ.get(f"DECAF_{name}", "") for name in ("LABELS", "READ_KEY", "WRITE_KEY"))
        return cls(os.environ["DECAF_MODEL"], ServeSettings(labels=labels, read_key=read, write_key=write))


def replica_of(settings: Settings) -> Callable[[], FastAPI]:
    """What makes the app of a replica, ready to answer."""

    def replica() -> FastAPI:
        service = Service(Engine(Path(settings.model), settings.service.labels), settings.service)
        service.engine.load()
        return create_app(service)

    return replica


@serve.deployment(num_replicas=REPLICAS, max_ongoing_requests=64, ray_actor_options={"num_cpus": 1})
@serve.ingress(replica_of(Settings.read()))
class Labels:
    """One replica."""


application = Labels.bind()  # type: ignore[attr-defined]
