"""Messages by e-mail, handed to the sendmail program of the host: gputop speaks no SMTP and knows no password."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gputop import __version__
from gputop.alerts.command import run
from gputop.alerts.message import AlertMessage
from gputop.alerts.receiver import TIMEOUT_S, Undelivered
from gputop.frozen_dataclass import frozen_dataclass
from gputop.safe import programs

FOLDERS = "/usr/sbin:/usr/lib:/usr/bin:/sbin"  # where the program may be


@frozen_dataclass(frozen=True, slots=True, kw_only=True)
class Mail:
    """Addresses that get messages by e-mail."""

    name: str
    to: tuple[str, ...]
    sender: str = ""  # empty: the user who runs gputop
    program: str = ""  # empty: the sendmail of the host
    timeout_s: float = TIMEOUT_S

    @property
    def acts(self) -> bool:
        """It leaves files in the mail queue."""
        return True

    @property
    def place(self) -> str:
        """Its addresses."""
        return f"mail to {', '.join(self.to)}"

    def send(self, message: AlertMessage) -> None:
        """Hand it to sendmail, which queues it."""
        try:
            program = self.program or programs.find("sendmail", FOLDERS)
        except programs.NotFound:
            raise Undelivered("no sendmail program on this machine: install postfix, or msmtp", again=False) from None
        except programs.NotRun as why:
            raise Undelivered(str(why), again=False) from None
        run((program, "-t", "-oi"), mail_bytes(message, self.to, self.sender), self.timeout_s, {})


def mail_bytes(message: AlertMessage, to: Sequence[str], sender: str) -> bytes:
    """The mail, with the title as subject. EmailMessage encodes values and refuses line ends: nothing is injected."""
    # late: few have a mail to send
    from email.message import EmailMessage
    from email.policy import default
    from email.utils import formatdate

    mail = EmailMessage(policy=default.clone(cte_type="7bit"))
    if sender:
        mail["From"] = sender
    mail["To"] = ", ".join(to)
    mail["Subject"] = message.title
    mail["Date"] = formatdate(time.time(), localtime=True)
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Mailer"] = f"gputop {__version__}"
    mail["X-Gputop-Alert"] = message.id
    mail.set_content(f"{message.text}\n")
    return mail.as_bytes()
