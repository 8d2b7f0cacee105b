"""gRPC's engine: the threads behind every channel, shared by all of a process."""

import ctypes
from functools import cache

import grpc


@cache
def keep_engine() -> None:
    """Has the engine outlive every channel, by a channel that is never connected and never freed.

    Freeing the last channel ends the engine: gRPC waits for its threads while holding Python's lock, and a thread that
    is just letting go of a call's credentials wants that lock (grpc/grpc#42247). About one command in ten that asked
    the API and ended at once never ended.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(grpc.insecure_channel("localhost:1")))
