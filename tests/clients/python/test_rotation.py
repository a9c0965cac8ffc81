"""Certificates and tokens of a server are replaced under load, and no call fails."""

import os
import re
import subprocess
import tempfile
import threading
import time
import unittest
import uuid
from pathlib import Path

import grpc
from runledger.v1 import run_service_pb2 as api, run_service_pb2_grpc, watch_pb2

import details
from connect import connect

BINARY = os.environ["RUNLEDGER_TEST_BINARY"]
SOON_S = 30


class Place:
    """A folder with a server's files, which a test may replace."""

    def __init__(self, folder):
        self.folder = Path(folder)
        self.run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                 "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem")
        (self.folder / "ext").write_text("subjectAltName=IP:127.0.0.1\n")

    def run(self, *command):
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout

    def replace(self, name, text):
        """By one step, as tools do that renew files."""
        new = self.folder / f"{name}.new"
        new.write_text(text)
        new.rename(self.folder / name)

    def certify(self):
        """Gives the server another certificate and another key."""
        self.run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=server",
                 "-keyout", "next.key", "-out", "next.csr")
        self.run("openssl", "x509", "-req", "-in", "next.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                 "-days", "2", "-extfile", "ext", "-out", "next.pem")
        for kind in ("pem", "key"):
            (self.folder / f"next.{kind}").rename(self.folder / f"server.{kind}")

    def token(self):
        """Makes a token of this name beside those that there are."""
        return self.run(BINARY, "token", "new", "--name", "bridge", "--namespace", "default", "--role", "reporter",
                        "--agent", "*", "--access-file", "access.toml")


class Server:
    """A server whose connections grow two seconds old."""

    def __init__(self, place):
        self.process = subprocess.Popen(
            [BINARY, "serve", "--store", "memory", "--listen", "127.0.0.1:0", "--tls-cert", "server.pem", "--tls-key",
             "server.key", "--access-file", "access.toml", "--reload-interval", "100ms", "--connection-age-max", "2s"],
            cwd=place.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().split()[-1]
        self.said, self.changed = [], threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stderr:
            with self.changed:
                self.said.append(line)
                self.changed.notify_all()

    def says(self, text, times):
        with self.changed:
            there = self.changed.wait_for(lambda: sum(text in line for line in self.said) >= times, SOON_S)
        assert there, f"the server never said {text!r} {times} times: {self.said}"

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdout.close()
        self.process.stderr.close()


class Rotation(unittest.TestCase):
    def test_no_call_fails_while_certificates_and_tokens_are_replaced(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        place = Place(folder.name)
        place.certify()
        first = place.token()
        place.replace("token", first)
        server = Server(place)
        self.addCleanup(server.stop)
        channel = connect(server.address, str(place.folder / "ca.pem"), str(place.folder / "token"))
        self.addCleanup(channel.close)
        stub = run_service_pb2_grpc.RunServiceStub(channel)
        watched, failed, done = f"python-{uuid.uuid4()}", [], threading.Event()
        stub.StartRun(api.StartRunRequest(task_thread_id="thread", run_id=watched), timeout=SOON_S)
        calls = [0] * 4

        def work(worker):
            number = 0
            while not done.is_set():
                number += 1
                run_id = f"{watched}-{worker}-{number}"
                try:
                    start = api.StartRunRequest(task_thread_id="thread", run_id=run_id)
                    stub.StartRun(start, timeout=SOON_S)
                    stub.CompleteRun(api.CompleteRunRequest(run_id=run_id), timeout=SOON_S)
                    if worker == 0:
                        update = api.UpdateRunRequest(run_id=watched, request_id=f"update-{number}")
                        update.labels["n"] = str(number)
                        stub.UpdateRun(update, timeout=SOON_S)
                except grpc.RpcError as error:
                    failed.append(str(error))
                calls[worker] += 2

        last = [0, 0]

        def watch(watcher):
            request = watch_pb2.WatchRunRequest(run_id=watched)
            while True:
                try:
                    for frame in stub.WatchRun(request):
                        kind = frame.WhichOneof("frame")
                        if kind == "snapshot":
                            last[watcher] = frame.snapshot.run.revision
                        elif kind == "change":
                            if frame.change.event.revision != last[watcher] + 1:
                                failed.append(f"{frame.change.event.revision} came after {last[watcher]}")
                            last[watcher] = frame.change.event.revision
                        if last[watcher]:
                            request.after_revision, request.ledger_epoch = last[watcher], frame.ledger_epoch
                        if kind == "end":
                            return
                except grpc.RpcError as error:
                    if error.code() != grpc.StatusCode.UNAVAILABLE:
                        failed.append(str(error))
                        return

        threads = [threading.Thread(target=work, args=(worker,)) for worker in range(len(calls))]
        threads += [threading.Thread(target=watch, args=(watcher,)) for watcher in range(len(last))]
        for thread in threads:
            thread.start()
        try:
            for times in range(1, 4):
                place.certify()
                server.says("was read anew", times)
                time.sleep(2)
            # The second token is known before it is used, and the first one is used no more when it is taken away.
            second = place.token()
            server.says("new access rules hold", 1)
            place.replace("token", second)
            time.sleep(1)
            entries = re.split(r"(?=^\[\[token\]\])", (place.folder / "access.toml").read_text(), flags=re.MULTILINE)
            place.replace("access.toml", entries[-1])
            server.says("new access rules hold", 2)
            time.sleep(2)
        finally:
            done.set()
        for thread in threads[: len(calls)]:
            thread.join(SOON_S)
        end = stub.CompleteRun(api.CompleteRunRequest(run_id=watched), timeout=SOON_S)
        for thread in threads[len(calls) :]:
            thread.join(SOON_S)
        self.assertEqual(failed, [])
        self.assertEqual(last, [end.run.revision] * len(last))
        self.assertGreater(sum(calls), 100)

        place.replace("old", first)
        old = connect(server.address, str(place.folder / "ca.pem"), str(place.folder / "old"))
        self.addCleanup(old.close)
        with self.assertRaises(grpc.RpcError) as refused:
            get = api.GetRunRequest(run_id=watched)
            run_service_pb2_grpc.RunServiceStub(old).GetRun(get, timeout=SOON_S)
        self.assertEqual(details.details(refused.exception)["ErrorInfo"].reason, "CREDENTIAL_INVALID")
