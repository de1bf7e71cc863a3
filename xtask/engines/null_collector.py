#!/usr/bin/env python3
"""An OTLP endpoint that takes everything and keeps nothing, so that only the sender's cost is seen.

Usage: null_collector.py PORT      (HTTP on 127.0.0.1, until it is ended)
"""
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Taker(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Taker).serve_forever()
