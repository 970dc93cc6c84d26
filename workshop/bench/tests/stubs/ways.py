#!/usr/bin/env python3
"""What a program of brisk lab index --ways does, as briefly as possible: three ways that differ in the time that they claim.

STUB=asks has each job ask for all pages, and STUB=wrong has it choose another file.
"""

import http.client
import http.server
import json
import os
import resource
import sys
import threading

counts = [0, 0]


class Index(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        name = self.path.strip("/").split("/")[-1]
        if name == "counts":
            status, body = 200, "{} {}".format(*counts).encode()
        elif self.headers.get("If-None-Match") == "tag":
            status, body = 304, b""
            counts[1] += 1
        else:
            status, body = 200, open(f"{sys.argv[2]}/{name}.page", "rb").read()
            counts[0] += 1
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def serve():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


def work(job):
    pages = json.load(open(f"{job['pages']}/packages.json"))
    packages = pages["packages"]
    asked = [(n // len(packages), packages[n % len(packages)]) for n in range(job["packages"])]
    if job["ask"] == "largest":
        asked = [(0, pages["largest"])]
    host = job["server"].removeprefix("http://").rstrip("/")
    resource.getrusage(resource.RUSAGE_SELF)
    os.makedirs(job["directory"], exist_ok=True)
    for index, page in asked:
        path = f"{job['directory']}/{index}-{page['name']}"
        is_stored = os.path.exists(path)
        if is_stored and job["ask"] != "stale" and os.environ.get("STUB") != "asks":
            continue
        connection = http.client.HTTPConnection(host)
        connection.request("GET", f"/{index}/simple/{page['name']}/", headers={"If-None-Match": "tag"} if is_stored else {})
        body = connection.getresponse().read()
        with open(path, "r+b" if is_stored else "wb", buffering=0) as file:
            file.write(body or b"holds")
    resource.getrusage(resource.RUSAGE_SELF)
    if os.environ.get("STUB") == "wrong":
        sys.exit(f"{job['way']}: found none, expected {asked[0][1]['file']}")
    ns = {"brisk": 1e6, "parsed": 1.6e8, "uv-client": 8e7}[job["way"]]
    values = {"ns": ns, "named_ns": 5e5, "user_ns": 7000, "system_ns": 2000}
    if sys.argv[0].endswith("-counted"):
        values["allocations"] = 2.5
    print(json.dumps(values))


if sys.argv[1] == "list":
    print(json.dumps(["brisk", "parsed", "uv-client"]))
elif sys.argv[1] == "serve":
    serve()
else:
    work(json.loads(sys.argv[1]))
