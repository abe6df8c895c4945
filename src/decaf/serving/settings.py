"""What a server is told: where to listen, its limits and its keys."""

from __future__ import annotations

from dataclasses import dataclass

from decaf.errors import ConfigError

__all__ = ["ServeSettings"]

_POSITIVE = (
    *("workers", "threads", "body_bytes", "texts", "text_length", "top", "rows", "queue", "concurrency"),
    *("timeout", "drain", "idle", "connections", "head_bytes", "unsent_bytes"),
)


@dataclass(frozen=True)
class ServeSettings:
    """Where a server listens, what it bounds, and who may ask it."""

    host: str = "127.0.0.1"
    port: int = 8000  # 0: one that is free
    workers: int = 1  # processes
    threads: int = 1  # of each worker's scorer
    labels: str = ""  # file of the live labels; empty: beside the model
    watch: bool = True  # load the folder anew when another model stands there
    verify: bool = True  # compare its files with their checksums
    read_key: str = ""  # empty: everybody may read
    write_key: str = ""  # empty: who may read may write
    cors: tuple[str, ...] = ()  # origins whose pages may ask
    body_bytes: int = 1 << 20
    texts: int = 256  # of one request
    text_length: int = 10_000  # characters
    top: int = 100
    rows: int = 10_000  # of a CSV file
    queue: int = 1_024  # requests that wait to be scored
    concurrency: int = 2_048  # requests at once, in each worker
    timeout: float = 10.0  # seconds for a request
    drain: float = 30.0  # seconds that running requests have to end after SIGTERM
    idle: float = 75.0  # seconds that a connection may do nothing: longer than proxies keep one
    connections: int = 16_384  # at once, in each worker
    head_bytes: int = 32_768  # of the address and the headers of a request
    unsent_bytes: int = 1 << 28  # of answers that clients do not take, in each worker

    def __post_init__(self) -> None:
        for name in _POSITIVE:
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be above 0, not {getattr(self, name)!r}")
        for origin in self.cors:
            if origin != "*" and not origin.startswith(("http://", "https://")):
                raise ConfigError(f"{origin!r} is no origin; write it as https://shop.example, or * for all")
        if not 0 <= self.port < 1 << 16:
            raise ConfigError(f"port must be from 0 to 65535, not {self.port}")
