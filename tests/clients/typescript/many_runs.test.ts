// Lists, counts, waits and watches of many runs.
import assert from "node:assert/strict";
import { after, test } from "node:test";
import { status as Code } from "@grpc/grpc-js";
import { RunStatus } from "./gen/runledger/v1/run.js";
import { RunView } from "./gen/runledger/v1/run_service.js";
import { WatchRunsRequest_Initial as Initial } from "./gen/runledger/v1/watch.js";
import { client, kindOf, newRunId, refused, service, watchRuns } from "./support.js";

after(() => client.close());
const { RUN_STATUS_RUNNING: RUNNING, RUN_STATUS_COMPLETED: COMPLETED } = RunStatus;

/** A thread of its own, with runs that are named by number. */
function thread() {
  const taskThreadId = newRunId();
  const named = (number: number) => `${taskThreadId}-${number}`;
  return {
    named,
    filter: { taskThreadId },
    start: (number: number, fields = {}) => service.startRun({ runId: named(number), taskThreadId, ...fields }),
    complete: (number: number) => service.completeRun({ runId: named(number) }),
  };
}

test("a list has every run once, newest first, over its pages", async () => {
  const { named, filter, start } = thread();
  for (let number = 0; number < 5; number++) await start(number, { metadata: { number } });
  const listed: string[] = [];
  let pageToken = "";
  do {
    const page = await service.listRuns({ filter, pageSize: 2, pageToken });
    listed.push(...page.runs.map((run) => run.runId));
    pageToken = page.nextPageToken;
  } while (pageToken);
  assert.deepEqual(listed, [4, 3, 2, 1, 0].map(named));
  const full = await service.listRuns({ filter, view: RunView.RUN_VIEW_FULL });
  assert.deepEqual(full.runs.map((run) => run.metadata?.number), [4, 3, 2, 1, 0]);
  await refused(Code.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID", service.listRuns({ filter, pageToken: "noise" }));
});

test("a count has every status", async () => {
  const { filter, start, complete } = thread();
  for (let number = 0; number < 3; number++) await start(number);
  await complete(1);
  const { counts, truncated } = await service.countRuns({ filter });
  const of = (status: RunStatus) => counts.find((count) => count.status === status)?.count;
  assert.deepEqual([of(RUNNING), of(COMPLETED), of(RunStatus.RUN_STATUS_FAILED), truncated], [2n, 1n, 0n, false]);
});

test("a wait ends with the run", async () => {
  const { named, start, complete } = thread();
  await start(0);
  const waiting = service.waitRun({ runId: named(0), timeout: { seconds: 15n, nanos: 0 } });
  const completed = await complete(0);
  assert.deepEqual(await waiting, { run: completed.run, timedOut: false });
  await start(1);
  assert.equal((await service.waitRun({ runId: named(1), timeout: { seconds: 0n, nanos: 1_000_000 } })).timedOut, true);
});

test("a watch of many runs is resumed after a frame, and says when a run leaves its filter", async () => {
  const { named, filter, start, complete } = thread();
  await start(0);
  const running = { ...filter, statuses: [RUNNING] };
  const kinds: (string | undefined)[] = [];
  let cursor = "";
  for await (const frame of watchRuns({ filter: running })) {
    kinds.push(kindOf(frame));
    if (frame.caughtUp) {
      cursor = frame.caughtUp.cursor;
      await start(1);
      await complete(0);
    }
    if (frame.change?.matches === false) break;
  }
  assert.deepEqual(kinds, ["snapshot", "caughtUp", "change", "change"]);
  const resumed: unknown[] = [];
  for await (const frame of watchRuns({ filter: running, cursor, initial: Initial.INITIAL_NONE })) {
    if (frame.change) resumed.push([frame.change.event?.runId, frame.change.run?.revision, frame.change.matches]);
    if (resumed.length === 2) break;
  }
  assert.deepEqual(resumed, [[named(1), 1n, true], [named(0), 2n, false]]);
});
