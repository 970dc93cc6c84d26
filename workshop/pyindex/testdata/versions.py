"""Writes versions.txt: every version string of 200 real projects, as their index pages spell it, sorted as text.

PAGES is a directory that `index-ways pages` of bench/ made (bench/README.md). The projects are the first 200 of its list by
name. The versions are those that the page lists (PEP 700), and those in the names of wheels, which may be spelled otherwise.
Made in November 2026: python3 versions.py PAGES > versions.txt
"""

import json
import sys
from pathlib import Path

pages = Path(sys.argv[1])
names = sorted(page["name"] for page in json.loads((pages / "packages.json").read_text())["packages"])[:200]
assert len(names) == 200, len(names)
versions = set()
for name in names:
    page = json.loads((pages / f"{name}.page").read_text())
    versions.update(page["versions"])
    versions.update(file["filename"].split("-")[1] for file in page["files"] if file["filename"].endswith(".whl"))
print("\n".join(sorted(versions)))
