import { readFile, readFileSync } from "node:fs";
import { type ChannelCredentials, credentials, Metadata } from "@grpc/grpc-js";
import { RunServiceClient } from "./gen/runledger/v1/run_service.js";

/**
 * A client whose calls are sent again where that is safe. Give every mutation a `requestId`, once and not per attempt.
 * Over TLS where `ca` names the file of the server's CA; only then with the token of a file.
 */
export function connect(address: string, ca?: string, tokenFile?: string): RunServiceClient {
  return new RunServiceClient(address, ca === undefined ? inPlainText(tokenFile) : overTls(ca, tokenFile), {
    "grpc.service_config": readFileSync(new URL("service_config.json", import.meta.url), "utf8"),
    "grpc.keepalive_time_ms": 20_000,
    "grpc.keepalive_timeout_ms": 10_000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.max_reconnect_backoff_ms": 2_000,
  });
}

function inPlainText(tokenFile?: string): ChannelCredentials {
  if (tokenFile !== undefined) throw new Error("a token is sent over TLS only: name the file of the server's CA");
  return credentials.createInsecure();
}

function overTls(ca: string, tokenFile?: string): ChannelCredentials {
  const tls = credentials.createSsl(readFileSync(ca));
  if (tokenFile === undefined) return tls;
  // The token is read for each call: the file has another one now and then.
  const token = credentials.createFromMetadataGenerator((_call, callback) =>
    readFile(tokenFile, "utf8", (error, text) => {
      if (error) return callback(error);
      const metadata = new Metadata();
      metadata.set("authorization", `Bearer ${text.trim()}`);
      callback(null, metadata);
    }),
  );
  return credentials.combineChannelCredentials(tls, token);
}
