"""Prints an event stream, read by requests-sse, which reconnects and resumes without further code.

Argument: the URL of the stream. Writes a line of JSON when it is connected and one for each event.
"""

import json
import sys
from datetime import timedelta

from requests_sse import EventSource

with EventSource(sys.argv[1], reconnection_time=timedelta(seconds=0.1)) as events:
    print(json.dumps({"open": True}), flush=True)
    for event in events:
        if event.type == "event_stream_gap":
            pass  # Events are missing: read the state again, here.
        print(json.dumps({"id": event.last_event_id, "event": event.type, "data": json.loads(event.data)}), flush=True)
