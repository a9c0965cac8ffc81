// A run's whole life, and the watching of it.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { text } from "node:stream/consumers";
import { after, test } from "node:test";
import { status as Code } from "@grpc/grpc-js";
import { Route, RunStatus } from "./gen/runledger/v1/run.js";
import { Disposition } from "./gen/runledger/v1/run_service.js";
import { client, kindOf, newRunId, refused, service, watch } from "./support.js";

after(() => client.close());
const { APPLIED, UNCHANGED, REPLAYED } = {
  APPLIED: Disposition.DISPOSITION_APPLIED,
  UNCHANGED: Disposition.DISPOSITION_UNCHANGED,
  REPLAYED: Disposition.DISPOSITION_REPLAYED,
};
const start = (runId: string, fields = {}) => service.startRun({ runId, taskThreadId: "thread", ...fields });

test("a run goes from start to complete", async () => {
  const runId = newRunId();
  const started = await start(runId, { agentId: "agent", route: Route.ROUTE_CLI, metadata: { a: 1, b: { c: "d" } } });
  assert.deepEqual([started.disposition, started.run?.revision, started.run?.status], [APPLIED, 1n, RunStatus.RUN_STATUS_RUNNING]);
  const changes = { auditSessionId: "audit", labels: { k: "v" }, metadata: { b: { c: null, e: [1] } } };
  const updated = await service.updateRun({ runId, ...changes });
  assert.deepEqual(updated.run?.metadata, { a: 1, b: { e: [1] } });
  assert.deepEqual([updated.run?.labels, updated.run?.auditSessionId, updated.run?.revision], [{ k: "v" }, "audit", 2n]);
  assert.equal((await service.updateRun({ runId, ...changes })).disposition, UNCHANGED);
  const completed = await service.completeRun({ runId });
  assert.deepEqual([completed.run?.status, completed.run?.revision], [RunStatus.RUN_STATUS_COMPLETED, 3n]);
  assert.ok(completed.run?.completedAt);
  assert.equal((await service.completeRun({ runId })).disposition, UNCHANGED);
  assert.deepEqual((await service.getRun({ runId })).run, completed.run);
  const { events } = await service.listRunEvents({ runId });
  assert.deepEqual(events.map((event) => event.revision), [1n, 2n, 3n]);
});

test("a deferred run starts later, and its late enemies change nothing", async () => {
  const runId = newRunId();
  assert.equal((await start(runId, { deferred: true })).run?.status, RunStatus.RUN_STATUS_PENDING);
  assert.equal((await start(runId)).run?.status, RunStatus.RUN_STATUS_RUNNING);
  const aborted = await service.abortRun({ runId, failureReason: "stop", reasonCode: "USER_CANCELLED" });
  const late = await service.failRun({ runId, failureReason: "too late" });
  assert.deepEqual([late.disposition, late.run], [UNCHANGED, aborted.run]);
});

test("a retry is replayed with the run as it was then", async () => {
  const runId = newRunId();
  await start(runId, { requestId: "one" });
  await service.updateRun({ runId, workflowId: "later" });
  const again = await start(runId, { requestId: "one" });
  assert.deepEqual([again.disposition, again.run?.revision, again.run?.workflowId, again.currentRevision], [REPLAYED, 1n, "", 2n]);
});

test("check transition changes nothing", async () => {
  const runId = newRunId();
  await start(runId);
  assert.equal((await service.checkTransition({ runId, to: RunStatus.RUN_STATUS_COMPLETED })).allowed, true);
  const matrix = await service.checkTransition({ from: RunStatus.RUN_STATUS_PENDING, to: RunStatus.RUN_STATUS_COMPLETED });
  assert.deepEqual([matrix.allowed, matrix.reason], [false, "INVALID_TRANSITION"]);
  assert.equal((await service.getRun({ runId })).run?.revision, 1n);
});

test("numbers come back as doubles", async () => {
  const metadata = { big: 2 ** 53 + 1, huge: 1e308, small: 5e-324, tenth: 0.1, negative: -7 };
  const { run } = await start(newRunId(), { metadata });
  assert.deepEqual(run?.metadata, metadata);
  assert.equal(run?.metadata?.big, 9_007_199_254_740_992);
});

test("a watch shows the run and then each change until the end", async () => {
  const runId = newRunId();
  await start(runId);
  let caughtUp: () => void;
  const ready = new Promise<void>((resolve) => (caughtUp = resolve));
  const watching = watch({ runId }, (frame) => frame.caughtUp && caughtUp());
  await Promise.race([ready, watching]);
  await service.updateRun({ runId, tabGroupId: "tabs" });
  const completed = await service.completeRun({ runId });
  const frames = await watching;
  assert.deepEqual(frames.map(kindOf), ["snapshot", "caughtUp", "change", "change", "end"]);
  assert.deepEqual(frames.slice(2, 4).map((frame) => frame.change?.run?.revision), [2n, 3n]);
  assert.equal(frames[2].change?.run?.status, RunStatus.RUN_STATUS_RUNNING);
  assert.deepEqual(frames[4].end?.run, completed.run);
});

test("a resumed watch misses and repeats nothing", async () => {
  const runId = newRunId();
  await start(runId);
  for (const workflowId of ["a", "b", "c"]) await service.updateRun({ runId, workflowId });
  await service.abortRun({ runId });
  const whole = await watch({ runId, afterRevision: 0n });
  assert.deepEqual(whole.flatMap((frame) => frame.change?.event?.revision ?? []), [1n, 2n, 3n, 4n, 5n]);
  for (let revision = 1; revision <= 5; revision++) {
    assert.deepEqual(await watch({ runId, afterRevision: BigInt(revision) }), whole.slice(revision));
  }
});

test("a watch of no run, or ahead of it, is refused", async () => {
  const runId = newRunId();
  await refused(Code.NOT_FOUND, "RUN_NOT_FOUND", watch({ runId }));
  await start(runId);
  await refused(Code.OUT_OF_RANGE, "REVISION_AHEAD", watch({ runId, afterRevision: 2n }));
});

test("the page's example does what it says", async () => {
  const example = spawn(process.execPath, ["--import", "tsx", "example.ts"], {
    env: { ...process.env, RUNLEDGER_SERVER: process.env.RUNLEDGER_TEST_SERVER },
    stdio: ["ignore", "pipe", "inherit"],
  });
  assert.equal(await text(example.stdout), "RUN_STATUS_COMPLETED\nRUN_NOT_FOUND\n");
});
