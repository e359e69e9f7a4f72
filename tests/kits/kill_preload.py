"""How the fork server of the kill tests is set up before it forks.

Waiting is cut short in the children: how long a client waits before it tries again is no matter here, only that it
does. What costs time and is the same for every client is made once: the API's description, the certificates.
"""

# ruff: noqa: E402 - waiting is cut short before any module takes hold of it

import time

_sleep = time.sleep
time.sleep = lambda seconds: _sleep(seconds / 50)

import botocore.session
import once_kit  # noqa: F401

import mitl.campaign.kinds.pairs.controls
import mitl.crowd_server.app
import mitl.crowd_server.serving
import mitl.stages.hits.simulate  # noqa: F401
from mitl.crowd.populations import CHARACTERS, Character

_session = botocore.session.Session
_sessions = {}


def _shared_session(session_vars=None):
    name = repr(session_vars)
    if name not in _sessions:
        _sessions[name] = _session(session_vars=session_vars)
    return _sessions[name]


botocore.session.Session = _shared_session

# People without chance, so that as many submissions wait for a person in every run.
_RIGHT = ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1))
CHARACTERS["right"] = Character("right", _RIGHT, reads=1.0, seconds_per_pair=9.0)
CHARACTERS["wrong"] = Character("wrong", _RIGHT[::-1], reads=0.0, seconds_per_pair=3.0)
