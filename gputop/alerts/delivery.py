"""Delivery to one receiver: a bounded queue and a thread, so that a dead receiver delays nothing else."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from threading import Condition, Thread

from gputop.alerts.message import AlertMessage
from gputop.alerts.receiver import Receiver, Undelivered
from gputop.safe.text import clean

WAITING = 50  # messages for one receiver; beyond that the oldest are dropped
FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0  # after a failure; doubled after each further one
TRIES = 8  # of one message: over 15 minutes with these pauses


class Delivery:
    """Sends the messages for one receiver, one after the other, in a daemon thread that starts with the first."""

    def __init__(
        self, receiver: Receiver, told: Callable[[str], None] = lambda _: None, *, pause_s: float = FIRST_PAUSE_S
    ) -> None:
        """`told` gets a line when deliveries begin to fail, and one when they work again, from that thread."""
        self.receiver = receiver
        self.delivered = self.missed = 0  # messages; those missed were dropped or refused
        self.problem = ""  # why the last message was not delivered
        self._told, self._pause_s = told, pause_s
        self._waiting: deque[AlertMessage] = deque()
        self._changed = Condition()
        self._thread: Thread | None = None
        self._busy = self._closing = False
        self._unsaid = 0  # messages missed since the last delivered one

    def put(self, message: AlertMessage) -> None:
        """Queue a message; returns at once."""
        with self._changed:
            if self._closing:
                return
            while len(self._waiting) >= WAITING:
                self._waiting.popleft()
                self._lose()
            self._waiting.append(message)
            if self._thread is None:
                self._thread = Thread(target=self._run, name=f"alert-{self.receiver.name}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, patience_s: float) -> bool:
        """Take no more messages; whether all were sent within `patience_s`. Pauses after failures are cut short."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not (self._busy or self._waiting), patience_s)

    def _lose(self) -> None:
        self.missed += 1
        self._unsaid += 1

    def _run(self) -> None:
        if not self.receiver.acts:  # a socket closed by the other side; a program must not inherit the mask
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._closing)
                if not self._waiting:
                    return
                message, self._busy = self._waiting.popleft(), True
            self._deliver(message)
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _deliver(self, message: AlertMessage) -> None:
        pause_s = self._pause_s
        for tries_left in reversed(range(TRIES)):
            with self._changed:
                unsaid = self._unsaid
            try:
                self.receiver.send(replace(message, missed=unsaid) if unsaid else message)
            except Exception as error:
                again, after_s = self._failed(error)
            else:
                self._succeeded(unsaid)
                return
            if not again or not tries_left or self._closing:
                break
            self._rest(pause_s if after_s is None else max(after_s, self._pause_s))
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        with self._changed:
            self._lose()

    def _failed(self, error: Exception) -> tuple[bool, float | None]:
        """Whether to try again, and after how long if the receiver says so."""
        known = isinstance(error, Undelivered)
        why = str(error) if known else clean(f"internal error ({type(error).__name__}); please report it")
        if not self.problem:
            self._told(f"alerts to {self.receiver.name} are not delivered: {why}")
        self.problem = why
        return (error.again, error.after_s) if isinstance(error, Undelivered) else (False, None)

    def _succeeded(self, said: int) -> None:
        with self._changed:
            self.delivered += 1
            self._unsaid -= said
        if self.problem:
            self._told(f"alerts to {self.receiver.name} are delivered again")
        self.problem = ""

    def _rest(self, seconds: float) -> None:
        until_s = time.monotonic() + seconds
        with self._changed:
            self._changed.wait_for(lambda: self._closing, max(0.0, until_s - time.monotonic()))
