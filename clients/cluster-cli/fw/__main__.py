"""Runs the commands without the published program: `python3 /path/to/fw list`."""

import importlib
import os
import sys

folder = os.path.dirname(os.path.abspath(__file__))
if not __package__:
    # Run as a folder: Python looks for modules in it, and not for the package that it is.
    sys.path[0] = os.path.dirname(folder)
importlib.import_module(os.path.basename(folder) + ".standalone").main()
