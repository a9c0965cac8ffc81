from pathlib import Path

import grpc

class TokenFile(grpc.AuthMetadataPlugin):
    """Reads the token for each call: the file has another one now and then."""

    def __init__(self, path: str):
        self.path = Path(path)

    def __call__(self, context, callback):
        try:
            callback((("authorization", f"Bearer {self.path.read_text().strip()}"),), None)
        except OSError as error:
            callback((), error)

def credentials(ca: str, token_file: str | None) -> grpc.ChannelCredentials:
    tls = grpc.ssl_channel_credentials(Path(ca).read_bytes())
    if token_file is None:
        return tls
    return grpc.composite_channel_credentials(tls, grpc.metadata_call_credentials(TokenFile(token_file)))

def connect(address: str, ca: str | None = None, token_file: str | None = None) -> grpc.Channel:
    """A channel whose calls are sent again where that is safe. Give every mutation a request_id, once and not per attempt.

    Over TLS where `ca` names the file of the server's CA; only then with the token of a file.
    """
    options = [
        ("grpc.service_config", Path(__file__).with_name("service_config.json").read_text()),
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_reconnect_backoff_ms", 2_000),
        ("grpc.per_rpc_retry_buffer_size", 2 << 20),
    ]
    if ca is not None:
        return grpc.secure_channel(address, credentials(ca, token_file), options=options)
    if token_file is not None:
        raise ValueError("a token is sent over TLS only: name the file of the server's CA")
    return grpc.insecure_channel(address, options=options)
