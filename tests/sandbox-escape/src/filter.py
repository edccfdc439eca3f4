"""Tries to use files, sockets, names, variables, clock and randomness, and reports each result."""

import json
import os
import random
import socket
import time

from wit_world.exports.filter import Decision_Drop, Decision_Replace


def reads():
    with open("/etc/passwd") as file:
        return file.readline()


def writes():
    with open("/tmp/sandbox-escape", "w") as file:
        return file.write("x")


def connects():
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as it:
        it.connect(("127.0.0.1", 80))
        return "connected"


ATTEMPTS = {
    "reads": reads,
    "writes": writes,
    "lists": lambda: os.listdir("/"),
    "connects": connects,
    "resolves": lambda: socket.getaddrinfo(b"localhost", 80),
    "variables": lambda: sorted(dict(os.environ).items()),
    "clock": lambda: time.time() > 1_600_000_000,
    "random": lambda: random.SystemRandom().random() != random.SystemRandom().random(),
}


def tried(attempt):
    try:
        return {"got": attempt()}
    except BaseException as error:
        return {"error": type(error).__name__}


class View:
    @classmethod
    def open(cls, query):
        return cls()

    def decide(self, events):
        return [self.one(event) for event in events]

    def one(self, event):
        if event.kind != "api_post_event":
            return Decision_Drop()
        document = json.loads(event.body)
        document["found"] = {name: tried(attempt) for name, attempt in ATTEMPTS.items()}
        return Decision_Replace(json.dumps(document))
