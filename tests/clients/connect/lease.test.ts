// Work under a lease: heartbeats, requests to abort, leases that somebody else took, and the end of a run.
import assert from "node:assert/strict";
import { once } from "node:events";
import { test } from "node:test";
import { create } from "@bufbuild/protobuf";
import { durationFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient, createRouterTransport } from "@connectrpc/connect";
import { connect, details, type RunClient, start, work } from "./bridge.js";
import { LeaseLostErrorSchema } from "./gen/runledger/v1/error_pb.js";
import { RunEventType, RunSchema, RunStatus } from "./gen/runledger/v1/run_pb.js";
import { RunService } from "./gen/runledger/v1/run_service_pb.js";
import { ADDRESS, direct, found, newRunId, proxy, TIMEOUT } from "./support.js";

const begin = (client: RunClient, ttlMs = 10_000) => start(client, { taskThreadId: "thread" }, ttlMs);
const get = async (runId: string) => (await direct.getRun({ runId })).run!;
const history = async (runId: string) => (await direct.listRunEvents({ runId })).events;
const events = async (runId: string) => (await history(runId)).map(({ type }) => type);
/** A client that remembers which calls were made. */
function recorded(client: RunClient) {
  const called: PropertyKey[] = [];
  return { called, client: new Proxy(client, { get: (it, name) => (called.push(name), Reflect.get(it, name)) }) };
}
/** Does nothing until it is told to stop. */
const idle = async ({ signal }: { signal: AbortSignal }) => {
  if (!signal.aborted) await once(signal, "abort");
  signal.throwIfAborted();
};

test("work has its lease renewed, updates its run and completes it", TIMEOUT, async () => {
  const started = await begin(direct);
  const ended = await work(direct, started, async ({ run, update }) => {
    const expiry = async () => timestampMs((await get(run.runId)).lease!.expiresAt!);
    const first = await expiry();
    // One heartbeat goes out at once, and the next a third of the ttl later.
    await found(async () => (await expiry()) > first + 2_000);
    const updated = await update({ labels: { step: "2" }, progress: { done: 2n, total: 3n, message: "fetching" } });
    assert.deepEqual(updated.run!.labels, { step: "2" });
    await found(async () => (await get(run.runId)).progress?.done === 2n);
  });
  assert.equal(ended?.status, RunStatus.COMPLETED);
  const { CREATED, UPDATED, COMPLETED } = RunEventType;
  assert.deepEqual(await events(started.runId), [CREATED, UPDATED, COMPLETED]);
  const requestIds = (await history(started.runId)).map(({ requestId }) => requestId);
  assert.ok(new Set(requestIds).size === 3 && !requestIds.includes(""), "each call has a request_id of its own");
});

test("progress alone makes no event", TIMEOUT, async () => {
  const started = await begin(direct);
  await work(direct, started, async ({ run, update }) => {
    await update({ progress: { done: 1n } });
    await found(async () => (await get(run.runId)).progress?.done === 1n);
  });
  assert.deepEqual(await events(started.runId), [RunEventType.CREATED, RunEventType.COMPLETED]);
});

test("work that throws fails its run with the reason", TIMEOUT, async () => {
  const ended = await work(direct, await begin(direct), async () => {
    throw new Error("no such page\0" + "\u{1f4a5}".repeat(2_000));
  });
  assert.equal(ended?.status, RunStatus.FAILED);
  assert.match(ended.failureReason, /^Error: no such page\u{1f4a5}/u);
});

test("work that is asked to abort is told, and the run ends as ABORTED", TIMEOUT, async () => {
  const started = await begin(direct);
  const ended = await work(direct, started, async (lease) => {
    await direct.requestAbort({ runId: started.runId, reason: "enough" });
    await idle(lease);
  });
  assert.equal(ended?.status, RunStatus.ABORTED);
  assert.deepEqual([ended.failureReason, ended.reasonCode], ["enough", "ABORT_REQUESTED"]);
});

test("work that ends in spite of a request to abort has completed its run", TIMEOUT, async () => {
  const started = await begin(direct);
  const ended = await work(direct, started, async (lease) => {
    await direct.requestAbort({ runId: started.runId });
    await idle(lease).catch(() => {});
  });
  assert.equal(ended?.status, RunStatus.COMPLETED);
});

test("work whose lease somebody else took is told, and nothing is reported", TIMEOUT, async () => {
  const started = await begin(direct);
  const { runId } = started;
  const { client, called } = recorded(direct);
  let told: unknown;
  const ended = await work(client, started, async (lease) => {
    await direct.releaseRun({ runId, leaseEpoch: started.lease!.epoch });
    await direct.claimRun({ runId, leaseTtl: durationFromMs(60_000) });
    await idle(lease).catch((error) => (told = error));
  });
  assert.equal(details(told).ErrorInfo?.reason, "LEASE_LOST");
  assert.equal(ended, undefined);
  assert.deepEqual([...new Set(called)], ["heartbeatRun"]);
  const { CREATED, RELEASED, CLAIMED } = RunEventType;
  assert.deepEqual(await events(runId), [CREATED, RELEASED, CLAIMED]);
  assert.equal((await get(runId)).lease?.epoch, started.lease!.epoch + 2n);
});

