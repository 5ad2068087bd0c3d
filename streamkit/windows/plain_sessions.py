"""The short way for sessions with the default trigger: a session that grows leaves its timer where it was.

When the timer fires and the end of its session has moved on, it is set anew for where that is now. So a session costs
one timer per gap of its life, and not two changes of timers per record. The state is that of `windows/sessions.py`.
"""

from typing import Any

from streamkit.operators.step import Ports, Scope
from streamkit.windows.assigners import Session
from streamkit.windows.definition import WindowDefinition
from streamkit.windows.operator import OpenPane
from streamkit.windows.sessions import OpenSession, SessionOperator, join
from streamkit.windows.triggers import Decision, EventTimeTrigger, EveryRecordTrigger
from streamkit.windows.window import Window, encode_namespace


def is_plain_session(step: WindowDefinition) -> bool:
    """Whether a step may go this way."""
    windows = step.windows
    return (
        isinstance(windows.assigner, Session)
        and windows.is_event_time
        and type(windows.trigger) in (EventTimeTrigger, EveryRecordTrigger)
    )


class PlainSessions(SessionOperator):
    """One step with sessions and the default trigger in one task."""

    def __init__(self, step: WindowDefinition, outputs: Ports, scope: Scope) -> None:
        super().__init__(step, outputs, scope)
        self._lateness = step.windows.lateness
        self._is_updating = type(step.windows.trigger) is EveryRecordTrigger

    def take(self, key: bytes, value: Any, timestamp: int, time: int) -> None:
        """As `WindowOperator.take`."""
        new = self.assigner.window(value, time)
        stored = self.stored.cache.get(key)
        if stored is not None and len(stored) == 1 and not self._lateness:
            start, end, home_start, home_end = stored[0]
            if start <= new.start < end:
                # Most records: they prolong the only session of their key, or lie within it.
                if new.end > end:
                    end = new.end
                    self.stored.put(key, [(start, end, home_start, home_end)])
                pair = key, encode_namespace(Window(home_start, home_end))
                known = self.contents.get(pair)
                self.contents.replace(pair, known, self.add(known, value, timestamp))
                if self._is_updating:
                    self.act(Decision.FIRE, key, self.slot(Window(start, end), pair[1]), timestamp)
                return
        self._take_anywhere(key, new, value, timestamp)

    def _take_anywhere(self, key: bytes, new: Window, value: Any, timestamp: int) -> None:
        is_known = key in self.stored.cache
        sessions = self.sessions(key)
        session, absorbed = join(sessions, new)
        slot = self.slot_of(session)
        if self.is_closed(slot):
            self.late(key, value, timestamp)
            return
        if [each.window for each in absorbed] != [session.window]:
            self.keep(key, [session, *(each for each in sessions if each not in absorbed)])
            self.merge_contents(key, [self.slot_of(each) for each in absorbed])
            self._set_timer(key, slot, absorbed if is_known else [])
        elif not is_known:
            self._set_timer(key, slot, [])
        self._put(key, slot, value, timestamp)

    def _set_timer(self, key: bytes, slot: OpenPane, absorbed: list[OpenSession]) -> None:
        """Have a timer for a session, unless one of those that it absorbed has one that will find it.

        One that is past its end waits for another time. One that was opened in a former life may have no such timer at
        all: perhaps the step had another trigger then.
        """
        assert self.timers is not None
        now, end = self.timers.now, slot.window.max_timestamp
        if absorbed and absorbed[0].window.max_timestamp > now:
            return
        if end > now:
            self.timers.add(key, end, slot.namespace)
        else:
            self.expect_cleanup(key, slot)

    def _put(self, key: bytes, slot: OpenPane, value: Any, timestamp: int) -> None:
        pair = key, slot.namespace
        known = self.contents.get(pair)
        self.contents.replace(pair, known, self.add(known, value, timestamp))
        if self._is_updating or (self._lateness and self._is_past(slot)):
            self.act(Decision.FIRE, key, slot, timestamp)

    def _is_past(self, slot: OpenPane) -> bool:
        assert self.timers is not None
        return slot.window.max_timestamp <= self.timers.now

    def on_timer(self, key: bytes, time: int, namespace: bytes, *, is_event: bool) -> None:
        """As `WindowOperator.on_timer`."""
        slot = self.find(key, namespace) if is_event else None
        if slot is None or self.timers is None:
            return
        end = slot.window.max_timestamp
        if time < end:
            self.timers.add(key, end, namespace)
            return
        # Without lateness every timer is the end of its session, even one that was set when there was some.
        if not self._is_updating and (time == end or not self._lateness):
            self.act(Decision.FIRE, key, slot, time)
        if time >= slot.cleanup:
            self.close(key, slot, time)
        else:
            self.expect_cleanup(key, slot)
