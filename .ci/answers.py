"""Wait until an address answers with a page, and fail when it does not within five minutes.

python .ci/answers.py http://127.0.0.1:8888/lab
"""

from __future__ import annotations

import sys
import time
import urllib.error
import urllib.request

LIMIT_S = 300.0


def answers(address: str, limit_s: float = LIMIT_S) -> bool:
    """Return whether a GET of the address brings a page before the time is up."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(address, timeout=10) as response:  # noqa: S310 - this machine's own server
                return bool(response.status == 200 and response.read())
        except urllib.error.HTTPError as error:
            print(f"{address}: {error.code}")
            return False
        except OSError:
            time.sleep(0.2)
    print(f"{address} did not answer within {limit_s:.0f} s")
    return False


if __name__ == "__main__":
    sys.exit(0 if answers(sys.argv[1]) else 1)
