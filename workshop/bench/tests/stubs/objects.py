#!/usr/bin/env python3
"""What a program of brisk lab objects --program does, as briefly as possible: stores that differ in the time that they claim.

STUB=wrong has each job fail as one does that has read something else.
"""

import json
import os
import sys

NS = {"brisk": 100.0, "lmdb": 100.0, "sqlite": 400.0, "pread": 150.0}

if sys.argv[1] == "list":
    print(json.dumps(list(NS)))
    sys.exit()
job = json.loads(sys.argv[1])
store, directory, work = job["store"], job["directory"], job["work"]
if work == "fill":
    with open(f"{directory}/objects", "wb") as file:
        file.write(bytes(100 * job["records"]))
    print("{}")
    sys.exit()
figure = work["figure"]
if os.environ.get("STUB") == "wrong":
    sys.exit(f"{store}: found 1, expected 2")
inserts = figure.startswith("insert-")
if inserts and os.listdir(directory):
    sys.exit(f"{store}: there is something already")
if not inserts and not os.path.exists(f"{directory}/objects"):
    sys.exit(f"{store}: nothing is stored")
if store == "pread" and not figure.startswith(("one-by-one", "cold")):
    print("{}")
    sys.exit()
values = {"ns": NS[store], "all_ns": 5000 * NS[store], "user_ns": NS[store] - 10, "system_ns": 10.0}
if inserts:
    open(f"{directory}/objects", "wb").close()
else:
    values["again_ns"] = NS[store] / 2
print(json.dumps(values))
