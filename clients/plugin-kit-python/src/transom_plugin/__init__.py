"""Transom plugins in Python.

A plugin is a class for one of four worlds, with a base class in the module of that world:

=====================  ======================================  ==================================
world                  base class                              question
=====================  ======================================  ==================================
``check-probe``        :class:`transom_plugin.probe.Probe`     what is the next step of this check?
``attribute-matcher``  :class:`transom_plugin.matcher.Matcher` which agents may run this task?
``event-filter``       :class:`transom_plugin.events.Filter`   which events go to this subscriber?
``bootstrap-handler``  :class:`transom_plugin.bootstrap.Bootstrap`  what does this container run first?
=====================  ======================================  ==================================

:func:`export` makes the calling module, `app.py`, a component of the class's world. The same class runs
natively in unit tests: see :mod:`transom_plugin.testing`.

>>> from transom_plugin import export
>>> from transom_plugin.events import DROP, PASS, Filter
>>> class Quiet(Filter):
...     name, version, summary = "quiet", "0.1.0", "keeps load tests out of the event stream"
...
...     def open(self, query):
...         return lambda event: DROP if (event.subject or "").startswith("/load/") else PASS
>>> export(Quiet)
>>> Quiet.world
'event-filter'
"""

from transom_plugin import log
from transom_plugin.component import export
from transom_plugin.plugin import ConfigError, InvalidConfig, Plugin, Refused

__all__ = ["ConfigError", "InvalidConfig", "Plugin", "Refused", "export", "log"]
