"""Runs the Python client's tests and says how many passed."""

import sys
import unittest
from pathlib import Path

suite = unittest.defaultTestLoader.discover(str(Path(__file__).parent))
result = unittest.TextTestRunner(verbosity=2).run(suite)
failed = len({id(test) for test, _ in result.failures + result.errors})
print(f"python: {result.testsRun - failed} passed, {failed} failed", flush=True)
sys.exit(0 if result.wasSuccessful() and result.testsRun else 1)
