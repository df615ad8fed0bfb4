"""The folder of the tests is on the path, for what they share."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
