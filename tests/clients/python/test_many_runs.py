"""Lists, counts, waits and watches of many runs."""

import threading

from google.protobuf import duration_pb2, timestamp_pb2
from support import Case, api, grpc, metadata, run_pb2, struct, watch_pb2

NONE = watch_pb2.WatchRunsRequest.INITIAL_NONE


class ManyRuns(Case):
    def setUp(self):
        super().setUp()
        self.thread = f"thread-{self.run_id}"
        self.filter = run_pb2.RunFilter(task_thread_id=self.thread)

    def start(self, number=0, **fields):
        return super().start(run_id=f"{self.run_id}-{number}", task_thread_id=self.thread, **fields)

    def complete(self, number=0):
        return self.service.CompleteRun(run_id=f"{self.run_id}-{number}")

    def test_a_list_has_every_run_once_newest_first_over_its_pages(self):
        started = [self.start(number, metadata=struct({"n": number})).run for number in range(5)]
        self.complete(3)
        listed, token = [], ""
        while True:
            page = self.service.ListRuns(filter=self.filter, page_size=2, page_token=token)
            listed += page.runs
            token = page.next_page_token
            if not token:
                break
        self.assertEqual([run.run_id for run in listed], [run.run_id for run in reversed(started)])
        self.assertEqual({len(metadata(run)) for run in listed}, {0})
        full = self.service.ListRuns(filter=self.filter, view=api.RUN_VIEW_FULL).runs
        self.assertEqual([metadata(run)["n"] for run in full], [4, 3, 2, 1, 0])
        running = run_pb2.RunFilter(task_thread_id=self.thread, statuses=[run_pb2.RUN_STATUS_RUNNING])
        self.assertEqual(len(self.service.ListRuns(filter=running).runs), 4)
        other = self.service.ListRuns(filter=self.filter, page_size=1).next_page_token
        self.refused(
            grpc.StatusCode.INVALID_ARGUMENT, "PAGE_TOKEN_INVALID", self.service.ListRuns, filter=running, page_token=other
        )

    def test_a_count_has_every_status(self):
        for number in range(3):
            self.start(number)
        self.complete(1)
        answer = self.service.CountRuns(filter=self.filter)
        counts = {run_pb2.RunStatus.Name(count.status): count.count for count in answer.counts}
        self.assertEqual((counts["RUN_STATUS_RUNNING"], counts["RUN_STATUS_COMPLETED"]), (2, 1))
        self.assertEqual((counts["RUN_STATUS_FAILED"], len(counts), answer.truncated), (0, 5, False))

    def test_every_violation_of_a_filter_is_named(self):
        noon = timestamp_pb2.Timestamp(seconds=43_200)
        bad = run_pb2.RunFilter(task_thread_id="t" * 257, labels={"": ""}, started_from=noon, started_before=noon)
        refusal = self.refused(grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", self.service.ListRuns, filter=bad, page_size=-1)
        fields = {violation.field for violation in refusal.BadRequest.field_violations}
        self.assertEqual(fields, {"filter.task_thread_id", 'filter.labels[""]', "filter.started_before", "page_size"})

    def test_a_wait_ends_with_the_run(self):
        self.start()
        waiting = []
        wait = lambda: waiting.append(self.service.WaitRun(run_id=f"{self.run_id}-0", timeout=duration_pb2.Duration(seconds=15)))
        waiter = threading.Thread(target=wait)
        waiter.start()
        completed = self.complete().run
        waiter.join(10)
        self.assertEqual([(answer.run, answer.timed_out) for answer in waiting], [(completed, False)])
        self.start(1)
        short = self.service.WaitRun(run_id=f"{self.run_id}-1", timeout=duration_pb2.Duration(nanos=1_000_000))
        self.assertEqual((short.timed_out, short.run.status), (True, run_pb2.RUN_STATUS_RUNNING))

    def test_a_watch_of_many_runs_is_resumed_after_any_frame(self):
        self.start(0)
        frames = []
        for frame in self.service.watch_runs(filter=self.filter):
            frames.append(frame)
            kind = frame.WhichOneof("frame")
            if kind == "caught_up":
                self.start(1)
                self.complete(0)
            if kind == "change" and frame.change.run.status == run_pb2.RUN_STATUS_COMPLETED:
                break
        kinds = [frame.WhichOneof("frame") for frame in frames]
        self.assertEqual(kinds, ["snapshot", "caught_up", "change", "change"])
        self.assertEqual([frame.change.run.revision for frame in frames[2:]], [1, 2])
        for cut in range(3):
            kind = kinds[cut]
            cursor = getattr(frames[cut], kind).cursor
            rest = []
            for frame in self.service.watch_runs(filter=self.filter, cursor=cursor):
                if frame.WhichOneof("frame") == "change":
                    rest.append(frame.change.event)
                if len(rest) == len(frames[max(cut + 1, 2) :]):
                    break
            self.assertEqual(rest, [frame.change.event for frame in frames[max(cut + 1, 2) :]], kind)
        self.refused(grpc.StatusCode.INVALID_ARGUMENT, "CURSOR_INVALID", self.service.watch_runs, cursor="noise")

    def test_a_watch_says_when_a_run_leaves_its_filter(self):
        running = run_pb2.RunFilter(task_thread_id=self.thread, statuses=[run_pb2.RUN_STATUS_RUNNING])
        matches = []
        for frame in self.service.watch_runs(filter=running, initial=NONE):
            if frame.WhichOneof("frame") == "caught_up":
                self.start()
                self.complete()
            if frame.WhichOneof("frame") == "change":
                matches.append(frame.change.matches)
                if len(matches) == 2:
                    break
        self.assertEqual(matches, [True, False])
