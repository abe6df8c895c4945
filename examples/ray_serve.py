"""The whole service as a Ray Serve application: as many replicas as wanted, one model, labels that all of them share.

    DECAF_MODEL=/models/my-model DECAF_LABELS=postgresql://me@db/shop serve run examples.ray_serve:application

The model's folder must be there on every machine, under the same path; processes of one machine share its pages. With
labels in PostgreSQL, one that is added at any replica is soon known to all. For another model, deploy anew.
"""

from __future__ import annotations

import os
from pathlib import Path

from fastapi import FastAPI
from ray import serve

from decaf.serving.app import create_app
from decaf.serving.engine import Engine
from decaf.serving.service import Service
from decaf.serving.settings import ServeSettings

REPLICAS = int(os.environ.get("DECAF_REPLICAS", "2"))
PLACES = {name: os.environ[name] for name in ("DECAF_MODEL", "DECAF_LABELS") if name in os.environ}


def replica() -> FastAPI:
    """The app of one replica, ready to answer."""
    settings = ServeSettings(labels=os.environ.get("DECAF_LABELS", ""))
    service = Service(Engine(Path(os.environ["DECAF_MODEL"]), settings.labels), settings)
    service.engine.load()
    return create_app(service)


@serve.deployment(
    num_replicas=REPLICAS,
    max_ongoing_requests=64,
    ray_actor_options={"num_cpus": 1, "runtime_env": {"env_vars": PLACES}},
)
@serve.ingress(replica)
class Labels:
    """One replica."""


application = Labels.bind()  # type: ignore[attr-defined]
