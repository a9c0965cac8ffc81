"""Every refusal arrives with its own code and its typed details."""

import os
import pathlib
import re
import unittest

from google.rpc import status_pb2
from support import Case, Refused, api, grpc, largest_metadata, details, run_pb2, run_service_pb2_grpc, struct

Code = grpc.StatusCode


class Refusals(Case):
    def test_invalid_transition_tells_from_to_and_the_winner(self):
        self.start()
        self.service.AbortRun(run_id=self.run_id, failure_reason="stopped", reason_code="TIMEOUT")
        refusal = self.refused(Code.FAILED_PRECONDITION, "INVALID_TRANSITION", self.service.CompleteRun, run_id=self.run_id)
        text = f"Invalid lifecycle transition for run {self.run_id}: aborted → completed"
        detail = refusal.LifecycleTransitionError
        self.assertEqual((refusal.message, detail.message), (text, text))
        self.assertEqual((detail.name, detail.run_id), ("LifecycleTransitionError", self.run_id))
        self.assertEqual((getattr(detail, "from"), detail.to), (run_pb2.RUN_STATUS_ABORTED, run_pb2.RUN_STATUS_COMPLETED))
        self.assertEqual((detail.run.reason_code, detail.run.failure_reason, detail.run.revision), ("TIMEOUT", "stopped", 2))

    def test_not_owner_names_both_agents(self):
        self.start(agent_id="owner", tab_group_id="tabs")
        for rpc, fields in (("UpdateRun", {}), ("CompleteRun", {}), ("FailRun", {"failure_reason": "x"})):
            call = getattr(self.serve("thief"), rpc)
            detail = self.refused(Code.PERMISSION_DENIED, "NOT_OWNER", call, run_id=self.run_id, **fields).OwnershipError
            self.assertEqual((detail.agent_id, detail.owner_agent_id, detail.action), ("thief", "owner", rpc))
            self.assertEqual((detail.run_id, detail.tab_group_id), (self.run_id, "tabs"))
        self.assertEqual(self.serve("thief").AbortRun(run_id=self.run_id).disposition, api.DISPOSITION_APPLIED)

    def test_run_id_conflict_names_the_field(self):
        self.start(agent_id="owner")
        for field in ("task_thread_id", "agent_id"):
            refusal = self.refused(Code.ALREADY_EXISTS, "RUN_ID_CONFLICT", self.start, **{"agent_id": "owner", field: "other"})
            detail = refusal.RunIdConflictError
            self.assertEqual((detail.field, detail.requested, detail.run.run_id), (field, "other", self.run_id))

    def test_revision_mismatch_tells_both_revisions(self):
        self.start()
        call = self.service.CompleteRun
        detail = self.refused(Code.ABORTED, "REVISION_MISMATCH", call, run_id=self.run_id, expected_revision=9).RevisionMismatchError
        self.assertEqual((detail.expected_revision, detail.actual_revision, detail.run.revision), (9, 1, 1))
        self.refused(Code.ABORTED, "REVISION_MISMATCH", self.start, expected_revision=0)

    def test_run_not_running_shows_the_run(self):
        self.start(deferred=True)
        refusal = self.refused(Code.FAILED_PRECONDITION, "RUN_NOT_RUNNING", self.service.UpdateRun, run_id=self.run_id)
        self.assertEqual((refusal.RunSummary.run_id, refusal.RunSummary.status), (self.run_id, run_pb2.RUN_STATUS_PENDING))

    def test_invalid_field_lists_every_violation(self):
        refusal = self.refused(
            Code.INVALID_ARGUMENT, "INVALID_FIELD", self.start, run_id="not an id", task_thread_id="", agent_id="a" * 257
        )
        fields = {violation.field for violation in refusal.BadRequest.field_violations}
        self.assertEqual(fields, {"run_id", "task_thread_id", "agent_id"})

    def test_invalid_field_for_what_cannot_be_kept(self):
        deep = 1
        for _ in range(32):
            deep = {"d": deep}
        over = largest_metadata()
        over["pad"] += "p"
        for fields in ({"n": float("nan")}, {"n": float("inf")}, {"\0": 1}, {"s": "\0"}, {"deep": deep}, over):
            refusal = self.refused(Code.INVALID_ARGUMENT, "INVALID_FIELD", self.start, metadata=struct(fields))
            for violation in refusal.BadRequest.field_violations:
                self.assertTrue(violation.field.startswith("metadata"), violation)
        for fields in ({"task_thread_id": "a\0"}, {"labels": {"\0": ""}}, {"labels": {"k": "\0"}}, {"route": 77}):
            self.refused(Code.INVALID_ARGUMENT, "INVALID_FIELD", self.start, **fields)

    def test_run_not_found_names_the_resource(self):
        for rpc, fields in (("GetRun", {}), ("UpdateRun", {}), ("CompleteRun", {}), ("AbortRun", {}), ("FailRun", {"failure_reason": "x"})):
            refusal = self.refused(Code.NOT_FOUND, "RUN_NOT_FOUND", getattr(self.service, rpc), run_id=self.run_id, **fields)
            self.assertEqual(refusal.ResourceInfo.resource_name, self.run_id)

    def test_request_id_reused(self):
        self.start(request_id="once")
        self.refused(
            Code.INVALID_ARGUMENT, "REQUEST_ID_REUSED", self.service.UpdateRun, run_id=self.run_id, request_id="once", workflow_id="w"
        )


