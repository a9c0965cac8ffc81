// A bridge to Runledger: it connects, unpacks refusals, does work under a lease, and watches a run to its end.
import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import { createRegistry, type DescMessage, type MessageShape } from "@bufbuild/protobuf";
import { durationFromMs, durationMs } from "@bufbuild/protobuf/wkt";
import { type Client, Code, ConnectError, createClient, type Interceptor } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import * as rpc from "./gen/google/rpc/error_details_pb.js";
import * as errors from "./gen/runledger/v1/error_pb.js";
import * as runs from "./gen/runledger/v1/run_pb.js";
import { Disposition, RunService } from "./gen/runledger/v1/run_service_pb.js";

const config = JSON.parse(readFileSync(new URL("service_config.json", import.meta.url), "utf8"));
const { timeout, retryPolicy } = config.methodConfig[0]; // Every method has this retry policy.
const retryable: string[] = retryPolicy.retryableStatusCodes.map((code: string) => code.replaceAll("_", ""));
const ms = (seconds: string) => parseFloat(seconds) * 1_000;

export type RunClient = Client<typeof RunService>;

/**
 * A client with one connection of its own to HOST:PORT: the first call opens it, and the next one when it broke. Over TLS
 * where `ca` names the file of the server's CA; only then with the token of a file.
 */
export function connect(address: string, ca?: string, tokenFile?: string): RunClient {
  if (tokenFile && !ca) throw new Error("a token is sent over TLS only: name the file of the server's CA");
  const transport = createGrpcTransport({
    baseUrl: `${ca ? "https" : "http"}://${address}`,
    nodeOptions: ca ? { ca: readFileSync(ca) } : {},
    defaultTimeoutMs: ms(timeout),
    interceptors: tokenFile ? [retry(), token(tokenFile)] : [retry()],
    acceptCompression: [], // Answers are not compressed; nor are requests, unless Connect is told to.
    pingIntervalMs: 20_000,
    pingTimeoutMs: 10_000,
    pingIdleConnection: true,
  });
  return createClient(RunService, transport);
}

/** Reads the token for each attempt: the file has another one now and then. */
function token(file: string): Interceptor {
  return (next) => async (request) => {
    request.header.set("authorization", `Bearer ${(await readFile(file, "utf8")).trim()}`);
    return next(request);
  };
}

type Kinds = typeof rpc & typeof errors & typeof runs;
type Shape<Kind> = Kind extends DescMessage ? MessageShape<Kind> : never;
/** A refusal's details by name, such as `ErrorInfo`: any messages of the three files that the kinds come from. */
export type Details = { [Name in keyof Kinds as Name extends `${infer N}Schema` ? N : never]?: Shape<Kinds[Name]> };
const files = [rpc.file_google_rpc_error_details, errors.file_runledger_v1_error, runs.file_runledger_v1_run];
const registry = createRegistry(...files);

/** Unpacks a refusal. An error without `ErrorInfo` is not Runledger's own: the call may have been applied. */
export function details(error: unknown): Details {
  const found = ConnectError.from(error).findDetails(registry);
  return Object.fromEntries(found.map((detail) => [detail.$typeName.split(".").pop(), detail]));
}

/** Whether a call may succeed when it is sent again: its code says so, or no server has answered. */
function again(error: unknown): boolean {
  const { code, metadata } = ConnectError.from(error);
  // When a connection breaks, gRPC says UNAVAILABLE. Connect says one of these, without a server's status.
  const broken = [Code.Canceled, Code.Aborted, Code.Internal].includes(code) && !metadata.has("grpc-status");
  return broken || code === Code.DeadlineExceeded || retryable.includes(Code[code].toUpperCase());
}

function backoffMs(failures: number): number {
  const grown = ms(retryPolicy.initialBackoff) * retryPolicy.backoffMultiplier ** (failures - 1);
  return Math.min(grown, ms(retryPolicy.maxBackoff)) * (0.8 + 0.4 * Math.random());
}

/** Does for unary calls what service_config.json says, for Connect has no service configs. */
function retry(): Interceptor {
  const { maxTokens, tokenRatio } = config.retryThrottling;
  let tokens = maxTokens;
  return (next) => async (request) => {
    if (request.stream) return next(request);
    const { header, signal } = request; // The signal is the deadline's as well as the caller's.
    const deadline = Date.now() + parseInt(header.get("grpc-timeout") ?? "0");
    for (let failures = 1; ; failures++) {
      try {
        const answer = await next(request);
        tokens = Math.min(tokens + tokenRatio, maxTokens);
        return answer;
      } catch (error) {
        // The server's own DEADLINE says that nothing was written. A second attempt would have no time, and not say so.
        if (signal.aborted || ConnectError.from(error).code === Code.DeadlineExceeded || !again(error)) throw error;
        tokens = Math.max(tokens - 1, 0);
        if (failures === retryPolicy.maxAttempts || tokens <= maxTokens / 2) throw error;
      }
      await sleep(backoffMs(failures), undefined, { signal });
      // The server answers just before the deadline that it is told, so tell it what is left.
      if (header.has("grpc-timeout")) header.set("grpc-timeout", `${Math.max(deadline - Date.now(), 1)}m`);
    }
  };
}

/** Starts a run under a lease. After an unknown outcome, call it again with the same `requestId` and the same rest. */
export async function start(client: RunClient, fields: Parameters<RunClient["startRun"]>[0], ttlMs = 30_000) {
  const requestId = fields.requestId || randomUUID();
  const { run, disposition } = await client.startRun({ ...fields, requestId, leaseTtl: durationFromMs(ttlMs) });
  if (disposition === Disposition.UNCHANGED) throw new Error(`run ${run!.runId} is under way, and not under our lease`);
  return run!;
}

