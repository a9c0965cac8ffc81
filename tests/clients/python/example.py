import os
import uuid

import grpc
from google.protobuf import duration_pb2
from runledger.v1 import run_pb2, run_service_pb2 as api, run_service_pb2_grpc

from connect import connect
from details import details

server = os.environ.get("RUNLEDGER_SERVER", "127.0.0.1:50051")
channel = connect(server, os.environ.get("RUNLEDGER_CLIENT_TLS_CA"), os.environ.get("RUNLEDGER_TOKEN_FILE"))
runs = run_service_pb2_grpc.RunServiceStub(channel)
agent = [("runledger-agent-id", "agent-7")]  # Of every call: a run that an agent started is reported by it alone.
started = runs.StartRun(
    api.StartRunRequest(
        task_thread_id="thread-1", request_id=str(uuid.uuid4()), lease_ttl=duration_pb2.Duration(seconds=30)
    ),
    metadata=agent,
    timeout=15,
)
run_id, epoch = started.run.run_id, started.run.lease.epoch
beat = runs.HeartbeatRun(api.HeartbeatRunRequest(run_id=run_id, lease_epoch=epoch), metadata=agent, timeout=10)
if not beat.HasField("abort_request"):
    completed = runs.CompleteRun(
        api.CompleteRunRequest(run_id=run_id, lease_epoch=epoch, request_id=str(uuid.uuid4())),
        metadata=agent,
        timeout=15,
    )
    print(run_pb2.RunStatus.Name(completed.run.status))
try:
    unknown = api.CompleteRunRequest(run_id="no-such-run", request_id=str(uuid.uuid4()))
    runs.CompleteRun(unknown, metadata=agent, timeout=15)
except grpc.RpcError as error:
    refusal = details(error)
    print(error.code().name, refusal["ErrorInfo"].reason if "ErrorInfo" in refusal else "perhaps applied: ask again")
