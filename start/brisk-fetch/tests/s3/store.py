"""An object store for tests: store.py DIRECTORY REGION. Signatures are checked by botocore, which is Amazon's own.

DIRECTORY/BUCKET/KEY is an object. A bucket whose name begins with "public" is for everybody. The key AK has the secret "sesame", and
the key ASIA has the secret "sesame" and the token "sesame-token". What a test changes is in DIRECTORY: the file "skewed" has all requests come
too late, "expired" has the token end, and "slow" has a number of requests that are refused for now. The first line that this prints is
its port. DIRECTORY/asked gets a line for each request: how it was signed, the status, and the path.

store.py --presign URL REGION prints a URL that is signed with AK for an hour.
"""

import datetime
import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from urllib.parse import unquote, urlsplit

from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

SECRET = "sesame"
TOKEN = "sesame-token"
LOCK = Lock()


class Refused(Exception):
    def __init__(self, status, code, message, more=""):
        super().__init__(code)
        self.status, self.code, self.message, self.more = status, code, message, more


class Store(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.how = "unsigned"
        try:
            path, status, fields, body = self.found()
        except Refused as e:
            status = e.status
            body = f"<Error><Code>{e.code}</Code><Message>{e.message}</Message>{e.more}</Error>".encode()
            fields = {"Content-Type": "application/xml"}
        with LOCK, open(os.path.join(ROOT, "asked"), "a") as asked:
            asked.write(f"{self.how} {status} {self.path}\n")
        self.send_response(status)
        for name, value in fields.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def found(self):
        path = unquote(urlsplit(self.path).path)
        bucket, _, key = path.lstrip("/").partition("/")
        with LOCK:
            slow = os.path.join(ROOT, "slow")
            if os.path.exists(slow):
                left = int(open(slow).read()) - 1
                open(slow, "w").write(str(left)) if left else os.remove(slow)
                raise Refused(503, "SlowDown", "Please reduce your request rate.")
        self.check(bucket)
        if not os.path.isdir(os.path.join(ROOT, bucket)):
            raise Refused(404, "NoSuchBucket", "The specified bucket does not exist")
        try:
            data = open(os.path.join(ROOT, bucket, key), "rb").read()
        except OSError:
            raise Refused(404, "NoSuchKey", "The specified key does not exist.") from None
        fields = {"ETag": '"1"'}
        wanted = self.headers.get("Range")
        if not wanted or self.headers.get("If-Range") not in (None, '"1"'):
            return path, 200, fields, data
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(len(data) - int(last), 0)
        end = min(int(last) + 1, len(data)) if first and last else len(data)
        fields["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        return path, 206, fields, data[start:end]

    def check(self, bucket):
        url = f"http://{self.headers['Host']}{self.path}"
        query = urlsplit(url).query
        if "X-Amz-Signature=" in query:
            self.how = "presigned"
            fields = dict(field.split("=", 1) for field in query.split("&"))
            kept = [f"{name}={value}" for name, value in fields.items() if name != "X-Amz-Signature"]
            self.compare(
                url.split("?")[0] + "?" + "&".join(kept),
                unquote(fields["X-Amz-Credential"]),
                {"host": self.headers["Host"]},
                fields["X-Amz-Date"],
                fields["X-Amz-Signature"],
            )
            return
        said = self.headers.get("Authorization")
        if said is None:
            if bucket.startswith("public"):
                return
            raise Refused(403, "AccessDenied", "Access Denied")
        self.how = "signed"
        scheme, _, rest = said.partition(" ")
        if scheme != "AWS4-HMAC-SHA256":
            raise Refused(400, "InvalidArgument", "Unsupported Authorization Type")
        fields = dict(field.strip().split("=", 1) for field in rest.split(","))
        names = fields["SignedHeaders"].split(";")
        for name in self.headers:
            if name.lower().startswith("x-amz-") and name.lower() not in names:
                raise Refused(403, "AccessDenied", f"{name} is not signed")
        signed = {name: self.headers[name] for name in names}
        self.compare(url, fields["Credential"], signed, self.headers["X-Amz-Date"], fields["Signature"])

    def compare(self, url, scope, fields, date, signature):
        key, _, region, service, end = scope.split("/")
        if (service, end) != ("s3", "aws4_request"):
            raise Refused(400, "AuthorizationHeaderMalformed", "The scope is wrong")
        if region != REGION:
            raise Refused(
                400,
                "AuthorizationHeaderMalformed",
                f"The region '{region}' is wrong; expecting '{REGION}'",
                f"<Region>{REGION}</Region>",
            )
        if key not in ("AK", "ASIA"):
            raise Refused(403, "InvalidAccessKeyId", "The key does not exist in our records.")
        then = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ")
        late = abs((datetime.datetime.utcnow() - then).total_seconds()) > 900
        if late or os.path.exists(os.path.join(ROOT, "skewed")):
            raise Refused(403, "RequestTimeTooSkewed", "The difference is too large.")
        if fields.get("x-amz-security-token") != (TOKEN if key == "ASIA" else None):
            raise Refused(400, "InvalidToken", "The token is malformed.")
        if key == "ASIA" and os.path.exists(os.path.join(ROOT, "expired")):
            raise Refused(400, "ExpiredToken", "The provided token has expired.")
        auth = S3SigV4Auth(Credentials(key, SECRET), "s3", region)
        auth.payload = lambda _: "UNSIGNED-PAYLOAD"
        request = AWSRequest("GET", url, headers=fields)
        request.context["timestamp"] = date
        expected = auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)
        if expected != signature:
            raise Refused(403, "SignatureDoesNotMatch", "The signature is wrong.")


if sys.argv[1] == "--presign":
    request = AWSRequest("GET", sys.argv[2])
    S3SigV4QueryAuth(Credentials("AK", SECRET), "s3", sys.argv[3], expires=3600).add_auth(request)
    print(request.url)
    sys.exit()
ROOT, REGION = sys.argv[1:]
server = ThreadingHTTPServer(("127.0.0.1", 0), Store)
print(server.server_address[1], flush=True)
server.serve_forever()
