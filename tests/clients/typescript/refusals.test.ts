// Every refusal arrives with its own code and its typed details.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { after, test } from "node:test";
import { credentials, Metadata, type ServiceError, status as Code } from "@grpc/grpc-js";
import { Status } from "./gen/google/rpc/status.js";
import { RunStatus } from "./gen/runledger/v1/run.js";
import { RunServiceClient, StartRunRequest } from "./gen/runledger/v1/run_service.js";
import { details } from "./details.js";
import { client, largestMetadata, newRunId, refused, service } from "./support.js";

after(() => client.close());
const start = (runId: string, fields = {}) => service.startRun({ runId, taskThreadId: "thread", ...fields });

test("INVALID_TRANSITION tells from, to and the winner", async () => {
  const runId = newRunId();
  await start(runId);
  await service.abortRun({ runId, failureReason: "stopped", reasonCode: "TIMEOUT" });
  const refusal = await refused(Code.FAILED_PRECONDITION, "INVALID_TRANSITION", service.completeRun({ runId }));
  const text = `Invalid lifecycle transition for run ${runId}: aborted → completed`;
  const detail = refusal.LifecycleTransitionError!;
  assert.deepEqual([refusal.text, detail.message, detail.name], [text, text, "LifecycleTransitionError"]);
  assert.deepEqual([detail.from, detail.to], [RunStatus.RUN_STATUS_ABORTED, RunStatus.RUN_STATUS_COMPLETED]);
  assert.deepEqual([detail.run?.reasonCode, detail.run?.failureReason, detail.run?.revision], ["TIMEOUT", "stopped", 2n]);
});

test("NOT_OWNER names both agents", async () => {
  const runId = newRunId();
  await start(runId, { agentId: "owner", tabGroupId: "tabs" });
  const { OwnershipError } = await refused(Code.PERMISSION_DENIED, "NOT_OWNER", service.completeRun({ runId }, "thief"));
  assert.deepEqual(OwnershipError, { runId, agentId: "thief", ownerAgentId: "owner", tabGroupId: "tabs", action: "CompleteRun" });
});

test("RUN_ID_CONFLICT names the field", async () => {
  const runId = newRunId();
  await start(runId, { agentId: "owner" });
  for (const [field, name] of [["taskThreadId", "task_thread_id"], ["agentId", "agent_id"]]) {
    const refusal = await refused(Code.ALREADY_EXISTS, "RUN_ID_CONFLICT", start(runId, { [field]: "other" }));
    assert.deepEqual([refusal.RunIdConflictError?.field, refusal.RunIdConflictError?.requested], [name, "other"]);
  }
});

test("REVISION_MISMATCH tells both revisions", async () => {
  const runId = newRunId();
  await start(runId);
  const refusal = await refused(Code.ABORTED, "REVISION_MISMATCH", service.completeRun({ runId, expectedRevision: 9n }));
  const detail = refusal.RevisionMismatchError!;
  assert.deepEqual([detail.expectedRevision, detail.actualRevision, detail.run?.runId], [9n, 1n, runId]);
});

test("RUN_NOT_RUNNING shows the run", async () => {
  const runId = newRunId();
  await start(runId, { deferred: true });
  const { RunSummary } = await refused(Code.FAILED_PRECONDITION, "RUN_NOT_RUNNING", service.updateRun({ runId }));
  assert.deepEqual([RunSummary?.runId, RunSummary?.status], [runId, RunStatus.RUN_STATUS_PENDING]);
});

test("INVALID_FIELD lists every violation", async () => {
  const refusal = await refused(Code.INVALID_ARGUMENT, "INVALID_FIELD", start("not an id", { taskThreadId: "", agentId: "a".repeat(257) }));
  const fields = refusal.BadRequest!.fieldViolations.map((violation) => violation.field);
  assert.deepEqual(fields.sort(), ["agent_id", "run_id", "task_thread_id"]);
});

test("INVALID_FIELD for what cannot be kept", async () => {
  let deep: unknown = 1;
  for (let level = 0; level < 32; level++) deep = { d: deep };
  const over = largestMetadata();
  over.pad += "p";
  for (const metadata of [{ n: NaN }, { n: Infinity }, { "\0": 1 }, { s: "\0" }, { deep }, over]) {
    await refused(Code.INVALID_ARGUMENT, "INVALID_FIELD", start(newRunId(), { metadata }));
  }
  for (const fields of [{ taskThreadId: "a\0" }, { labels: { "\0": "" } }, { labels: { k: "\0" } }, { route: 77 }]) {
    await refused(Code.INVALID_ARGUMENT, "INVALID_FIELD", start(newRunId(), fields));
  }
});

