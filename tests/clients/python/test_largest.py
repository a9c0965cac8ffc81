"""The largest legal run gets through: in an answer, in every refusal, and in watch frames."""

from google.protobuf import json_format

from support import Case, api, grpc, largest_links, largest_metadata, largest_start, metadata, run_pb2, struct

Code = grpc.StatusCode


class Largest(Case):
    def setUp(self):
        super().setUp()
        self.fields = largest_start(self.run_id)
        self.run_id = self.fields["run_id"]
        self.answer = self.service.StartRun(**self.fields)

    def end(self):
        return self.service.FailRun(run_id=self.run_id, failure_reason="\U0001f4a5" * 1024, reason_code="R" * 64).run

    def test_an_answer_holds_it(self):
        for run in (self.answer.run, self.service.GetRun(run_id=self.run_id).run):
            self.assertEqual(metadata(run), largest_metadata())
            self.assertEqual(dict(run.labels), self.fields["labels"])
            for field in ("task_thread_id", "agent_id", "tab_group_id", "audit_session_id", "workflow_id"):
                self.assertEqual(getattr(run, field), self.fields[field])
        self.assertEqual(len(self.end().failure_reason.encode()), 4096)

    def test_its_refusals_arrive_with_their_own_codes(self):
        owner, conflict = Code.PERMISSION_DENIED, Code.ALREADY_EXISTS
        update, complete = self.service.UpdateRun, self.service.CompleteRun
        run_id = {"run_id": self.run_id}
        self.refused(owner, "NOT_OWNER", self.serve("b" * 256).UpdateRun, **run_id)
        self.refused(Code.ABORTED, "REVISION_MISMATCH", update, **run_id, expected_revision=2**64 - 1)
        self.end()
        other = {**self.fields, "request_id": "s" * 128}
        self.refused(conflict, "RUN_ID_CONFLICT", self.service.StartRun, **{**other, "task_thread_id": "\U0001f525" * 64})
        self.refused(conflict, "RUN_ID_CONFLICT", self.service.StartRun, **{**other, "agent_id": "b" * 256})
        refusal = self.refused(Code.FAILED_PRECONDITION, "INVALID_TRANSITION", complete, **run_id, metadata=self.fields["metadata"])
        self.assertEqual(refusal.LifecycleTransitionError.run.failure_reason, "\U0001f4a5" * 128)
        self.refused(Code.FAILED_PRECONDITION, "INVALID_TRANSITION", self.service.StartRun, **other)
        self.refused(Code.FAILED_PRECONDITION, "RUN_NOT_RUNNING", update, **run_id, metadata=self.fields["metadata"])
        self.refused(Code.INVALID_ARGUMENT, "REQUEST_ID_REUSED", complete, **run_id, request_id="r" * 128)

    def test_a_request_of_nothing_but_violations_is_refused_with_its_own_code(self):
        labels = {f"{key}".rjust(64, "\x01"): "\x02" * 257 for key in range(60)}
        refusal = self.refused(
            Code.INVALID_ARGUMENT, "INVALID_FIELD", self.service.StartRun, run_id="?" * 4000, task_thread_id="t" * 70_000, labels=labels
        )
        self.assertLessEqual(len(refusal.BadRequest.field_violations), 21)

    def test_watch_frames_hold_it(self):
        ended = self.end()
        snapshot, end = self.service.watch(self.run_id)
        self.assertEqual((snapshot.snapshot.run, end.end.run), (ended, ended))
        created, failed, end = self.service.watch(self.run_id, after_revision=0)
        self.assertEqual(created.change.run, self.answer.run)
        self.assertEqual(created.change.event.changes.metadata, self.fields["metadata"])
        self.assertEqual((failed.change.run, end.end.run), (ended, ended))
        self.assertEqual(failed.change.run.status, run_pb2.RUN_STATUS_FAILED)

    def test_what_stands_beside_it_arrives_and_watches_go_on(self):
        fields = {"metadata": self.fields["metadata"], "result": self.fields["input"], "links": largest_links()}
        cleared = self.service.UpdateRun(run_id=self.run_id, metadata=struct({"deep": None, "numbers": None, "pad": None})).run
        updated = self.service.UpdateRun(run_id=self.run_id, **fields).run
        self.assertEqual((cleared.input.bytes, updated.result.bytes, updated.link_count), (65_536, 65_536, 28))
        whole = self.service.GetRun(run_id=self.run_id, view=api.RUN_VIEW_WHOLE)
        for content in (whole.input, whole.result):
            self.assertEqual(json_format.MessageToDict(content), largest_metadata())
        self.assertEqual([link.target for link in whole.links], [link["target"] for link in fields["links"]])
        listed = self.service.ListLinks(run_id=self.run_id).links
        self.assertEqual(list(whole.links), list(listed))
        frames = self.service.watch(self.run_id, after_revision=2)
        self.end()
        self.assertEqual([len(frame.change.event.changes.links) for frame in frames if frame.HasField("change")], [28, 0])

    def test_its_history_lists(self):
        self.end()
        events = self.service.ListRunEvents(run_id=self.run_id).events
        self.assertEqual([event.revision for event in events], [1, 2])
