"""Runs the commands without the published program: `python3 /path/to/fw list`."""

import importlib
import os
import sys

folder = os.path.dirname(os.path.abspath(__file__))
if not __package__:
    # Python searches the folder that it runs for modules. Search its parent, where the folder is a package.
    sys.path[0] = os.path.dirname(folder)
importlib.import_module(os.path.basename(folder) + ".standalone").main()
