"""Posting alerts to a webhook, as one JSON document."""

import json
import urllib.error
import urllib.request
from collections.abc import Sequence
from http.client import HTTPException
from typing import Final
from urllib.parse import urlsplit

from gads_assets.domain.alerting import Alert
from gads_assets.errors import AlertError

_PATIENCE_SECONDS: Final = 10.0


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A post that is sent on elsewhere arrives there as a GET without its document, and would pass for delivered."""

    def redirect_request(self, *_: object) -> None:
        return None


def post_alerts(url: str, alerts: Sequence[Alert]) -> None:
    """Raises AlertError unless the answer is a 2xx. The address may hold a token: messages have its host alone."""
    document = {"alerts": [_told(alert) for alert in alerts]}
    request = urllib.request.Request(  # noqa: S310  # settings allow http and https only
        url,
        data=json.dumps(document, ensure_ascii=False).encode(),
        headers={"Content-Type": "application/json; charset=utf-8", "User-Agent": "gads_assets"},
        method="POST",
    )
    host = urlsplit(url).hostname
    try:
        with urllib.request.build_opener(_NoRedirects).open(request, timeout=_PATIENCE_SECONDS):
            return
    except urllib.error.HTTPError as error:
        error.close()
        raise AlertError(f"the webhook at {host} answered {error.code}; alerts wait until it takes them") from None
    except OSError as error:
        reason = getattr(error, "reason", error)
        raise AlertError(f"the webhook at {host} does not answer ({reason}); alerts wait until it does") from None
    except (ValueError, HTTPException) as error:
        # Their texts may quote what came back, and that may repeat the address.
        said = type(error).__name__
        raise AlertError(f"the webhook at {host} does not speak HTTP ({said}); alerts wait until it does") from None


def _told(alert: Alert) -> dict[str, str]:
    key = alert.condition.key
    return {
        "id": alert.alert_id,
        "kind": alert.condition.kind,
        "source": key.source,
        "query": key.query_name,
        "customer_id": key.customer_id,
        "logical_date": key.logical_date.isoformat(),
        "reason": alert.condition.reason,
        "raised_at": alert.raised_at.isoformat(),
    }
