"""Checks whether a task's response contains a word."""

from transom_plugin import export
from transom_plugin.probe import Http, Probe


class WordProbe(Probe):
    name, version, summary = "{{name}}", "0.1.0", "{{summary}}"
    # JSON Schema 2020-12 of the manifest's [config].
    schema = {
        "type": "object",
        "properties": {"word": {"type": "string", "minLength": 1}},
        "required": ["word"],
        "additionalProperties": False,
    }

    def __init__(self, config):
        """Called once for every instance. The document matches the schema."""
        self.word = config["word"]

    def attempt(self, request):
        """One attempt at one task. It performs no I/O: it yields steps, and the host performs them.

        A failed step raises an IoError. Unless it is caught, it ends the attempt with the corresponding reason.
        """
        response = yield Http(request.endpoint, request.path)
        found = self.word in response.body.decode("utf-8", "replace")
        return {"found": found, "status": response.status}


export(WordProbe)
