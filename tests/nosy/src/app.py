"""An event filter that tries what it can reach by itself, and says what came of it. The attempts are in filter.py."""

from wit_world.exports import about


class About:
    def describe(self):
        return about.Description("nosy", "0.1.0", "tries what it can reach", None)

    def configure(self, config):
        pass


class Filter:
    pass
