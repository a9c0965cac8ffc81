import { readFileSync } from "node:fs";
import { credentials } from "@grpc/grpc-js";
import { RunServiceClient } from "./gen/runledger/v1/run_service.js";

/** A client whose calls are sent again where that is safe. Give every mutation a `requestId`, once and not per attempt. */
export function connect(address: string): RunServiceClient {
  return new RunServiceClient(address, credentials.createInsecure(), {
    "grpc.service_config": readFileSync(new URL("service_config.json", import.meta.url), "utf8"),
    "grpc.keepalive_time_ms": 20_000,
    "grpc.keepalive_timeout_ms": 10_000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.max_reconnect_backoff_ms": 2_000,
  });
}
