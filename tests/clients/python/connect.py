from pathlib import Path

import grpc

def connect(address: str) -> grpc.Channel:
    """A channel whose calls are sent again where that is safe. Give every mutation a request_id, once and not per attempt."""
    return grpc.insecure_channel(
        address,
        options=[
            ("grpc.service_config", Path(__file__).with_name("service_config.json").read_text()),
            ("grpc.keepalive_time_ms", 20_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.max_reconnect_backoff_ms", 2_000),
            ("grpc.per_rpc_retry_buffer_size", 2 << 20),
        ],
    )