/** What the work of a run is given. */
export interface Lease {
  run: runs.Run;
  /** Aborted when the work must stop. The reason is a request to abort, or the refusal of a heartbeat. */
  signal: AbortSignal;
  /** UpdateRun under the lease, sent again until it is answered, for two minutes. `progress` alone makes no event. */
  update: RunClient["updateRun"];
}

/** Makes a call again until it is answered or refused, for two minutes. With one requestId, it is applied once. */
async function answered<A>(call: () => Promise<A>, givenUp: () => boolean | undefined): Promise<A> {
  for (const until = Date.now() + 120_000; ; await sleep(1_000)) {
    try {
      return await call();
    } catch (error) {
      if (!again(error) || Date.now() > until || givenUp()) throw error;
    }
  }
}

/**
 * Does the work of a run that was started or claimed under a lease, with heartbeats beside it, and reports its end:
 * COMPLETED when the work returns, even after it was told to stop; when it throws, as `signal.throwIfAborted()` does,
 * ABORTED if an abort was requested, else FAILED.
 *
 * Resolves with the run as it ended, or with nothing, and reports nothing, when the lease is somebody else's. Rejects
 * when the report is refused, or was not answered for two minutes.
 */
export async function work(client: RunClient, run: runs.Run, body: (lease: Lease) => Promise<void>) {
  const { runId, lease } = run;
  const [leaseEpoch, ttl] = [lease!.epoch, durationMs(lease!.ttl!)];
  const [stop, over] = [new AbortController(), new AbortController()];
  const heard: { abort?: runs.AbortRequest | undefined; lost?: boolean | undefined } = {};

  async function heartbeats() {
    const timeoutMs = Math.floor(Math.min(ttl / 3, ms(timeout))); // The server refuses fractions.
    while (!over.signal.aborted) {
      let next = Date.now() + ttl / 3; // The first goes out at once: the lease may be older than its answer.
      try {
        const answer = await client.heartbeatRun({ runId, leaseEpoch }, { timeoutMs, signal: over.signal });
        heard.abort = answer.abortRequest;
        if (heard.abort) stop.abort(new Error(`abort requested: ${heard.abort.reason}`));
      } catch (error) {
        const { LeaseLostError } = details(error);
        heard.lost = LeaseLostError && LeaseLostError.currentEpoch !== leaseEpoch;
        // With our own epoch, the lease is over and nobody has followed: the work may go on, and report its end.
        if (heard.lost || (!LeaseLostError && !again(error))) return stop.abort(error);
        next = Date.now() + Math.min(ttl / 12, 500);
      }
      await sleep(next - Date.now(), undefined, { signal: over.signal }).catch(() => {});
    }
  }

  const update: Lease["update"] = (fields, options) => {
    const request = { ...fields, runId, leaseEpoch, requestId: fields.requestId || randomUUID() };
    return answered(() => client.updateRun(request, options), () => stop.signal.aborted);
  };
  const beating = heartbeats(); // They go on until the end is answered, for only the holder may report it.
  try {
    const end = { runId, leaseEpoch, requestId: randomUUID() };
    let report: () => Promise<{ run?: runs.Run | undefined }> = () => client.completeRun(end);
    try {
      await body({ run, signal: stop.signal, update });
    } catch (error) {
      // A reason has 4,096 bytes at most, and no U+0000.
      const failureReason = Buffer.from(`${error}`.replaceAll("\0", "") || "unknown").subarray(0, 4_090).toString();
      const aborted = heard.abort && { ...end, failureReason: heard.abort.reason, reasonCode: "ABORT_REQUESTED" };
      report = () => (aborted ? client.abortRun(aborted) : client.failRun({ ...end, failureReason }));
    }
    if (heard.lost) return undefined;
    try {
      return (await answered(report, () => heard.lost)).run;
    } catch (error) {
      const { LeaseLostError, LifecycleTransitionError } = details(error);
      if (LeaseLostError || heard.lost) return undefined;
      if (LifecycleTransitionError) return (await client.getRun({ runId })).run; // Somebody else has ended it.
      throw error;
    }
  } finally {
    over.abort();
    await beating;
  }
}

export type WatchOptions = { afterRevision?: bigint; ledgerEpoch?: bigint; signal?: AbortSignal };

/**
 * Watches a run to its end, through broken connections: a snapshot and each change after it, or each change after a
 * revision, once and in order. A further snapshot says that the ledger was restored: what came before it is gone.
 */
export async function* watch(client: RunClient, runId: string, options: WatchOptions = {}) {
  let { afterRevision, ledgerEpoch } = options;
  for (let failures = 0; ; failures++) {
    const cut = new AbortController(); // For readers that leave: Connect would not end their stream.
    const signal = AbortSignal.any(options.signal ? [cut.signal, options.signal] : [cut.signal]);
    let reason: string | undefined;
    try {
      for await (const response of client.watchRun({ runId, afterRevision, ledgerEpoch }, { signal, timeoutMs: 0 })) {
        failures = 0;
        const { case: kind, value } = response.frame;
        if (kind === "snapshot" || kind === "change") afterRevision = value.run!.revision;
        if (kind === "caughtUp" || kind === "checkpoint") afterRevision = value.revision;
        if (afterRevision !== undefined) ledgerEpoch = response.ledgerEpoch; // All frames of a stream share it.
        if (kind) yield response; // A kind that is not known has no case.
        if (kind === "end") return;
      }
    } catch (error) {
      reason = details(error).ErrorInfo?.reason;
      if (reason === "LEDGER_RESTORED") afterRevision = ledgerEpoch = undefined;
      else if (!again(error)) throw error;
    } finally {
      cut.abort();
    }
    if (reason !== "DRAINING" || failures > 0) await sleep(backoffMs(failures + 1), undefined, options);
  }
}
