"""An event filter that tries to use resources outside of its sandbox and reports the results."""

from wit_world.exports import about


class About:
    def describe(self):
        return about.Description("sandbox-escape", "0.1.0", "tries what it can reach", None)

    def configure(self, config):
        pass


class Filter:
    pass