class Packed:
    """An error with one detail, as the library hands it on."""

    def __init__(self, name):
        packed = status_pb2.Status(code=9, message="refused")
        packed.details.add(type_url=f"type.googleapis.com/{name}")
        self.metadata = (("grpc-status-details-bin", packed.SerializeToString()),)

    def code(self):
        return Code.FAILED_PRECONDITION

    def details(self):
        return "refused"

    def trailing_metadata(self):
        return self.metadata


class Details(unittest.TestCase):
    def test_every_detail_that_there_is_is_known(self):
        proto = (pathlib.Path(os.environ["PROTO"]) / "runledger/v1/error.proto").read_text(encoding="utf-8")
        names = re.findall(r"^message (\w+)", proto, re.MULTILINE)
        self.assertIn("LifecycleTransitionError", names)
        for name in [*names, "RunSummary"]:
            self.assertEqual([*details.details(Packed(f"runledger.v1.{name}"))], [name])
        for name in ("ErrorInfo", "BadRequest", "ResourceInfo", "RetryInfo"):
            self.assertEqual([*details.details(Packed(f"google.rpc.{name}"))], [name])
        self.assertEqual(details.details(Packed("runledger.v1.OfALaterRelease")), {})


class NotFromTheServer(Case):
    """An error of the library itself carries no ErrorInfo: docs/errors.md says what to make of it."""

    def test_a_deadline_that_the_library_notices(self):
        with self.assertRaises(grpc.RpcError) as caught:
            self.service.stub.GetRun(api.GetRunRequest(run_id=self.run_id), timeout=-1)
        self.assertEqual(caught.exception.code(), Code.DEADLINE_EXCEEDED)
        self.assertEqual(details.details(caught.exception), {})

    def test_a_server_that_is_not_there(self):
        with grpc.insecure_channel("127.0.0.1:1") as channel, self.assertRaises(grpc.RpcError) as caught:
            run_service_pb2_grpc.RunServiceStub(channel).GetRun(api.GetRunRequest(run_id=self.run_id), timeout=20)
        self.assertEqual(caught.exception.code(), Code.UNAVAILABLE)
        self.assertEqual(details.details(caught.exception), {})


class MalformedText(Case):
    def send(self, rpc, encoded):
        call = self.service.channel.unary_unary(f"/runledger.v1.RunService/{rpc}")
        try:
            return call(encoded, timeout=20)
        except grpc.RpcError as error:
            raise Refused(error) from error

    def test_the_library_keeps_lone_surrogates_to_itself(self):
        with self.assertRaises((UnicodeEncodeError, ValueError)):
            api.StartRunRequest(task_thread_id="\ud800").SerializeToString()

    def test_text_that_is_not_utf8_is_refused_and_the_service_lives_on(self):
        for text in (b"\xff", b"\xed\xa0\x80", b"\xc0\x80", b"a\xf5"):
            with self.assertRaises(Refused) as caught:
                self.send("StartRun", b"\x0a" + bytes([len(text)]) + text)
            self.assertEqual(caught.exception.code, Code.INVALID_ARGUMENT, caught.exception)
        self.assertEqual(self.start().disposition, api.DISPOSITION_APPLIED)
