"""What the tests share: a service, runs with names of their own, and the unpacking of refusals."""

import itertools
import json
import os
import unittest
import uuid

import grpc
from google.protobuf import json_format
from grpc_status import rpc_status
from runledger.v1 import run_pb2, run_service_pb2 as api, run_service_pb2_grpc, watch_pb2

import details
from connect import connect

ADDRESS = os.environ["RUNLEDGER_TEST_SERVER"]
TIMEOUT_S = 20


class Refused(Exception):
    """A refusal with its details unpacked."""

    def __init__(self, error):
        super().__init__(f"{error.code()}: {error.details()}")
        self.code = error.code()
        self.message = error.details()
        self.encoded = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
        status = rpc_status.from_call(error)
        self.details = details.details(error)
        # Each kind of detail comes once, and what the docs show knows it.
        assert len(self.details) == (len(status.details) if status else 0), status

    def __getattr__(self, name):
        try:
            return self.details[name]
        except KeyError:
            raise AttributeError(f"no {name} among {sorted(self.details)}: {self}") from None

    @property
    def reason(self):
        return self.ErrorInfo.reason


class Service:
    """The generated stub, with refusals unpacked and every call bounded."""

    def __init__(self, agent=None):
        self.channel = connect(ADDRESS, os.environ.get("RUNLEDGER_CLIENT_TLS_CA"), os.environ.get("RUNLEDGER_TOKEN_FILE"))
        self.stub = run_service_pb2_grpc.RunServiceStub(self.channel)
        self.metadata = [("runledger-agent-id", agent)] if agent else []

    def close(self):
        self.channel.close()

    def __getattr__(self, rpc):
        request = getattr(api, f"{rpc}Request")

        def call(**fields):
            try:
                return getattr(self.stub, rpc)(request(**fields), metadata=self.metadata, timeout=TIMEOUT_S)
            except grpc.RpcError as error:
                raise Refused(error) from error

        return call

    def watch(self, run_id, **fields):
        return self.frames(self.stub.WatchRun, watch_pb2.WatchRunRequest(run_id=run_id, **fields))

    def watch_runs(self, **fields):
        return self.frames(self.stub.WatchRuns, watch_pb2.WatchRunsRequest(**fields))

    def frames(self, rpc, request):
        stream = rpc(request, metadata=self.metadata, timeout=TIMEOUT_S)
        try:
            yield from stream
        except grpc.RpcError as error:
            raise Refused(error) from error
        finally:
            stream.cancel()


class Case(unittest.TestCase):
    names = itertools.count()

    def setUp(self):
        self.service = self.serve()
        self.run_id = f"py-{next(self.names)}-{uuid.uuid4()}"

    def serve(self, agent=None):
        service = Service(agent)
        self.addCleanup(service.close)
        return service

    def start(self, **fields):
        fields = {"run_id": self.run_id, "task_thread_id": "thread", **fields}
        return self.service.StartRun(**fields)

    def refused(self, code, reason, call, *args, **fields):
        with self.assertRaises(Refused) as caught:
            answer = call(*args, **fields)
            list(answer) if hasattr(answer, "__next__") else None
        refusal = caught.exception
        self.assertEqual((refusal.code, refusal.ErrorInfo.domain, refusal.reason), (code, "runledger", reason), refusal)
        self.assertLessEqual(len(refusal.encoded), 4096, refusal)
        return refusal


def metadata(run):
    return json_format.MessageToDict(run.metadata)


def struct(fields):
    from google.protobuf import struct_pb2

    built = struct_pb2.Struct()
    built.update(fields)
    return built


def compact(fields):
    return len(json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode())


def largest_metadata():
    """65,536 bytes as compact JSON, 32 deep, and as many numbers as fit: the form that grows most on the wire."""
    deep = 1
    for _ in range(31):
        deep = {"d": deep}
    fields = {"deep": deep, "numbers": [], "pad": ""}
    fields["numbers"] = [7] * ((65_536 - compact(fields)) // 2)
    fields["pad"] = "p" * (65_536 - compact(fields))
    assert compact(fields) == 65_536
    return fields


def largest_links():
    """As many of the longest links as one call may bring: 48 KiB of texts."""
    link = {"rel": "r" * 64, "sha256": "f" * 64, "media_type": "m" * 128, "summary": "\U0001f4a5" * 128}
    return [{**link, "target": f"{nth}".rjust(1024, "/")} for nth in range(28)]


def largest_start(run_id):
    """A StartRun with every field at its limit; strings of four-byte characters where any are allowed."""
    wide = "\U0001f4a5"
    return {
        "run_id": run_id.ljust(128, "~"),
        "task_thread_id": wide * 64,
        "agent_id": "a" * 256,
        "tab_group_id": "\x01" * 256,
        "audit_session_id": '"' * 256,
        "workflow_id": wide * 64,
        "route": run_pb2.ROUTE_MCP,
        "fallback_used": True,
        "labels": {f"{key:02}".ljust(63, "k"): wide * 64 for key in range(32)},
        "metadata": struct(largest_metadata()),
        "input": struct(largest_metadata()),
        "parent_run_id": "p" * 128,
        "continues_run_id": "c" * 128,
        "request_id": "r" * 128,
    }
