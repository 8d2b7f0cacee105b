"""Credentials as Google's own library takes them, and the server that turns them into access tokens."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import yaml
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

TokenAnswer = tuple[int, dict[str, object]]
GRANTED: TokenAnswer = (200, {"access_token": "granted-hunter2", "expires_in": 3600, "token_type": "Bearer"})
EXPIRES_AT_ONCE: TokenAnswer = (200, {"access_token": "granted-hunter2", "expires_in": 1, "token_type": "Bearer"})
REFUSED: TokenAnswer = (400, {"error": "invalid_grant", "error_description": "hunter2 was revoked"})


class TokenServer(ThreadingHTTPServer):
    """Google's OAuth end: gives `answers` one after the other, repeating the last."""

    answers: list[TokenAnswer]
    asked = 0


class _TokenHandler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        assert isinstance(self.server, TokenServer)
        self.server.asked += 1
        answers = self.server.answers
        status, document = answers.pop(0) if len(answers) > 1 else answers[0]
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving_tokens(*answers: TokenAnswer) -> Iterator[TokenServer]:
    server = TokenServer(("127.0.0.1", 0), _TokenHandler)
    server.answers = list(answers)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def write_key_file(folder: Path, server: TokenServer) -> Path:
    """A service account's key file, whose tokens come from that server."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "client_email": "reader@example.test",
        "private_key": key.decode(),
        "private_key_id": "hunter2",
        "token_uri": f"http://127.0.0.1:{server.server_port}/token",
    }
    path = folder / "key.json"
    path.write_text(json.dumps(account))
    return path


def write_google_ads_yaml(folder: Path, server: TokenServer, *, endpoint: object, **changes: object) -> Path:
    path = folder / "google-ads.yaml"
    settings = {
        "developer_token": "developer-hunter2",
        "json_key_file_path": str(write_key_file(folder, server)),
        "use_proto_plus": True,
        "endpoint": endpoint,
        "logging": {"version": 1, "root": {"level": "DEBUG"}},
        **changes,
    }
    path.write_text(yaml.safe_dump(settings))
    return path


def trusting(ca_path: Path) -> dict[str, str]:
    """What a process must have in its environment from its start for the library's channel to reach the emulator."""
    return {"GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(ca_path), "NO_PROXY": "*"}