test("work that ends after its lease was lost reports nothing, either", TIMEOUT, async () => {
  const started = await begin(direct);
  const release = { runId: started.runId, leaseEpoch: started.lease!.epoch };
  assert.equal(await work(direct, started, async () => void (await direct.releaseRun(release))), undefined);
});

test("work goes on while its lease is over and nobody has followed", TIMEOUT, async () => {
  const calls: string[] = [];
  const detail = { desc: LeaseLostErrorSchema, value: { leaseEpoch: 1n, currentEpoch: 1n } };
  const transport = createRouterTransport(({ service }) =>
    service(RunService, {
      heartbeatRun() {
        calls.push("heartbeat");
        throw new ConnectError("over", Code.FailedPrecondition, undefined, [detail]);
      },
      completeRun: ({ leaseEpoch }) => (calls.push("end"), { run: { lease: { epoch: leaseEpoch } } }),
    }),
  );
  const run = create(RunSchema, { lease: { epoch: 1n, ttl: durationFromMs(1_000) } });
  const ended = await work(createClient(RunService, transport), run, async ({ signal }) => {
    await found(async () => calls.length >= 3);
    signal.throwIfAborted();
  });
  assert.deepEqual([ended?.lease?.epoch, calls.at(-1)], [1n, "end"]);
});

test("work whose run somebody else ended is told, and how it ended is returned", TIMEOUT, async () => {
  const started = await begin(direct);
  const { runId } = started;
  const ended = await work(direct, started, async (lease) => {
    await direct.abortRun({ runId, failureReason: "no more" });
    await assert.rejects(idle(lease), (error) => details(error).ErrorInfo?.reason === "RUN_NOT_RUNNING");
  });
  assert.deepEqual([ended?.status, ended?.failureReason], [RunStatus.ABORTED, "no more"]);
  assert.deepEqual(await events(runId), [RunEventType.CREATED, RunEventType.ABORTED]);
});

test("what the authority concluded from silence is followed by a late report", TIMEOUT, async () => {
  let away = false;
  const between = await proxy(() => (away ? "cut" : "whole"));
  const client = connect(between.address);
  const started = await begin(client, 1_000);
  const ended = await work(client, started, async (lease) => {
    away = true;
    between.cut();
    await found(async () => (await get(started.runId)).presumed);
    away = false;
    await idle(lease);
  });
  assert.deepEqual([ended?.status, ended?.lateReport?.status], [RunStatus.FAILED, RunStatus.FAILED]);
  assert.match(ended!.lateReport!.failureReason, /^ConnectError/);
});

test("an end that nobody answers is reported again, and applied once", TIMEOUT, async () => {
  const between = await proxy(() => (called.filter((name) => name === "completeRun").length === 1 ? "cut" : "whole"));
  const { client, called } = recorded(connect(between.address));
  const started = await begin(client);
  const ended = await work(client, started, async () => between.cut());
  assert.equal(ended?.status, RunStatus.COMPLETED);
  assert.deepEqual(await events(started.runId), [RunEventType.CREATED, RunEventType.COMPLETED]);
});

test("an update that nobody answers is sent again, and applied once", TIMEOUT, async () => {
  const between = await proxy(() => (called.filter((name) => name === "updateRun").length === 1 ? "cut" : "whole"));
  const { client, called } = recorded(connect(between.address));
  const started = await begin(client);
  await work(client, started, async ({ update }) => {
    between.cut();
    await update({ labels: { step: "2" } });
  });
  const { CREATED, UPDATED, COMPLETED } = RunEventType;
  assert.deepEqual(await events(started.runId), [CREATED, UPDATED, COMPLETED]);
});

test("a run that is under way is not started again", TIMEOUT, async () => {
  const { runId } = await begin(direct);
  await assert.rejects(start(direct, { runId, taskThreadId: "thread" }), /under way/);
});

test("a start that is repeated with its request_id meets its run and lease again", TIMEOUT, async () => {
  const fields = { taskThreadId: "thread", requestId: newRunId() };
  assert.deepEqual((await start(direct, fields)).lease, (await start(direct, fields)).lease);
});

test("a run that was claimed is worked on like one that was started", TIMEOUT, async () => {
  const [taskThreadId, leaseTtl] = [newRunId(), durationFromMs(10_000)];
  await direct.startRun({ taskThreadId, deferred: true, requestId: newRunId() });
  const claim = { filter: { taskThreadId }, leaseTtl, wait: durationFromMs(10_000), requestId: newRunId() };
  const { run } = await direct.claimNextRun(claim, { timeoutMs: 20_000 });
  assert.equal((await work(direct, run!, async () => {}))?.status, RunStatus.COMPLETED);
});

test("the page's example does what it says", TIMEOUT, async (t) => {
  process.env.RUNLEDGER_SERVER = ADDRESS;
  const log = t.mock.method(console, "log", () => {});
  await import("./usage.js");
  const changes = [1n, 2n, 3n, 4n, 5n].map((revision) => [revision, revision < 5n ? "RUNNING" : "COMPLETED"]);
  const said = log.mock.calls.map((call) => call.arguments);
  assert.deepEqual(said, [["COMPLETED"], ...changes, ["RUN_NOT_FOUND", "no-such-run"]]);
});
