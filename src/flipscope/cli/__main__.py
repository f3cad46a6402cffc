"""python -m flipscope.cli"""

from __future__ import annotations

import sys

from flipscope.cli import main

if __name__ == "__main__":
    sys.exit(main())
