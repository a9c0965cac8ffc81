import { connect, details, start, watch, work } from "./bridge.js";
import { RunStatus } from "./gen/runledger/v1/run_pb.js";

const { RUNLEDGER_SERVER, RUNLEDGER_CLIENT_TLS_CA, RUNLEDGER_TOKEN_FILE } = process.env;
const client = connect(RUNLEDGER_SERVER ?? "127.0.0.1:50051", RUNLEDGER_CLIENT_TLS_CA, RUNLEDGER_TOKEN_FILE);
const run = await start(client, { taskThreadId: "task-7", labels: { team: "search" } });
const ended = await work(client, run, async ({ signal, update }) => {
  for (let page = 1; page <= 3; page++) {
    signal.throwIfAborted(); // fetch() and the like take the signal, too.
    await update({ metadata: { page }, progress: { done: BigInt(page), total: 3n } });
  }
});
console.log(ended ? RunStatus[ended.status] : "somebody else has the lease");

for await (const { frame } of watch(client, run.runId, { afterRevision: 0n })) {
  if (frame.case === "change") console.log(frame.value.event!.revision, RunStatus[frame.value.run!.status]);
}
await client.completeRun({ runId: "no-such-run" }).catch((error) => {
  const { ErrorInfo, ResourceInfo } = details(error);
  console.log(ErrorInfo?.reason ?? "perhaps applied", ResourceInfo?.resourceName);
});
