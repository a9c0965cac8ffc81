"""A run's whole life, and the watching of it."""

import contextlib
import io
import os
import runpy
import threading

from support import ADDRESS, Case, api, grpc, metadata, run_pb2, struct


class Lifecycle(Case):
    def test_a_run_goes_from_start_to_complete(self):
        started = self.start(agent_id="agent", route=run_pb2.ROUTE_MCP, metadata=struct({"a": 1, "b": {"c": "d"}}))
        self.assertEqual(started.disposition, api.DISPOSITION_APPLIED)
        self.assertEqual((started.run.status, started.run.revision), (run_pb2.RUN_STATUS_RUNNING, 1))
        self.assertEqual(started.run.namespace, "default")
        updated = self.service.UpdateRun(
            run_id=self.run_id, audit_session_id="audit", labels={"k": "v"}, metadata=struct({"b": {"c": None, "e": [1]}})
        )
        self.assertEqual(metadata(updated.run), {"a": 1, "b": {"e": [1]}})
        self.assertEqual((updated.run.revision, updated.run.audit_session_id), (2, "audit"))
        self.assertEqual(dict(updated.run.labels), {"k": "v"})
        same = self.service.UpdateRun(run_id=self.run_id, audit_session_id="audit")
        self.assertEqual((same.disposition, same.run.revision), (api.DISPOSITION_UNCHANGED, 2))
        completed = self.service.CompleteRun(run_id=self.run_id)
        self.assertEqual((completed.run.status, completed.run.revision), (run_pb2.RUN_STATUS_COMPLETED, 3))
        run = completed.run
        times = [run.started_at, run.updated_at, run.completed_at]
        self.assertEqual(times, sorted(times, key=lambda at: at.ToNanoseconds()))
        self.assertEqual(self.service.CompleteRun(run_id=self.run_id).disposition, api.DISPOSITION_UNCHANGED)
        self.assertEqual(self.service.GetRun(run_id=self.run_id).run, run)
        events = self.service.ListRunEvents(run_id=self.run_id)
        self.assertEqual([event.revision for event in events.events], [1, 2, 3])
        self.assertEqual(events.next_page_token, "")

    def test_a_deferred_run_starts_later_and_its_late_enemies_change_nothing(self):
        pending = self.start(deferred=True).run
        self.assertEqual(pending.status, run_pb2.RUN_STATUS_PENDING)
        self.assertFalse(pending.HasField("running_at"))
        self.assertEqual(self.start().run.status, run_pb2.RUN_STATUS_RUNNING)
        aborted = self.service.AbortRun(run_id=self.run_id, failure_reason="stop", reason_code="USER_CANCELLED").run
        late = self.service.FailRun(run_id=self.run_id, failure_reason="too late")
        self.assertEqual((late.disposition, late.run), (api.DISPOSITION_UNCHANGED, aborted))

    def test_a_retry_is_replayed_with_the_run_as_it_was_then(self):
        self.start(request_id="one")
        self.service.UpdateRun(run_id=self.run_id, workflow_id="later")
        again = self.start(request_id="one")
        self.assertEqual((again.disposition, again.run.revision, again.current_revision), (api.DISPOSITION_REPLAYED, 1, 2))
        self.assertEqual(again.run.workflow_id, "")

    def test_a_start_without_run_id_meets_its_run_again(self):
        request = {"run_id": "", "request_id": f"request-{self.run_id}"}
        first, second = self.start(**request), self.start(**request)
        self.assertEqual(first.run, second.run)
        self.assertEqual(second.disposition, api.DISPOSITION_REPLAYED)

    def test_check_transition_changes_nothing(self):
        self.start()
        answer = self.service.CheckTransition(run_id=self.run_id, to=run_pb2.RUN_STATUS_COMPLETED)
        self.assertTrue(answer.allowed)
        matrix = self.service.CheckTransition(**{"from": run_pb2.RUN_STATUS_PENDING, "to": run_pb2.RUN_STATUS_COMPLETED})
        self.assertEqual((matrix.allowed, matrix.reason), (False, "INVALID_TRANSITION"))
        self.assertEqual(self.service.GetRun(run_id=self.run_id).run.revision, 1)

    def test_numbers_come_back_as_doubles(self):
        given = {"big": 2**53 + 1, "huge": 1e308, "small": 5e-324, "tenth": 0.1, "negative": -7}
        run = self.start(metadata=struct(given)).run
        self.assertEqual(metadata(run), {key: float(value) for key, value in given.items()})
        self.assertEqual(run.metadata["big"], 9_007_199_254_740_992)


class Example(Case):
    def test_the_pages_example_does_what_it_says(self):
        os.environ["RUNLEDGER_SERVER"] = ADDRESS
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            runpy.run_path("example.py")
        self.assertEqual(said.getvalue(), "RUN_STATUS_COMPLETED\nNOT_FOUND RUN_NOT_FOUND\n")


class Watching(Case):
    def kinds(self, frames):
        return [frame.WhichOneof("frame") for frame in frames]

    def test_a_watch_shows_the_run_and_then_each_change_until_the_end(self):
        self.start()
        frames, caught_up = [], threading.Event()

        def read():
            for frame in self.service.watch(self.run_id):
                frames.append(frame)
                if frame.WhichOneof("frame") == "caught_up":
                    caught_up.set()

        reader = threading.Thread(target=read)
        reader.start()
        self.assertTrue(caught_up.wait(10))
        self.service.UpdateRun(run_id=self.run_id, tab_group_id="tabs")
        completed = self.service.CompleteRun(run_id=self.run_id).run
        reader.join(10)
        self.assertEqual(self.kinds(frames), ["snapshot", "caught_up", "change", "change", "end"])
        self.assertEqual([frame.change.run.revision for frame in frames[2:4]], [2, 3])
        self.assertEqual(frames[2].change.run.tab_group_id, "tabs")
        self.assertEqual(frames[2].change.run.status, run_pb2.RUN_STATUS_RUNNING)
        self.assertEqual(frames[4].end.run, completed)

    def test_a_resumed_watch_misses_and_repeats_nothing(self):
        self.start()
        for revision in range(2, 6):
            self.service.UpdateRun(run_id=self.run_id, workflow_id=f"w{revision}")
        self.service.CompleteRun(run_id=self.run_id)
        whole = list(self.service.watch(self.run_id, after_revision=0))
        self.assertEqual([frame.change.event.revision for frame in whole if frame.HasField("change")], [1, 2, 3, 4, 5, 6])
        for change in (frame.change for frame in whole if frame.HasField("change")):
            self.assertEqual(change.run.revision, change.event.revision)
        for revision in range(1, 7):
            resumed = list(self.service.watch(self.run_id, after_revision=revision))
            self.assertEqual(resumed, whole[revision:], revision)

    def test_a_watch_of_an_ended_run_shows_it_and_ends(self):
        self.start()
        self.service.AbortRun(run_id=self.run_id)
        self.assertEqual(self.kinds(self.service.watch(self.run_id)), ["snapshot", "end"])

    def test_a_watch_of_no_run_or_ahead_of_it_is_refused(self):
        self.refused(grpc.StatusCode.NOT_FOUND, "RUN_NOT_FOUND", self.service.watch, self.run_id)
        self.start()
        self.refused(grpc.StatusCode.OUT_OF_RANGE, "REVISION_AHEAD", self.service.watch, self.run_id, after_revision=2)
