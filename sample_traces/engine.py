"""A clock, signals and routines: the discrete-event core under the model."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from typing import TypeVar

Result = TypeVar("Result")


class Signal:
    """Something that happens once; what waits for it runs when it has."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[Callable[[], None]] = []
        self.fired = False

    def fire(self) -> None:
        """Let everything that waits go on, at this very time and in order of asking."""
        self.fired = True
        for action in self._waiting:
            self._clock.at(self._clock.now, action)
        self._waiting.clear()

    def then(self, action: Callable[[], None]) -> None:
        """Run the action once the signal has fired, now if it already has."""
        if self.fired:
            self._clock.at(self._clock.now, action)
        else:
            self._waiting.append(action)


# A routine yields either a pause in ns or a signal to wait for.
Routine = Generator[int | Signal, None, Result]


class Clock:
    """Model time in ns and the actions that are due, in (time, order of asking)."""

    def __init__(self) -> None:
        self.now = 0
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._asked = 0

    def at(self, time_ns: int, action: Callable[[], None]) -> None:
        """Have the action run at a time that is not in the past."""
        if time_ns < self.now:
            raise ValueError(f"{time_ns} ns is before now ({self.now} ns)")
        heapq.heappush(self._due, (time_ns, self._asked, action))
        self._asked += 1

    def run(self) -> None:
        """Run every action until none is due."""
        while self._due:
            self.now, _, action = heapq.heappop(self._due)
            action()

    def start(self, routine: Routine[None], at_ns: int = 0) -> Signal:
        """Start a routine and return the signal of its end."""
        ended = Signal(self)

        def advance() -> None:
            for wait in routine:
                if isinstance(wait, Signal):
                    if not wait.fired:
                        wait.then(advance)
                        return
                elif wait:
                    self.at(self.now + wait, advance)
                    return
            ended.fire()

        self.at(max(at_ns, self.now), advance)
        return ended


class Pool:
    """A resource of some capacity, given out first come, first served."""

    def __init__(self, capacity: int) -> None:
        self._free = capacity
        self._waiting: list[tuple[int, Callable[[], None]]] = []

    def take(self, need: int, start: Callable[[], None]) -> None:
        """Start at once when the need fits and nobody waits, else when it is our turn."""
        self._waiting.append((need, start))
        self._serve()

    def give(self, need: int) -> None:
        """Hand the taken amount back and serve those who wait."""
        self._free += need
        self._serve()

    def _serve(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._free:
            need, start = self._waiting.pop(0)
            self._free -= need
            start()


class Lock:
    """A lock of the driver: held by one host thread at a time, in order of asking."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pool = Pool(1)
        self.held = False

    def acquire(self) -> Routine[None]:
        """Wait until the lock is ours."""
        mine = Signal(self._clock)
        self._pool.take(1, mine.fire)
        yield mine
        self.held = True

    def release(self) -> None:
        """Pass the lock on."""
        self.held = False
        self._pool.give(1)
