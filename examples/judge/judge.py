"""A remote judge: refuses texts that name a competitor.

lucid-guardrails-auditor asks it:

    judges:
      - http: {url: http://judge.models.svc:8000/}
"""
import json
import os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Judge(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        text = json.loads(self.rfile.read(int(self.headers["content-length"])))["text"]
        verdict = {"allowed": True}
        if "initech" in text.lower():
            verdict = {"allowed": False, "rule": "competitor", "message": "the text names a competitor"}
        body = json.dumps(verdict).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


ThreadingHTTPServer(("", int(os.environ.get("PORT", "8000"))), Judge).serve_forever()
