"""The shapes of messages that chat services take; names of processes in them are text, never markup.

Slack: https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks, and for the three escaped characters
https://docs.slack.dev/messaging/formatting-message-text.

Teams: a message with one Adaptive Card, as the trigger "When a Teams webhook request is received" takes it,
https://learn.microsoft.com/connectors/teams. Text blocks and facts are Markdown, text runs are not:
https://learn.microsoft.com/microsoftteams/platform/task-modules-and-cards/cards/cards-format.

ntfy: JSON to the address of the server, https://docs.ntfy.sh/publish/#publish-as-json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from gputop.alerts.message import AlertMessage, as_json

_NTFY_BYTES = 4096  # of a message; a longer one becomes an attachment
_PRIORITY = {"crit": 5, "warn": 3, "info": 2}  # 5: max, 3: default, 2: low
_NTFY_TAGS = {"crit": "rotating_light", "warn": "warning", "info": "information_source"}
_CARD_COLORS = {"crit": "Attention", "warn": "Warning", "info": "Accent"}

Shape = Callable[[AlertMessage, str], tuple[str, Any]]  # of a message and the address: where to, and the JSON


def plain(message: AlertMessage, url: str) -> tuple[str, Any]:
    """Our own JSON object."""
    return url, as_json(message)


def slack(message: AlertMessage, url: str) -> tuple[str, Any]:
    """An incoming webhook of Slack, or of what takes the same: Mattermost, Rocket.Chat, Discord with /slack."""
    text = message.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return url, {"text": text}


def teams(message: AlertMessage, url: str) -> tuple[str, Any]:
    """A workflow of Teams that posts to a channel or chat when a webhook request is received."""
    color = "Good" if message.status == "resolved" else _CARD_COLORS[message.severity]
    title = {"type": "TextRun", "text": message.title, "weight": "Bolder", "color": color}
    lines = [{"type": "TextRun", "text": line} for line in message.lines]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": [{"type": "RichTextBlock", "inlines": [run]} for run in (title, *lines)],
        "msteams": {"width": "Full"},
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return url, {"type": "message", "attachments": [{"contentType": kind, "contentUrl": None, "content": card}]}


def ntfy(message: AlertMessage, url: str) -> tuple[str, Any]:
    """A topic of ntfy: `url` is that of the topic, the JSON goes to the server."""
    parts = urlsplit(url)
    above, _, topic = parts.path.rstrip("/").rpartition("/")
    resolved = message.status == "resolved"
    text = "\n".join(message.lines).encode()[:_NTFY_BYTES].decode("utf-8", "ignore")
    return urlunsplit((parts.scheme, parts.netloc, f"{above}/", "", "")), {
        "topic": unquote(topic),
        "title": message.title,
        "message": text,
        "priority": _PRIORITY["info" if resolved else message.severity],
        "tags": ["white_check_mark" if resolved else _NTFY_TAGS[message.severity]],
    }


FORMATS: Mapping[str, Shape] = {"webhook": plain, "slack": slack, "teams": teams, "ntfy": ntfy}
