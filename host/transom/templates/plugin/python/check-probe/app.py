"""Whether a task's answer contains a word."""

from transom_plugin import export
from transom_plugin.probe import Http, Probe


class LooksFor(Probe):
    name, version, summary = "{{name}}", "0.1.0", "{{summary}}"
    # What the operator may write under [config]: JSON Schema 2020-12.
    schema = {
        "type": "object",
        "properties": {"word": {"type": "string", "minLength": 1}},
        "required": ["word"],
        "additionalProperties": False,
    }

    def __init__(self, config):
        """Called once in every instance. The document has passed the schema."""
        self.word = config["word"]

    def attempt(self, request):
        """One look at one task. It does nothing itself: the host performs each step that it yields.

        A step that fails raises IoError, which ends the attempt with the reason that fits.
        """
        response = yield Http(request.endpoint, request.path)
        found = self.word in response.body.decode("utf-8", "replace")
        return {"found": found, "status": response.status}


export(LooksFor)
