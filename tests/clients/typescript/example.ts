import { randomUUID } from "node:crypto";
import { Metadata } from "@grpc/grpc-js";
import { connect } from "./connect.js";
import { details } from "./details.js";
import { RunStatus } from "./gen/runledger/v1/run.js";
import { CompleteRunRequest, StartRunRequest } from "./gen/runledger/v1/run_service.js";

const { RUNLEDGER_SERVER, RUNLEDGER_CLIENT_TLS_CA, RUNLEDGER_TOKEN_FILE } = process.env;
const runs = connect(RUNLEDGER_SERVER ?? "127.0.0.1:50051", RUNLEDGER_CLIENT_TLS_CA, RUNLEDGER_TOKEN_FILE);
const start = StartRunRequest.fromPartial({
  taskThreadId: "thread-1",
  requestId: randomUUID(),
  leaseTtl: { seconds: 30n },
});
const agent = new Metadata();
agent.set("runledger-agent-id", "agent-7");
const soon = () => ({ deadline: Date.now() + 15_000 });
runs.startRun(start, agent, soon(), (error, started) => {
  if (error) return console.error(error.code, details(error).ErrorInfo?.reason ?? "perhaps applied: ask again");
  const { runId, lease } = started.run!;
  const complete = { runId, leaseEpoch: lease!.epoch, requestId: randomUUID() };
  runs.completeRun(CompleteRunRequest.fromPartial(complete), agent, soon(), (error, answer) => {
    console.log(error ? details(error).ErrorInfo?.reason : RunStatus[answer.run!.status]);
    const unknown = CompleteRunRequest.fromPartial({ runId: "no-such-run", requestId: randomUUID() });
    runs.completeRun(unknown, agent, soon(), (error) => {
      console.log(details(error!).ErrorInfo?.reason ?? "perhaps applied: ask again");
      runs.close();
    });
  });
});
