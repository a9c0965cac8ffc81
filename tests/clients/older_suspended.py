"""Stubs of release 0.1.0, which know no suspension, meet a run that somebody suspended: they may end it, and are refused
what would go on with it. Argument: the binary. Beside the stubs, PYTHONPATH has the helpers of that release's tests."""

import subprocess
import sys
import unittest

BINARY = sys.argv.pop(1)


def serve():
    """A server in memory, and its address."""
    server = subprocess.Popen([BINARY, "serve", "--store", "memory", "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)
    for line in server.stdout:
        if " listens on " in line:
            return server, line.split()[-1]
    raise SystemExit("the server has ended")


SERVER, ADDRESS = serve()

import grpc  # noqa: E402
import readme_error  # noqa: E402
from runledger.v1 import run_pb2, run_service_pb2 as api, run_service_pb2_grpc  # noqa: E402


class Suspended(unittest.TestCase):
    def setUp(self):
        channel = grpc.insecure_channel(ADDRESS)
        self.addCleanup(channel.close)
        self.stub = run_service_pb2_grpc.RunServiceStub(channel)
        self.run_id = self.id().rsplit(".", 1)[-1].replace("_", "-")
        started = self.stub.StartRun(api.StartRunRequest(task_thread_id="thread", run_id=self.run_id))
        self.assertEqual(started.run.status, run_pb2.RUN_STATUS_RUNNING)
        command = [BINARY, "run", "suspend", self.run_id, "--kind", "HELP", "--reason", "?", "--server", ADDRESS, "--quiet"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def status(self):
        return self.stub.GetRun(api.GetRunRequest(run_id=self.run_id)).run.status

    def test_it_is_shown_as_running(self):
        self.assertEqual(self.status(), run_pb2.RUN_STATUS_RUNNING)
        started = self.stub.StartRun(api.StartRunRequest(task_thread_id="thread", run_id=self.run_id))
        self.assertEqual(started.disposition, api.StartRunResponse.DESCRIPTOR.fields_by_name["disposition"].enum_type
                         .values_by_name["DISPOSITION_UNCHANGED"].number)

    def test_an_update_is_refused_with_a_reason_and_the_run_stays(self):
        with self.assertRaises(grpc.RpcError) as caught:
            self.stub.UpdateRun(api.UpdateRunRequest(run_id=self.run_id, workflow_id="flow"))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.FAILED_PRECONDITION)
        details = readme_error.details(caught.exception)
        self.assertEqual(details["ErrorInfo"].reason, "RUN_SUSPENDED")
        self.assertNotIn("RunSuspendedError", details, "these stubs do not know it, and skip it")
        self.assertEqual(self.status(), run_pb2.RUN_STATUS_RUNNING)

    def test_it_is_completed(self):
        self.stub.CompleteRun(api.CompleteRunRequest(run_id=self.run_id))
        self.assertEqual(self.status(), run_pb2.RUN_STATUS_COMPLETED)

    def test_it_is_aborted(self):
        self.stub.AbortRun(api.AbortRunRequest(run_id=self.run_id))
        self.assertEqual(self.status(), run_pb2.RUN_STATUS_ABORTED)

    def test_it_is_failed(self):
        self.stub.FailRun(api.FailRunRequest(run_id=self.run_id, failure_reason="gone"))
        self.assertEqual(self.status(), run_pb2.RUN_STATUS_FAILED)


if __name__ == "__main__":
    try:
        result = unittest.main(exit=False, verbosity=2).result
    finally:
        SERVER.terminate()
        SERVER.wait()
    failed = len(result.failures) + len(result.errors)
    print(f"clients: {result.testsRun - failed} passed, {failed} failed")
    sys.exit(1 if failed or not result.testsRun else 0)
