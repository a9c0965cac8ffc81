// Every refusal is unpacked with its typed details, and what is not Runledger's own has none.
import assert from "node:assert/strict";
import { test } from "node:test";
import { create, toBinary } from "@bufbuild/protobuf";
import { durationFromMs, timestampMs } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { connect, details } from "./bridge.js";
import { RetryInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import * as errors from "./gen/runledger/v1/error_pb.js";
import { LifecycleService } from "./gen/runledger/v1/lifecycle_service_pb.js";
import { NamespaceService } from "./gen/runledger/v1/namespace_service_pb.js";
import { LimitThen, type RunSummary, RunStatus } from "./gen/runledger/v1/run_pb.js";
import { ADDRESS, direct, listen, newRunId, refused, TIMEOUT } from "./support.js";

const begin = (runId: string, fields = {}) => direct.startRun({ runId, taskThreadId: "thread", ...fields });
const leaseTtl = durationFromMs(60_000);
const agent = (id: string) => ({ headers: { "runledger-agent-id": id } });
/** What matters of a summary. */
const brief = (run?: RunSummary) => [run?.runId, RunStatus[run!.status], run?.revision];

/** Starts a run with phases whose completion takes a link. */
const beginUnderLifecycle = async (runId: string) => {
  const lifecycles = createClient(LifecycleService, createGrpcTransport({ baseUrl: `http://${ADDRESS}` }));
  await lifecycles.putLifecycle({
    declaration: `name: connected
phases: {draft: {initial: true, next: checked}, checked: {next: sent}, sent: {}}
completion_requires: ["LINK:artifact"]
`,
  });
  await begin(runId, { lifecycle: "connected@1" });
};

/** How the server is brought to say each message of error.proto, and what the message then says. */
const provoked: Record<string, (runId: string) => Promise<void>> = {
  async LifecycleTransitionError(runId) {
    await begin(runId);
    await direct.abortRun({ runId });
    const call = direct.completeRun({ runId });
    const { LifecycleTransitionError: it, text } = await refused(Code.FailedPrecondition, "INVALID_TRANSITION", call);
    assert.equal(text, `Invalid lifecycle transition for run ${runId}: aborted → completed`);
    assert.deepEqual([it?.name, it?.runId, it?.message], ["LifecycleTransitionError", runId, text]);
    assert.deepEqual([it?.from, it?.to], [RunStatus.ABORTED, RunStatus.COMPLETED]);
    assert.deepEqual(brief(it?.run), [runId, "ABORTED", 2n]);
  },
  async OwnershipError(runId) {
    await begin(runId, { agentId: "owner", tabGroupId: "tabs" });
    const call = direct.completeRun({ runId }, agent("thief"));
    const { OwnershipError: it } = await refused(Code.PermissionDenied, "NOT_OWNER", call);
    assert.deepEqual([it?.runId, it?.agentId, it?.ownerAgentId], [runId, "thief", "owner"]);
    assert.deepEqual([it?.tabGroupId, it?.action], ["tabs", "CompleteRun"]);
  },
  async LeaseLostError(runId) {
    await begin(runId, { leaseTtl });
    const call = direct.updateRun({ runId, leaseEpoch: 7n, workflowId: "flow" });
    const { LeaseLostError: it } = await refused(Code.FailedPrecondition, "LEASE_LOST", call);
    assert.deepEqual([it?.runId, it?.leaseEpoch, it?.currentEpoch], [runId, 7n, 1n]);
    assert.deepEqual(brief(it?.run), [runId, "RUNNING", 1n]);
  },
  async LeaseHeldError(runId) {
    await begin(runId, { leaseTtl });
    const { run } = await direct.getRun({ runId });
    const call = direct.claimRun({ runId, leaseTtl });
    const { LeaseHeldError: it } = await refused(Code.FailedPrecondition, "LEASE_HELD", call);
    assert.deepEqual([it?.runId, it?.currentEpoch], [runId, 1n]);
    assert.equal(timestampMs(it!.expiresAt!), timestampMs(run!.lease!.expiresAt!));
    assert.deepEqual(brief(it?.run), [runId, "RUNNING", 1n]);
  },
  async MaxRunningError(runId) {
    const [first, maxRunning] = [newRunId(), { label: "instance", limit: 1 }];
    for (const queued of [first, runId]) await begin(queued, { deferred: true, labels: { instance: runId } });
    await direct.claimRun({ runId: first, leaseTtl, maxRunning });
    const call = direct.claimRun({ runId, leaseTtl, maxRunning });
    const { MaxRunningError: it } = await refused(Code.FailedPrecondition, "MAX_RUNNING", call);
    assert.deepEqual([it?.runId, it?.label, it?.value], [runId, "instance", runId]);
    assert.deepEqual([it?.limit, it?.running, it?.runningRunIds], [1, 1, [first]]);
    assert.deepEqual(brief(it?.run), [runId, "PENDING", 1n]);
  },
  async RevisionMismatchError(runId) {
    await begin(runId);
    const call = direct.completeRun({ runId, expectedRevision: 2n ** 64n - 1n });
    const { RevisionMismatchError: it } = await refused(Code.Aborted, "REVISION_MISMATCH", call);
    assert.deepEqual([it?.expectedRevision, it?.actualRevision], [2n ** 64n - 1n, 1n]);
    assert.deepEqual(brief(it?.run), [runId, "RUNNING", 1n]);
  },
  async QuotaExceededError(runId) {
    const [namespace, namespaces] = [runId, createClient(NamespaceService, createGrpcTransport({ baseUrl: `http://${ADDRESS}` }))];
    await namespaces.createNamespace({ name: namespace, quotas: { maxActiveRuns: 1n } });
    const inside = { headers: { "runledger-namespace": namespace } };
    await direct.startRun({ runId, taskThreadId: "thread" }, inside);
    const call = direct.startRun({ runId: newRunId(), taskThreadId: "thread" }, inside);
    const { QuotaExceededError: it } = await refused(Code.ResourceExhausted, "QUOTA_EXCEEDED", call);
    assert.deepEqual([it?.namespace, it?.quota, it?.limit, it?.used], [namespace, "max_active_runs", 1n, 1n]);
  },
  async PhaseError(runId) {
    await beginUnderLifecycle(runId);
    const call = direct.updateRun({ runId, phase: "sent" });
    const { PhaseError: it } = await refused(Code.FailedPrecondition, "INVALID_PHASE", call);
    assert.deepEqual([it?.runId, it?.lifecycle, it?.from, it?.to], [runId, "connected@1", "draft", "sent"]);
    assert.deepEqual([it?.allowed, it?.more, it?.completes], [["checked"], 0, false]);
    assert.deepEqual(brief(it?.run), [runId, "RUNNING", 1n]);
  },
  async IterationLimitError(runId) {
    await begin(runId, { maxIterations: 1 });
    const call = direct.updateRun({ runId, iteration: 2 });
    const { IterationLimitError: it } = await refused(Code.FailedPrecondition, "ITERATION_LIMIT", call);
    assert.deepEqual([it?.runId, it?.iteration, it?.maxIterations], [runId, 2, 1]);
    assert.deepEqual(brief(it?.run), [runId, "RUNNING", 1n]);
  },
  async RunSuspendedError(runId) {
    await begin(runId, { leaseTtl });
    await direct.suspendRun({ runId, leaseEpoch: 1n, kind: "HELP", reason: "which account?", resumeHint: "ask" });
    const call = direct.claimRun({ runId, leaseTtl });
    const { RunSuspendedError: it } = await refused(Code.FailedPrecondition, "RUN_SUSPENDED", call);
    const { kind, reason, resumeHint, leaseEpoch, keepSlot, resumption } = it!.suspension!;
    assert.deepEqual([kind, reason, resumeHint, leaseEpoch], ["HELP", "which account?", "ask", 1n]);
    assert.deepEqual([it?.runId, it?.ready, keepSlot, resumption], [runId, false, false, undefined]);
    assert.deepEqual(brief(it?.run), [runId, "RUNNING", 2n]);
  },
  async BudgetExceededError(runId) {
    await begin(runId, { maxIterations: 1, maxIterationsThen: LimitThen.SUSPEND });
    await direct.updateRun({ runId, iteration: 1 });
    await direct.updateRun({ runId, iteration: 2 });
    const call = direct.resumeRun({ runId, reason: "go on" });
    const { BudgetExceededError: it } = await refused(Code.FailedPrecondition, "BUDGET_EXCEEDED", call);
    assert.deepEqual([it?.runId, it?.budget, it?.spent, it?.limit], [runId, "iterations", 1n, 1n]);
    assert.deepEqual(brief(it?.run), [runId, "RUNNING", 3n]);
  },
  async CompletionIncompleteError(runId) {
    await beginUnderLifecycle(runId);
    const call = direct.completeRun({ runId });
    const { CompletionIncompleteError: it } = await refused(Code.FailedPrecondition, "COMPLETION_INCOMPLETE", call);
    assert.deepEqual([it?.runId, it?.lifecycle, it?.missing], [runId, "connected@1", ["LINK:artifact"]]);
    assert.deepEqual(brief(it?.run), [runId, "RUNNING", 1n]);
  },
  async RunIdConflictError(runId) {
    await begin(runId, { agentId: "owner" });
    const call = begin(runId, { agentId: "other" });
    const { RunIdConflictError: it } = await refused(Code.AlreadyExists, "RUN_ID_CONFLICT", call);
    assert.deepEqual([it?.field, it?.requested, it?.actual], ["agent_id", "other", "owner"]);
    assert.deepEqual(brief(it?.run), [runId, "RUNNING", 1n]);
  },
};

for (const { name } of errors.file_runledger_v1_error.messages) {
  test(`${name} is unpacked`, TIMEOUT, async () => {
    assert.ok(name in provoked, `nothing here provokes ${name}`);
    await provoked[name](newRunId());
  });
}

test("INVALID_FIELD lists every violation", TIMEOUT, async () => {
  const call = begin("not an id", { taskThreadId: "", agentId: "a".repeat(257) });
  const { BadRequest } = await refused(Code.InvalidArgument, "INVALID_FIELD", call);
  const fields = BadRequest!.fieldViolations.map(({ field }) => field);
  assert.deepEqual(fields.sort(), ["agent_id", "run_id", "task_thread_id"]);
});

test("RUN_NOT_FOUND names the run", TIMEOUT, async () => {
  const runId = newRunId();
  const { ResourceInfo } = await refused(Code.NotFound, "RUN_NOT_FOUND", direct.getRun({ runId }));
  assert.equal(ResourceInfo?.resourceName, runId);
});

test("RUN_NOT_RUNNING shows the run", TIMEOUT, async () => {
  const runId = newRunId();
  await begin(runId, { deferred: true });
  const { RunSummary } = await refused(Code.FailedPrecondition, "RUN_NOT_RUNNING", direct.updateRun({ runId }));
  assert.deepEqual(brief(RunSummary), [runId, "PENDING", 1n]);
});

test("RetryInfo is unpacked, and details of an unknown kind are skipped", () => {
  const error = new ConnectError("busy", Code.ResourceExhausted);
  const value = toBinary(RetryInfoSchema, create(RetryInfoSchema, { retryDelay: durationFromMs(250) }));
  error.details = [{ type: "runledger.v1.ErrorToCome", value }, { type: "google.rpc.RetryInfo", value }];
  const unpacked = details(error);
  assert.deepEqual(Object.keys(unpacked), ["RetryInfo"]);
  assert.deepEqual(unpacked.RetryInfo?.retryDelay, durationFromMs(250));
});

test("what the library says itself has no ErrorInfo", TIMEOUT, async () => {
  const silent = connect(await listen(() => {}));
  const errors = await Promise.all([
    silent.getRun({ runId: "run" }, { timeoutMs: 200 }).catch((error) => error),
    connect("127.0.0.1:1").getRun({ runId: "run" }).catch((error) => error),
    direct.getRun({ runId: "run" }, { signal: AbortSignal.abort() }).catch((error) => error),
  ]);
  assert.deepEqual(errors.map(({ code }) => code), [Code.DeadlineExceeded, Code.Unavailable, Code.Canceled]);
  assert.deepEqual(errors.map(details), [{}, {}, {}]);
  assert.deepEqual(details(new TypeError("not a refusal")), {});
});
