// Watching a run to its end, whatever happens in between.
import assert from "node:assert/strict";
import { test } from "node:test";
import { create, type MessageInitShape, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError, createClient, createRouterTransport } from "@connectrpc/connect";
import { connect, watch, type WatchOptions } from "./bridge.js";
import { ErrorInfoSchema } from "./gen/google/rpc/error_details_pb.js";
import { RunService } from "./gen/runledger/v1/run_service_pb.js";
import { WatchRunResponseSchema } from "./gen/runledger/v1/watch_pb.js";
import { direct, found, newRunId, pretend, proxy, refused, TIMEOUT } from "./support.js";

const UPDATES = 6;
type Frame = MessageInitShape<typeof WatchRunResponseSchema>["frame"];
const response = (frame?: Frame) => create(WatchRunResponseSchema, { frame });
const change = (revision: bigint) => response({ case: "change", value: { event: { revision }, run: { revision } } });

/** Watches a run through a proxy that is cut after each of the run's changes, and makes the changes meanwhile. */
async function watchThroughCuts(options: WatchOptions) {
  const runId = newRunId();
  await direct.startRun({ runId, taskThreadId: "thread" });
  const between = await proxy();
  const [kinds, revisions]: [string[], bigint[]] = [[], []];
  let updates = 0;
  for await (const { frame } of watch(connect(between.address), runId, options)) {
    kinds.push(frame.case!);
    if (frame.case === "change") revisions.push(frame.value.event!.revision);
    if (frame.case !== "caughtUp") continue;
    // One change is made while the stream is there, and one while it is not.
    for (const there of [true, false]) {
      if (!there) between.cut();
      if (++updates <= UPDATES) await direct.updateRun({ runId, workflowId: `${updates}` });
      else if (there) await direct.completeRun({ runId });
    }
  }
  return { kinds, revisions, connections: between.connections };
}

test("a watch that is cut again and again shows each revision once, in order, to the end", TIMEOUT, async () => {
  const { kinds, revisions, connections } = await watchThroughCuts({ afterRevision: 0n });
  assert.deepEqual(revisions, Array.from({ length: UPDATES + 2 }, (_, index) => BigInt(index + 1)));
  assert.equal(kinds.at(-1), "end");
  assert.ok(connections > UPDATES / 2, `${connections} connections`);
});

test("a watch from the run as it is goes on after cuts without another snapshot", TIMEOUT, async () => {
  const { kinds, revisions } = await watchThroughCuts({});
  assert.deepEqual(revisions, Array.from({ length: UPDATES + 1 }, (_, index) => BigInt(index + 2)));
  assert.deepEqual([kinds[0], kinds.lastIndexOf("snapshot"), kinds.at(-1)], ["snapshot", 0, "end"]);
});

test("a watch of no run, or ahead of it, is refused", TIMEOUT, async () => {
  const runId = newRunId();
  await refused(Code.NotFound, "RUN_NOT_FOUND", watch(direct, runId).next());
  await direct.startRun({ runId, taskThreadId: "thread" });
  await refused(Code.OutOfRange, "REVISION_AHEAD", watch(direct, runId, { afterRevision: 2n }).next());
});

test("a watch of a ledger that was restored begins anew", TIMEOUT, async () => {
  const runId = newRunId();
  await direct.startRun({ runId, taskThreadId: "thread" });
  const watching = watch(direct, runId, { afterRevision: 1n, ledgerEpoch: 77n });
  assert.equal((await watching.next()).value!.frame.case, "snapshot");
  await watching.return();
});

test("a watch ends when its signal says so, also while it waits to connect", TIMEOUT, async () => {
  const runId = newRunId();
  await direct.startRun({ runId, taskThreadId: "thread" });
  for (const address of [process.env.RUNLEDGER_TEST_SERVER!, "127.0.0.1:1"]) {
    const cancel = new AbortController();
    const reading = (async () => {
      for await (const { frame } of watch(connect(address), runId, { signal: cancel.signal })) {
        if (frame.case === "caughtUp") setImmediate(() => cancel.abort());
      }
    })();
    if (address === "127.0.0.1:1") setTimeout(() => cancel.abort(), 500);
    await assert.rejects(reading, /abort/i);
  }
});

test("a watch comes back after DRAINING, skips what it does not know, and names epoch 0", TIMEOUT, async () => {
  const draining = () => {
    const info = { desc: ErrorInfoSchema, value: { domain: "runledger", reason: "DRAINING" } };
    return new ConnectError("draining", Code.Unavailable, undefined, [info]);
  };
  const asked: unknown[] = [];
  const transport = createRouterTransport(({ service }) =>
    service(RunService, {
      async *watchRun({ afterRevision, ledgerEpoch }) {
        const call = asked.push([afterRevision, ledgerEpoch]);
        if (call === 1) {
          yield change(4n);
          yield response(); // A kind to come.
          throw draining();
        }
        if (call === 2) throw draining();
        if (call === 3) yield response({ case: "checkpoint", value: { revision: 5n } });
        if (call === 4) yield response({ case: "end", value: {} });
      },
    }),
  );
  const kinds: unknown[] = [];
  const watching = watch(createClient(RunService, transport), "run", { afterRevision: 3n });
  for await (const { frame } of watching) kinds.push(frame.case);
  assert.deepEqual(kinds, ["change", "checkpoint", "end"]);
  assert.deepEqual(asked, [[3n, undefined], [4n, 0n], [4n, 0n], [5n, 0n]]);
});

test("a watch has no deadline, and a reader that leaves it ends its stream", TIMEOUT, async () => {
  let closed = false;
  const client = await pretend((stream, headers) => {
    assert.equal(headers["grpc-timeout"], undefined);
    stream.on("error", () => {}).on("close", () => (closed = true));
    const frame = toBinary(WatchRunResponseSchema, change(1n));
    stream.respond({ ":status": 200, "content-type": "application/grpc" });
    stream.write(Buffer.from([0, 0, 0, 0, frame.length, ...frame]));
  });
  for await (const { frame } of watch(client, "run")) if (frame.case === "change") break;
  await found(async () => closed);
});