test("RUN_NOT_FOUND names the resource", async () => {
  const runId = newRunId();
  for (const call of [service.getRun, service.updateRun, service.completeRun, service.abortRun]) {
    const { ResourceInfo } = await refused(Code.NOT_FOUND, "RUN_NOT_FOUND", call({ runId }));
    assert.equal(ResourceInfo?.resourceName, runId);
  }
});

test("REQUEST_ID_REUSED", async () => {
  const runId = newRunId();
  await start(runId, { requestId: "once" });
  await refused(Code.INVALID_ARGUMENT, "REQUEST_ID_REUSED", service.updateRun({ runId, requestId: "once", workflowId: "w" }));
});

test("every detail that there is is known", () => {
  const packed = (name: string) => {
    const typeUrl = `type.googleapis.com/${name}`;
    const status = Status.fromPartial({ code: 9, details: [{ typeUrl, value: Buffer.alloc(0) }] });
    const metadata = new Metadata();
    metadata.set("grpc-status-details-bin", Buffer.from(Status.encode(status).finish()));
    return Object.keys(details({ metadata } as ServiceError));
  };
  const proto = readFileSync("proto/runledger/v1/error.proto", "utf8");
  const names = [...proto.matchAll(/^message (\w+)/gm)].map(([, name]) => name!);
  assert.ok(names.includes("LifecycleTransitionError"));
  for (const name of [...names, "RunSummary"]) assert.deepEqual(packed(`runledger.v1.${name}`), [name]);
  for (const name of ["ErrorInfo", "BadRequest", "ResourceInfo", "RetryInfo"]) assert.deepEqual(packed(`google.rpc.${name}`), [name]);
  for (const name of ["OfALaterRelease", "protobufPackage", "toString"]) assert.deepEqual(packed(`runledger.v1.${name}`), []);
});

test("what the library says itself carries no ErrorInfo", async () => {
  // docs/errors.md says what to make of it: the call may have been applied.
  const nobody = new RunServiceClient("127.0.0.1:1", credentials.createInsecure());
  const get = (from: RunServiceClient, deadline: number) =>
    new Promise<ServiceError | null>((resolve) =>
      from.getRun({ runId: newRunId() }, new Metadata(), { deadline }, (error) => resolve(error)),
    );
  const errors = [await get(client, Date.now() - 1), await get(nobody, Date.now() + 20_000)];
  nobody.close();
  assert.deepEqual(errors.map((error) => error?.code), [Code.DEADLINE_EXCEEDED, Code.UNAVAILABLE]);
  assert.deepEqual(errors.map((error) => details(error!)), [{}, {}]);
});

test("lone surrogates never reach the ledger", async () => {
  // The library sends U+FFFD in their place, or refuses to send.
  const runId = newRunId();
  const answer = await start(runId, { workflowId: "a\ud800b", metadata: { "\udfff": "\ud800" } }).catch((error) => error as Error);
  if (answer instanceof Error) {
    assert.ok(!("code" in answer), String(answer));
    return;
  }
  assert.deepEqual([answer.run?.workflowId, answer.run?.metadata], ["a\ufffdb", { "\ufffd": "\ufffd" }]);
});

test("text that is not UTF-8 is refused, and the service lives on", async () => {
  for (const text of [[0xff], [0xed, 0xa0, 0x80], [0xc0, 0x80], [0x61, 0xf5]]) {
    const bytes = Buffer.from([0x0a, text.length, ...text]);
    const error = await new Promise<ServiceError | null>((resolve) => {
      const path = "/runledger.v1.RunService/StartRun";
      client.makeUnaryRequest(path, (it: Buffer) => it, (it: Buffer) => it, bytes, (refusal) => resolve(refusal));
    });
    assert.equal(error?.code, Code.INVALID_ARGUMENT, String(error));
  }
  assert.ok((await service.startRun(StartRunRequest.create({ taskThreadId: "thread", runId: newRunId() }))).run);
});
