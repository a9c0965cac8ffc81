// The service config is in force, although Connect has none.
import assert from "node:assert/strict";
import type { IncomingHttpHeaders } from "node:http2";
import { test } from "node:test";
import { Code, ConnectError } from "@connectrpc/connect";
import { connect } from "./bridge.js";
import { Disposition } from "./gen/runledger/v1/run_service_pb.js";
import { direct, found, newRunId, pretend, proxy, TIMEOUT } from "./support.js";

const fields = () => ({ runId: newRunId(), taskThreadId: "thread", requestId: newRunId() });
const events = async (runId: string) => (await direct.listRunEvents({ runId })).events.length;
const failure = (call: Promise<unknown>) => call.then(() => assert.fail("it was answered"), ConnectError.from);

test("a call whose first connection is refused is sent again", TIMEOUT, async () => {
  const between = await proxy((connection) => (connection === 1 ? "cut" : "whole"));
  const request = fields();
  const { disposition } = await connect(between.address).startRun(request);
  assert.deepEqual([disposition, between.connections], [Disposition.APPLIED, 2]);
  assert.equal(await events(request.runId), 1);
});

test("a call whose answer got lost is sent again, and applied once", TIMEOUT, async () => {
  const between = await proxy((connection) => (connection === 1 ? "without answers" : "whole"));
  const request = fields();
  const call = connect(between.address).startRun(request, { timeoutMs: 50_000 });
  await found(() => direct.getRun({ runId: request.runId }).catch(() => undefined));
  between.cut();
  assert.equal((await call).disposition, Disposition.REPLAYED);
  assert.equal(await events(request.runId), 1);
});

test("a refusal is not sent again", TIMEOUT, async () => {
  const between = await proxy();
  const client = connect(between.address);
  const request = fields();
  await client.startRun(request);
  const { code } = await failure(client.startRun({ ...request, requestId: newRunId(), expectedRevision: 0n }));
  assert.deepEqual([code, between.connections], [Code.Aborted, 1]);
});

test("five attempts are made, and no second ones while most calls fail", TIMEOUT, async () => {
  const between = await proxy(() => "cut");
  const client = connect(between.address);
  for (const attempts of [5, 10, 11]) {
    await failure(client.getRun({ runId: "run" }));
    assert.equal(between.connections, attempts);
  }
});

/** The headers of the attempts at one call, of which a server refuses each with the next of these codes. */
async function attempts(...refusals: Code[]) {
  const seen: IncomingHttpHeaders[] = [];
  const client = await pretend((stream, headers) => {
    const status = refusals[seen.push(headers) - 1];
    stream.respond({ ":status": 200, "content-type": "application/grpc", "grpc-status": status }, { endStream: true });
  });
  assert.equal((await failure(client.getRun({ runId: "run" }))).code, refusals.at(-1));
  return seen;
}

test("each attempt says what is left of the deadline, and asks for no compression", TIMEOUT, async () => {
  const seen = await attempts(Code.ResourceExhausted, Code.Unavailable, Code.NotFound);
  const left = seen.map((headers) => parseInt(String(headers["grpc-timeout"])));
  assert.equal(left[0], 15_000);
  assert.ok(left[1] < left[0] && left[2] < left[1], String(left));
  for (const headers of seen) assert.ok(!("grpc-encoding" in headers) && !("grpc-accept-encoding" in headers));
});

test("what a server says of a deadline, or of any trouble of its own, is handed on", TIMEOUT, async () => {
  for (const code of [Code.DeadlineExceeded, Code.Internal, Code.Canceled, Code.Aborted, Code.Unknown]) {
    assert.equal((await attempts(code)).length, 1, Code[code]);
  }
});
