"""A server of objects in this process, for tests of those that share artifacts by GRAPHMILL_STORE."""

import http.client
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

BUCKETS = count()


@contextmanager
def served() -> Iterator[str]:
    """Yields the address of moto's server of S3."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def new_bucket(endpoint: str) -> dict[str, str]:
    """Makes a bucket, and returns the variables by which graphmill uses it."""
    name = f"bucket-{next(BUCKETS)}"
    connection = http.client.HTTPConnection(endpoint.removeprefix("http://"))
    connection.request("PUT", f"/{name}")
    assert connection.getresponse().status == 200
    connection.close()
    return {
        "GRAPHMILL_STORE": f"s3://{name}/shared",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
