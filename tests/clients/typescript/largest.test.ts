// The largest legal run gets through: in an answer, in every refusal, and in watch frames.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { status as Code } from "@grpc/grpc-js";
import { client, largestMetadata, largestStart, refused, service, watch } from "./support.js";

after(() => client.close());
const end = (runId: string) => service.failRun({ runId, failureReason: "\u{1f4a5}".repeat(1024), reasonCode: "R".repeat(64) });

test("an answer holds the largest run", async () => {
  const fields = largestStart();
  const { runId, requestId: _, ...kept } = fields;
  const started = (await service.startRun(fields)).run!;
  assert.deepEqual(started.metadata, largestMetadata());
  assert.deepEqual(started, { ...started, ...kept });
  assert.deepEqual((await service.getRun({ runId })).run, started);
  const ended = (await end(runId)).run!;
  assert.equal(Buffer.byteLength(ended.failureReason), 4096);
});

test("the largest run's refusals arrive with their own codes", async () => {
  const fields = largestStart();
  const { runId, metadata } = fields;
  await service.startRun(fields);
  await refused(Code.PERMISSION_DENIED, "NOT_OWNER", service.updateRun({ runId }, "b".repeat(256)));
  await refused(Code.ABORTED, "REVISION_MISMATCH", service.updateRun({ runId, expectedRevision: 2n ** 64n - 1n }));
  await end(runId);
  const other = { ...fields, requestId: "s".repeat(128) };
  const thread = "\u{1f525}".repeat(64);
  await refused(Code.ALREADY_EXISTS, "RUN_ID_CONFLICT", service.startRun({ ...other, taskThreadId: thread }));
  await refused(Code.ALREADY_EXISTS, "RUN_ID_CONFLICT", service.startRun({ ...other, agentId: "b".repeat(256) }));
  const refusal = await refused(Code.FAILED_PRECONDITION, "INVALID_TRANSITION", service.completeRun({ runId, metadata }));
  assert.equal(refusal.LifecycleTransitionError?.run?.failureReason, "\u{1f4a5}".repeat(128));
  await refused(Code.FAILED_PRECONDITION, "INVALID_TRANSITION", service.startRun(other));
  await refused(Code.FAILED_PRECONDITION, "RUN_NOT_RUNNING", service.updateRun({ runId, metadata }));
  await refused(Code.INVALID_ARGUMENT, "REQUEST_ID_REUSED", service.completeRun({ runId, requestId: "r".repeat(128) }));
});

test("a request of nothing but violations is refused with its own code", async () => {
  const labels = Object.fromEntries(Array.from({ length: 60 }, (_, key) => [`${key}`.padStart(64, "\x01"), "\x02".repeat(257)]));
  const call = service.startRun({ runId: "?".repeat(4000), taskThreadId: "t".repeat(70_000), labels });
  const { BadRequest } = await refused(Code.INVALID_ARGUMENT, "INVALID_FIELD", call);
  assert.ok(BadRequest!.fieldViolations.length <= 21);
});

test("watch frames hold the largest run", async () => {
  const fields = largestStart();
  const { runId } = fields;
  const started = (await service.startRun(fields)).run;
  const ended = (await end(runId)).run;
  const shown = await watch({ runId });
  assert.deepEqual([shown.length, shown[0].snapshot?.run, shown[1].end?.run], [2, ended, ended]);
  const [created, failed, last] = await watch({ runId, afterRevision: 0n });
  assert.deepEqual(created.change?.run, started);
  assert.deepEqual(created.change?.event?.changes?.metadata, fields.metadata);
  assert.deepEqual([failed.change?.run, last.end?.run], [ended, ended]);
});
