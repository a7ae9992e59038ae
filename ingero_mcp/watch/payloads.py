"""What a webhook is sent about a notice: our own JSON, the shape of Alertmanager's webhook, or that of Slack's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Any, Final, TypeAlias

from ingero_mcp.cells import escaped
from ingero_mcp.notice import Notice, as_json
from ingero_mcp.windows import iso

Payload: TypeAlias = Callable[[Notice, str], dict[str, Any]]
"""From a notice and the address of this server to the body of a request."""

_PRIORITY: Final = {"HIGH": "critical", "MEDIUM": "warning", "LOW": "info"}
_NEVER: Final = "0001-01-01T00:00:00Z"  # how Alertmanager writes that an alert has not ended
_SLACK_TEXT: Final = 2900  # and three dots; a section takes 3000 characters
_LINES: Final = 8


def plain(notice: Notice, url: str) -> dict[str, Any]:
    """The notice as `GET /api/v1/findings` has it, and where to ask about it."""
    return as_json(notice) | {"server": url}


def alertmanager(notice: Notice, url: str) -> dict[str, Any]:
    """As Alertmanager's webhook (version 4): one alert, `firing` until it is closed, with a stable fingerprint."""
    status = "firing" if notice.is_open else "resolved"
    labels = {
        "alertname": "IngeroStall",
        "severity": _PRIORITY.get(notice.severity, "info"),
        "cluster": notice.cluster_id or "",
        "job": notice.job_id or "",
        "verdict": notice.verdict,
        "cause": notice.cause,
        "ranks": ",".join(map(str, notice.ranks)),
        "node": ",".join(notice.nodes),
    }
    labels = {name: value for name, value in labels.items() if value}
    annotations = {"summary": headline(notice), "description": " ".join(notice.summary), "window": notice.window}
    alert = {
        "status": status,
        "labels": labels,
        "annotations": annotations,
        "startsAt": iso(notice.start_ns),
        "endsAt": _NEVER if notice.end_ns is None else iso(notice.end_ns),
        "generatorURL": url,
        "fingerprint": blake2b(notice.id.encode(), digest_size=8).hexdigest(),
    }
    return {
        "version": "4",
        "groupKey": f"{{}}:{{id={notice.id!r}}}",
        "truncatedAlerts": 0,
        "status": status,
        "receiver": "ingero",
        "groupLabels": {"alertname": "IngeroStall"},
        "commonLabels": labels,
        "commonAnnotations": annotations,
        "externalURL": url,
        "alerts": [alert],
    }


def slack(notice: Notice, url: str) -> dict[str, Any]:
    """As Slack's incoming webhooks take it: a line for the notification, and blocks."""
    mark = {"HIGH": ":red_circle:", "MEDIUM": ":large_orange_circle:"}.get(notice.severity, ":large_yellow_circle:")
    mark = mark if notice.is_open else ":white_check_mark:"
    line = _slack_text(headline(notice))
    blocks = [
        {"type": "section", "text": {"type": "mrkdwn", "verbatim": True, "text": f"{mark} *{line}*"}},
        {
            "type": "section",
            "text": {"type": "mrkdwn", "verbatim": True, "text": _slack_text(" ".join(notice.summary))},
        },
    ]
    if notice.timeline and notice.is_open:
        # A backtick would end the block of code that keeps recorded names from being read as formatting.
        lines = _slack_text("\n".join(notice.timeline[-_LINES:])).replace("`", "'")
        blocks.append({"type": "section", "text": {"type": "mrkdwn", "verbatim": True, "text": f"```{lines}```"}})
    return {"text": f"{mark} {line}", "mrkdwn": False, "blocks": blocks}


FORMATS: Final[Mapping[str, Payload]] = {"json": plain, "alertmanager": alertmanager, "slack": slack}
"""By the name that the setting has for them."""


def headline(notice: Notice) -> str:
    """One line: `HIGH straggler in job llm-7: rank 5 on gpu-node-2, allocator_retry, since ...`."""
    job = f" in job {escaped(notice.job_id)}" if notice.job_id else ""
    where = f" ({escaped(notice.cluster_id)})" if notice.cluster_id else ""
    when = f"since {iso(notice.start_ns)}"
    if notice.end_ns is not None:
        when = f"over: {iso(notice.start_ns)} to {iso(notice.end_ns)}"
    cost = ""
    if notice.cost is not None and notice.is_open:
        cost = f", {notice.cost.gpu_hours_per_day:.3g} GPU-hours a day"
        if notice.cost.usd_per_day_low is not None and notice.cost.usd_per_day_high is not None:
            cost += f" ({notice.cost.usd_per_day_low:.0f} to {notice.cost.usd_per_day_high:.0f} USD)"
    return f"{notice.severity} {notice.verdict}{job}{where}: {escaped(notice.at_fault)}, {notice.cause}, {when}{cost}"


def _slack_text(text: str) -> str:
    # What Slack asks to be escaped; the rest cannot mention anybody or make links.
    safe = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    if len(safe) <= _SLACK_TEXT:
        return safe
    whole, _, last = safe[:_SLACK_TEXT].rpartition("&")
    return (f"{whole}&{last}" if ";" in last or not whole else whole) + "..."
