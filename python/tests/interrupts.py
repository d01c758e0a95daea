"""Exceptions at every moment: of Ctrl-C, a timeout, a signal that ends the job."""

import dis
import functools
import gc
import os
import random
import sys
import threading

NOT_IN = "copyreg.py"  # it hides all exceptions
TOOL = 3  # of sys.monitoring, one that Python names for nobody


@functools.lru_cache(None)
def places(code):
    """Offsets of bytecodes that can raise in place of a signal handler. It runs at the start of a function, between two turns of a loop,
    and at the end of a call. An exception of the next bytecode is like one of the call if both have the same handler, or if the function
    returns then."""
    handlers = dis.Bytecode(code).exception_entries
    found, call = set(), None
    for x in dis.get_instructions(code):
        entry = [e.target for e in handlers if e.start <= x.offset < e.end]
        if x.opname == "RESUME" or "JUMP_BACKWARD" in x.opname or (call is not None and (call == entry or x.opname == "RETURN_VALUE")):
            found.add(x.offset)
        call = entry if x.opname in ("CALL", "CALL_KW", "CALL_FUNCTION_EX") else None
    return found


class Stop(BaseException):
    """As from a signal handler."""


class Armed:
    """While it is entered, the n-th of these places from now on raises Stop. Counts them."""

    def __init__(self, n):
        self.n, self.count, self.where = n, 0, None

    def _before(self, code, offset):
        if self.where is None and offset in places(code):
            self.count += 1
            if self.count == self.n:
                line = next(line for first, end, line in code.co_lines() if first <= offset < end)
                self.where = f"{code.co_filename}:{line}, {code.co_name}"
                raise Stop

    if sys.version_info < (3, 12):

        def _enter_frame(self, frame, event, argument):
            if frame.f_code.co_filename.endswith(NOT_IN):
                return None
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
            return self._step

        def _step(self, frame, event, argument):
            if event == "opcode":
                self._before(frame.f_code, frame.f_lasti)
            return self._step

        def __enter__(self):
            sys.settrace(self._enter_frame)
            return self

        def __exit__(self, *unused):
            sys.settrace(None)

    else:  # there settrace() tells no bytecode of a function that has run without it since

        def _instruction(self, code, offset):
            if threading.get_ident() == self.thread and id(code) not in self.outside and not code.co_filename.endswith(NOT_IN):
                self._before(code, offset)

        def __enter__(self):
            self.thread, watch = threading.get_ident(), sys.monitoring
            self.outside = {id(x) for x in (sys._getframe(1).f_code, Armed.__enter__.__code__, Armed.__exit__.__code__)}
            watch.use_tool_id(TOOL, "interrupts")
            watch.register_callback(TOOL, watch.events.INSTRUCTION, self._instruction)
            watch.set_events(TOOL, watch.events.INSTRUCTION)
            return self

        def __exit__(self, *unused):
            sys.monitoring.set_events(TOOL, 0)
            sys.monitoring.register_callback(TOOL, sys.monitoring.events.INSTRUCTION, None)
            sys.monitoring.free_tool_id(TOOL)


def can_go_on(call):
    """Whether another thread can call this: an exception has left no lock to nobody."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(30)
    return not thread.is_alive()


def count_descriptors():
    return len(os.listdir("/proc/self/fd"))


def check(run, look, most=0):
    """Calls run() again and again, with an exception at each of its places, or at `most` of them, evenly spread from a drawn one on.
    It must come through as it is, and leave no descriptor. look(): what is wrong with the files, or None. Returns the number of
    exceptions."""
    run()  # what is imported at the first call, and kept
    with Armed(0) as counted:
        run()
    gc.collect()
    gc.freeze()
    before, n_hit = count_descriptors(), 0
    step = max(1, counted.count // most) if most else 1
    try:
        for n in range(random.randint(1, step), counted.count + 1, step):
            armed, stopped = Armed(n), False
            try:
                with armed:
                    run()
            except Stop:
                stopped = True
            if armed.where is None:  # the number differs a little from call to call
                continue
            if count_descriptors() != before:
                gc.collect()
            assert stopped, f"{n}, {armed.where}: the exception was lost"
            assert count_descriptors() == before, f"{n}, {armed.where}: descriptors are left"
            wrong = look()
            assert wrong is None, f"{n}, {armed.where}: {wrong}"
            n_hit += 1
    finally:
        gc.unfreeze()
    return n_hit
