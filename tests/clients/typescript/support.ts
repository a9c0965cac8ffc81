// What the tests share: a service, runs with names of their own, and the unpacking of refusals.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { Metadata, type ServiceError, status as Code } from "@grpc/grpc-js";
import { Status } from "./gen/google/rpc/status.js";
import { Route } from "./gen/runledger/v1/run.js";
import {
  AbortRunRequest,
  CheckTransitionRequest,
  CompleteRunRequest,
  CountRunsRequest,
  FailRunRequest,
  GetRunRequest,
  ListRunEventsRequest,
  ListRunsRequest,
  StartRunRequest,
  UpdateRunRequest,
  WaitRunRequest,
} from "./gen/runledger/v1/run_service.js";
import { WatchRunRequest, type WatchRunResponse, WatchRunsRequest, type WatchRunsRequest_Initial } from "./gen/runledger/v1/watch.js";
import { connect } from "./connect.js";
import { type Details, details } from "./details.js";

const TIMEOUT_MS = 20_000;

const { RUNLEDGER_TEST_SERVER, RUNLEDGER_CLIENT_TLS_CA, RUNLEDGER_TOKEN_FILE } = process.env;

export const client = connect(RUNLEDGER_TEST_SERVER!, RUNLEDGER_CLIENT_TLS_CA, RUNLEDGER_TOKEN_FILE);

type Callback<A> = (error: ServiceError | null, answer: A) => void;
type Method<Q, A> = (request: Q, metadata: Metadata, options: { deadline: number }, callback: Callback<A>) => unknown;
type Kind<Q> = { create(base?: object): Q };

function unary<Q, A>(kind: Kind<Q>, method: Method<Q, A>) {
  return (fields: Parameters<Kind<Q>["create"]>[0] = {}, agent?: string) =>
    new Promise<A>((resolve, reject) => {
      const metadata = new Metadata();
      if (agent) metadata.set("runledger-agent-id", agent);
      const deadline = Date.now() + TIMEOUT_MS;
      method.call(client, kind.create(fields), metadata, { deadline }, (error, answer) =>
        error ? reject(error) : resolve(answer),
      );
    });
}

export const service = {
  startRun: unary(StartRunRequest, client.startRun),
  updateRun: unary(UpdateRunRequest, client.updateRun),
  completeRun: unary(CompleteRunRequest, client.completeRun),
  abortRun: unary(AbortRunRequest, client.abortRun),
  failRun: unary(FailRunRequest, client.failRun),
  getRun: unary(GetRunRequest, client.getRun),
  checkTransition: unary(CheckTransitionRequest, client.checkTransition),
  listRunEvents: unary(ListRunEventsRequest, client.listRunEvents),
  waitRun: unary(WaitRunRequest, client.waitRun),
  listRuns: unary(ListRunsRequest, client.listRuns),
  countRuns: unary(CountRunsRequest, client.countRuns),
};

export const newRunId = () => `ts-${randomUUID()}`;

/** The frames of a watch until it ends; `seen` is told of each as it comes. */
export async function watch(fields: Partial<WatchRunRequest>, seen: (frame: WatchRunResponse) => void = () => {}) {
  const frames: WatchRunResponse[] = [];
  const options = { deadline: Date.now() + TIMEOUT_MS };
  for await (const frame of client.watchRun(WatchRunRequest.fromPartial(fields), new Metadata(), options)) {
    frames.push(frame);
    seen(frame);
  }
  return frames;
}

/** The frames of a watch of many runs, for as long as they are asked for. */
export function watchRuns(fields: { filter: object; cursor?: string; initial?: WatchRunsRequest_Initial }) {
  const options = { deadline: Date.now() + TIMEOUT_MS };
  return client.watchRuns(WatchRunsRequest.fromPartial(fields), new Metadata(), options);
}

/** Which of the frame's kinds is set. */
export const kindOf = (frame: object) => Object.entries(frame).find(([, value]) => value !== undefined)?.[0];

/** Checks that the call is refused with this code and reason, and hands back what came with it. */
export async function refused(code: Code, reason: string, call: Promise<unknown>): Promise<Details & { text: string }> {
  const error = (await call.then(
    () => assert.fail(`the call was not refused with ${reason}`),
    (error: unknown) => error,
  )) as ServiceError;
  assert.equal(Code[error.code] ?? error, Code[code], String(error));
  const packed = error.metadata.get("grpc-status-details-bin")[0] as Buffer;
  assert.ok(packed.length <= 4096, `${packed.length} bytes of details`);
  const unpacked = details(error);
  // Each kind of detail comes once, and what the docs show knows it.
  assert.equal(Object.keys(unpacked).length, Status.decode(packed).details.length);
  assert.deepEqual([unpacked.ErrorInfo?.domain, unpacked.ErrorInfo?.reason], ["runledger", reason], String(error));
  return { ...unpacked, text: error.details };
}

const compact = (fields: object) => Buffer.byteLength(JSON.stringify(fields));

/** 65,536 bytes as compact JSON, 32 deep, and as many numbers as fit: the form that grows most on the wire. */
export function largestMetadata() {
  let deep: unknown = 1;
  for (let level = 0; level < 31; level++) deep = { d: deep };
  const fields = { deep, numbers: [] as number[], pad: "" };
  fields.numbers = new Array(Math.floor((65_536 - compact(fields)) / 2)).fill(7);
  fields.pad = "p".repeat(65_536 - compact(fields));
  assert.equal(compact(fields), 65_536);
  return fields;
}

/** A StartRun with every field at its limit; strings of four-byte characters where any are allowed. */
export function largestStart() {
  const wide = "\u{1f4a5}".repeat(64);
  return {
    runId: newRunId().padEnd(128, "~"),
    taskThreadId: wide,
    agentId: "a".repeat(256),
    tabGroupId: "\x01".repeat(256),
    auditSessionId: '"'.repeat(256),
    workflowId: wide,
    route: Route.ROUTE_MCP,
    fallbackUsed: true,
    labels: Object.fromEntries(Array.from({ length: 32 }, (_, key) => [`${key}`.padStart(2, "0").padEnd(63, "k"), wide])),
    metadata: largestMetadata(),
    requestId: "r".repeat(128),
  };
}
