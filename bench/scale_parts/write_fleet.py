"""``python -m bench.scale_parts.write_fleet CELL FOLDER``: write a fleet into files, in a process of its own."""

import json
import sys
from pathlib import Path

from bench.scale_parts.cells import parse_cell
from bench.scale_parts.fleet import Fleet
from bench.scale_parts.recorded import write

if __name__ == "__main__":
    print(json.dumps(write(Fleet(parse_cell(sys.argv[1])), Path(sys.argv[2]))))
