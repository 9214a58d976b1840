"""Whether the web UI of a home answers: `python -m graphmill.jobs.web.healthy` ends with 0 if it does, else with 1.

It is the health check of the image.
"""

import sys
import urllib.request

from graphmill.assets.storage.names.home import home_folder

LOCK = "ui.lock"
"""File of the home into which a web UI writes its address."""
PAGE = "/server_info"
TIMEOUT_SECONDS = 8.0


def answers() -> bool:
    """Asks the web UI of the home at the address in its lock; returns whether it answered."""
    try:
        address = (home_folder(None) / LOCK).read_text().strip()
        with urllib.request.urlopen(address + PAGE, timeout=TIMEOUT_SECONDS):
            return True
    except (OSError, ValueError) as error:
        print(f"the web UI does not answer: {error}", file=sys.stderr)
        return False


if __name__ == "__main__":
    sys.exit(0 if answers() else 1)
