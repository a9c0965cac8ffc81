package bridge;

import static org.junit.jupiter.api.Assertions.*;

import com.google.protobuf.Any;
import com.google.protobuf.Duration;
import com.google.protobuf.Message;
import com.google.protobuf.Timestamp;
import com.google.rpc.BadRequest;
import com.google.rpc.Code;
import com.google.rpc.ErrorInfo;
import com.google.rpc.ResourceInfo;
import com.google.rpc.RetryInfo;
import com.runledger.v1.*;
import io.grpc.*;
import io.grpc.Status;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.stream.LongStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.function.Executable;

/** What Bridge promises, against the server at RUNLEDGER_TEST_SERVER; or against a server of the test's own, which
 * answers what the real one does not answer on demand. */
@Timeout(120)
class BridgeTest {
    static final String SERVER = System.getenv("RUNLEDGER_TEST_SERVER");
    static final Bridge bridge = new Bridge(SERVER);
    static final RunServiceGrpc.RunServiceBlockingStub runs = bridge.runs;

    final String runId = newRunId();

    static String newRunId() {
        return "java-" + UUID.randomUUID();
    }

    static StartRunRequest.Builder start(String runId) {
        return StartRunRequest.newBuilder().setRunId(runId).setTaskThreadId("thread");
    }

    StartRunRequest startLeased(int seconds) {
        return start(runId).setLeaseTtl(Duration.newBuilder().setSeconds(seconds)).build();
    }

    static Run get(String runId) {
        return runs.getRun(GetRunRequest.newBuilder().setRunId(runId).build()).getRun();
    }

    List<RunEventType> events() {
        var request = ListRunEventsRequest.newBuilder().setRunId(runId).build();
        return runs.listRunEvents(request).getEventsList().stream().map(RunEvent::getType).toList();
    }

    static CompleteRunRequest complete(String runId) {
        return CompleteRunRequest.newBuilder().setRunId(runId).build();
    }

    static StatusRuntimeException refused(String reason, Executable call) {
        var error = assertThrows(StatusRuntimeException.class, call);
        assertEquals(reason, Bridge.reason(error), error.toString());
        return error;
    }

    static void await(String what, Callable<Boolean> come) throws Exception {
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
        while (!come.call()) {
            assertTrue(System.nanoTime() < until, what);
            Thread.sleep(20);
        }
    }

    /** Waits until the lease lasts longer than it did. */
    void awaitRenewal() throws Exception {
        var before = get(runId).getLease().getExpiresAt();
        await("no renewal", () -> after(get(runId).getLease().getExpiresAt(), before));
    }

    static boolean after(Timestamp one, Timestamp other) {
        return Comparator.comparing(Timestamp::getSeconds).thenComparing(Timestamp::getNanos).compare(one, other) > 0;
    }

    /** Makes calls in another thread, lest the interrupt that they lead to meets one of them; then waits for it. */
    static void interruptedBy(Runnable calls) throws InterruptedException {
        CompletableFuture.runAsync(calls);
        new CountDownLatch(1).await();
    }

    @Test void a_run_under_a_lease_is_started_renewed_updated_and_completed() throws Exception {
        var ended = bridge.work(startLeased(10), held -> {
            awaitRenewal();
            awaitRenewal();
            var progress = Progress.newBuilder().setDone(3).setTotal(10);
            held.update(UpdateRunRequest.newBuilder().setWorkflowId("w").setProgress(progress).build());
            await("no progress", () -> get(runId).getProgress().getDone() == 3);
        }).orElseThrow();
        assertEquals(RunStatus.RUN_STATUS_COMPLETED, ended.getStatus());
        assertEquals("w", ended.getWorkflowId());
        assertEquals(1, ended.getLease().getEpoch());
        assertEquals(List.of(RunEventType.RUN_EVENT_TYPE_CREATED, RunEventType.RUN_EVENT_TYPE_UPDATED,
            RunEventType.RUN_EVENT_TYPE_COMPLETED), events());
    }

    @Test void the_example_comes_to_its_end() throws Exception {
        Example.main(new String[] { SERVER });
    }

    @Test void an_abort_request_reaches_the_work_and_the_run_ends_aborted() throws Exception {
        var stopped = new AtomicReference<Boolean>();
        var ended = bridge.work(startLeased(10), held -> {
            var request = RequestAbortRequest.newBuilder().setRunId(runId).setReason("enough").build();
            try {
                interruptedBy(() -> runs.requestAbort(request));
            } finally {
                stopped.set(held.stopped());
            }
        }).orElseThrow();
        assertTrue(stopped.get());
        assertEquals(RunStatus.RUN_STATUS_ABORTED, ended.getStatus());
        assertEquals(List.of("ABORT_REQUESTED", "enough"), List.of(ended.getReasonCode(), ended.getFailureReason()));
    }

    @Test void a_lease_that_somebody_else_took_stops_the_work_and_nothing_is_reported() throws Exception {
        try (var other = new Bridge(SERVER)) {
            var ended = bridge.work(startLeased(10), held -> {
                long epoch = held.run.getLease().getEpoch();
                var ttl = Duration.newBuilder().setSeconds(600);
                interruptedBy(() -> {
                    other.runs.releaseRun(ReleaseRunRequest.newBuilder().setRunId(runId).setLeaseEpoch(epoch).build());
                    other.runs.claimRun(ClaimRunRequest.newBuilder().setRunId(runId).setLeaseTtl(ttl).build());
                });
            });
            assertEquals(Optional.empty(), ended);
            await("no claim", () -> events().size() == 3);
        }
        assertEquals(RunStatus.RUN_STATUS_RUNNING, get(runId).getStatus());
        assertEquals(List.of(RunEventType.RUN_EVENT_TYPE_CREATED, RunEventType.RUN_EVENT_TYPE_RELEASED,
            RunEventType.RUN_EVENT_TYPE_CLAIMED), events());
    }

    @Test void a_run_that_somebody_else_ended_stops_the_work_and_nothing_is_reported() throws Exception {
        var request = AbortRunRequest.newBuilder().setRunId(runId).build();
        var ended = bridge.work(startLeased(10), held -> interruptedBy(() -> runs.abortRun(request)));
        assertEquals(Optional.empty(), ended);
        assertEquals(List.of(RunEventType.RUN_EVENT_TYPE_CREATED, RunEventType.RUN_EVENT_TYPE_ABORTED), events());
    }

    @Test void what_the_work_throws_fails_the_run_and_reaches_the_caller() {
        var thrown = new IllegalStateException("no\0such page " + "x".repeat(10_000));
        Bridge.Work work = held -> { throw thrown; };
        var error = assertThrows(ExecutionException.class, () -> bridge.work(startLeased(10), work));
        assertSame(thrown, error.getCause());
        assertEquals(RunStatus.RUN_STATUS_FAILED, get(runId).getStatus());
        assertTrue(get(runId).getFailureReason().startsWith("java.lang.IllegalStateException: no such page xxx"));
    }

    @Test void an_interrupt_of_the_caller_stops_the_work_and_aborts_the_run() throws Exception {
        var atWork = new CountDownLatch(1);
        var caller = new FutureTask<>(() -> {
            var ended = bridge.work(startLeased(10), held -> interruptedBy(atWork::countDown));
            assertTrue(Thread.interrupted());
            return ended.orElseThrow();
        });
        var thread = new Thread(caller);
        thread.start();
        atWork.await();
        thread.interrupt();
        assertEquals("WORKER_STOPPED", caller.get().getReasonCode());
    }

    @Test void an_end_that_the_authority_had_concluded_is_reported_late() throws Exception {
        var ended = bridge.work(startLeased(10), held -> {
            var atOnce = RequestAbortRequest.newBuilder().setRunId(runId).setGrace(Duration.getDefaultInstance());
            assertThrows(InterruptedException.class, () -> interruptedBy(() -> runs.requestAbort(atOnce.build())));
            await("no conclusion", () -> get(runId).getPresumed());
        }).orElseThrow();
        assertEquals(RunStatus.RUN_STATUS_ABORTED, ended.getStatus());
        assertEquals(RunStatus.RUN_STATUS_COMPLETED, ended.getOutcome());
    }

    @Test void a_run_that_somebody_else_has_started_is_not_worked_on() throws Exception {
        var none = Run.getDefaultInstance();
        assertThrows(IllegalArgumentException.class, () -> bridge.work(none, held -> fail("on nothing")));
        runs.startRun(startLeased(600));
        assertEquals(Optional.empty(), bridge.work(startLeased(10), held -> fail("it was")));
        assertEquals(RunStatus.RUN_STATUS_RUNNING, get(runId).getStatus());
    }

    @Test void a_claimed_run_is_worked_on_to_its_end() throws Exception {
        runs.startRun(start(runId).setDeferred(true).putLabels("of", runId).build());
        var claimed = runs.withDeadlineAfter(30, TimeUnit.SECONDS).claimNextRun(ClaimNextRunRequest.newBuilder()
            .setFilter(RunFilter.newBuilder().putLabels("of", runId)).setLeaseTtl(Duration.newBuilder().setSeconds(10))
            .setWait(Duration.newBuilder().setSeconds(20)).setRequestId(UUID.randomUUID().toString()).build());
        var ended = bridge.work(claimed.getRun(), held -> {}).orElseThrow();
        assertEquals(RunStatus.RUN_STATUS_COMPLETED, ended.getStatus());
    }

    @Test void a_lease_outlives_a_server_that_cannot_be_reached_for_a_while() throws Exception {
        try (var proxy = new Proxy(SERVER); var behind = new Bridge(proxy.address)) {
            var ended = behind.work(startLeased(20), held -> {
                proxy.refuses = true;
                proxy.cut();
                int before = proxy.connections.get();
                await("no attempts", () -> proxy.connections.get() >= before + 4);
                proxy.refuses = false;
                awaitRenewal();
            }).orElseThrow();
            assertEquals(RunStatus.RUN_STATUS_COMPLETED, ended.getStatus());
        }
    }

    @Test void a_watch_that_is_cut_again_and_again_shows_every_revision_once_and_in_order() throws Exception {
        runs.startRun(start(runId).build());
        var shown = new ArrayList<Long>();
        var last = new AtomicReference<WatchRunResponse>();
        try (var proxy = new Proxy(SERVER); var behind = new Bridge(proxy.address)) {
            behind.watch(WatchRunRequest.newBuilder().setRunId(runId).setAfterRevision(0).build(), frame -> {
                last.set(frame);
                if (!frame.hasChange()) return;
                long revision = frame.getChange().getEvent().getRevision();
                shown.add(revision);
                // Three more, of which some reach the client and some are lost on their way.
                if (revision % 3 != 1 || revision > 16) return;
                for (long next = revision + 1; next <= revision + 3; next++) {
                    var update = UpdateRunRequest.newBuilder().setRunId(runId).setWorkflowId("w" + next);
                    if (next == revision + 2) proxy.cut();
                    if (next < 17) runs.updateRun(update.build());
                    if (next == 17) runs.completeRun(complete(runId));
                }
            });
            assertTrue(proxy.connections.get() >= 6, proxy.connections + " connections");
        }
        assertEquals(LongStream.rangeClosed(1, 17).boxed().toList(), shown);
        assertEquals(RunStatus.RUN_STATUS_COMPLETED, last.get().getEnd().getRun().getStatus());
    }

    @Test void a_watch_of_no_run_is_refused_and_what_its_reader_throws_is_thrown() {
        var request = WatchRunRequest.newBuilder().setRunId(runId).build();
        var refusal = refused("RUN_NOT_FOUND", () -> bridge.watch(request, frame -> fail("of no run: " + frame)));
        assertEquals(runId, Bridge.detail(refusal, ResourceInfo.class).orElseThrow().getResourceName());
        runs.startRun(start(runId).build());
        var thrown = Status.UNAVAILABLE.asRuntimeException();
        var error = assertThrows(StatusRuntimeException.class, () -> bridge.watch(request, frame -> { throw thrown; }));
        assertSame(thrown, error);
    }

    @Test void a_watch_ends_with_its_threads_interrupt_its_context_or_its_bridge() throws Exception {
        runs.startRun(start(runId).build());
        var request = WatchRunRequest.newBuilder().setRunId(runId).build();
        Consumer<WatchRunResponse> interrupt = frame -> Thread.currentThread().interrupt();
        assertThrows(InterruptedException.class, () -> bridge.watch(request, interrupt));
        Thread.interrupted();
        try (var context = Context.current().withCancellation()) {
            Callable<Void> watch = context.wrap(() -> {
                bridge.watch(request, frame -> context.cancel(null));
                return null;
            });
            var error = assertThrows(StatusRuntimeException.class, watch::call);
            assertEquals(Status.Code.CANCELLED, error.getStatus().getCode());
        }
        var closed = new Bridge(SERVER);
        assertThrows(StatusRuntimeException.class, () -> closed.watch(request, frame -> closed.close()));
    }

    /** A refusal, its typed detail, and what that says. */
    record Refusal<D extends Message>(Class<D> detail, String reason, Executable call, Consumer<D> says) {
        void check() {
            says.accept(Bridge.detail(refused(reason, call), detail).orElseThrow());
        }
    }

    @Test void every_message_of_error_proto_is_unpacked_from_a_refusal() {
        String ended = newRunId(), owned = newRunId();
        var leased = runs.startRun(startLeased(600)).getRun();
        runs.startRun(start(ended).build());
        runs.abortRun(AbortRunRequest.newBuilder().setRunId(ended).setReasonCode("TIMEOUT").build());
        runs.startRun(start(owned).setAgentId("owner").setTabGroupId("tabs").build());
        var agent = new Metadata();
        agent.put(Metadata.Key.of("runledger-agent-id", Metadata.ASCII_STRING_MARSHALLER), "thief");
        var thief = runs.withInterceptors(MetadataUtils.newAttachHeadersInterceptor(agent));
        var queued = List.of(newRunId(), newRunId());
        for (var id : queued) runs.startRun(start(id).setDeferred(true).putLabels("instance", runId).build());
        Consumer<String> claim = id -> runs.claimRun(ClaimRunRequest.newBuilder().setRunId(id)
            .setLeaseTtl(Duration.newBuilder().setSeconds(600))
            .setMaxRunning(MaxRunning.newBuilder().setLabel("instance").setLimit(1)).build());
        claim.accept(queued.get(0));
        var namespace = newRunId().toLowerCase(Locale.ROOT);
        NamespaceServiceGrpc.newBlockingStub(runs.getChannel()).createNamespace(CreateNamespaceRequest.newBuilder()
            .setName(namespace).setQuotas(NamespaceQuotas.newBuilder().setMaxActiveRuns(1)).build());
        var header = new Metadata();
        header.put(Metadata.Key.of("runledger-namespace", Metadata.ASCII_STRING_MARSHALLER), namespace);
        var inside = runs.withInterceptors(MetadataUtils.newAttachHeadersInterceptor(header));
        inside.startRun(start(newRunId()).build());
        String phased = newRunId(), limited = newRunId();
        LifecycleServiceGrpc.newBlockingStub(runs.getChannel()).putLifecycle(PutLifecycleRequest.newBuilder()
            .setDeclaration("name: letter\nphases: {draft: {initial: true, next: checked}, checked: {next: sent}, sent: {}}\n"
                + "completion_requires: ['LINK:artifact']\n").build());
        runs.startRun(start(phased).setLifecycle("letter@1").build());
        runs.startRun(start(limited).setMaxIterations(1).build());
        String waiting = newRunId(), spent = newRunId();
        runs.startRun(start(waiting).build());
        runs.suspendRun(SuspendRunRequest.newBuilder().setRunId(waiting).setKind("HELP").setReason("which account?").build());
        runs.startRun(start(spent).setMaxIterations(1).setMaxIterationsThen(LimitThen.LIMIT_THEN_SUSPEND).build());
        for (int iteration : List.of(1, 2)) {
            runs.updateRun(UpdateRunRequest.newBuilder().setRunId(spent).setIteration(iteration).build());
        }
        var refusals = List.of(
            new Refusal<>(LifecycleTransitionError.class, "INVALID_TRANSITION", () ->
                runs.completeRun(complete(ended)), it -> {
                var message = "Invalid lifecycle transition for run " + ended + ": aborted → completed";
                assertEquals(message, it.getMessage());
                assertEquals(RunStatus.RUN_STATUS_ABORTED, it.getFrom());
                assertEquals(RunStatus.RUN_STATUS_COMPLETED, it.getTo());
                assertEquals("TIMEOUT", it.getRun().getReasonCode());
            }),
            new Refusal<>(OwnershipError.class, "NOT_OWNER", () -> thief.completeRun(complete(owned)), it ->
                assertEquals(OwnershipError.newBuilder().setRunId(owned).setAgentId("thief").setOwnerAgentId("owner")
                    .setTabGroupId("tabs").setAction("CompleteRun").build(), it)),
            new Refusal<>(LeaseLostError.class, "LEASE_LOST", () -> runs.heartbeatRun(
                HeartbeatRunRequest.newBuilder().setRunId(runId).setLeaseEpoch(9).build()), it -> {
                assertEquals(List.of(9L, 1L), List.of(it.getLeaseEpoch(), it.getCurrentEpoch()));
                assertEquals(runId, it.getRun().getRunId());
            }),
            new Refusal<>(LeaseHeldError.class, "LEASE_HELD", () -> claim.accept(runId), it -> {
                assertEquals(leased.getLease().getEpoch(), it.getCurrentEpoch());
                assertTrue(after(it.getExpiresAt(), leased.getStartedAt()));
            }),
            new Refusal<>(MaxRunningError.class, "MAX_RUNNING", () -> claim.accept(queued.get(1)), it -> {
                assertEquals(List.of("instance", runId), List.of(it.getLabel(), it.getValue()));
                assertEquals(List.of(1, 1), List.of(it.getLimit(), it.getRunning()));
                assertEquals(queued.subList(0, 1), it.getRunningRunIdsList());
            }),
            new Refusal<>(RevisionMismatchError.class, "REVISION_MISMATCH", () -> runs.updateRun(
                UpdateRunRequest.newBuilder().setRunId(owned).setExpectedRevision(9).build()), it -> {
                assertEquals(List.of(9L, 1L), List.of(it.getExpectedRevision(), it.getActualRevision()));
                assertEquals(owned, it.getRun().getRunId());
            }),
            new Refusal<>(QuotaExceededError.class, "QUOTA_EXCEEDED", () -> inside.startRun(start(newRunId()).build()), it ->
                assertEquals(QuotaExceededError.newBuilder().setNamespace(namespace).setQuota("max_active_runs").setLimit(1)
                    .setUsed(1).build(), it)),
            new Refusal<>(PhaseError.class, "INVALID_PHASE", () -> runs.updateRun(
                UpdateRunRequest.newBuilder().setRunId(phased).setPhase("sent").build()), it -> {
                assertEquals(List.of(phased, "letter@1", "draft", "sent"),
                    List.of(it.getRunId(), it.getLifecycle(), it.getFrom(), it.getTo()));
                assertEquals(List.of("checked"), it.getAllowedList());
            }),
            new Refusal<>(IterationLimitError.class, "ITERATION_LIMIT", () -> runs.updateRun(
                UpdateRunRequest.newBuilder().setRunId(limited).setIteration(2).build()), it ->
                assertEquals(List.of(2, 1), List.of(it.getIteration(), it.getMaxIterations()))),
            new Refusal<>(RunSuspendedError.class, "RUN_SUSPENDED", () -> runs.updateRun(
                UpdateRunRequest.newBuilder().setRunId(waiting).setFallbackUsed(true).build()), it -> {
                assertEquals(List.of("HELP", "which account?"),
                    List.of(it.getSuspension().getKind(), it.getSuspension().getReason()));
                assertFalse(it.getReady());
            }),
            new Refusal<>(BudgetExceededError.class, "BUDGET_EXCEEDED", () -> runs.resumeRun(
                ResumeRunRequest.newBuilder().setRunId(spent).setReason("go on").build()), it ->
                assertEquals(List.of("iterations", 1L), List.of(it.getBudget(), it.getLimit()))),
            new Refusal<>(CompletionIncompleteError.class, "COMPLETION_INCOMPLETE", () ->
                runs.completeRun(complete(phased)), it ->
                assertEquals(List.of("LINK:artifact"), it.getMissingList())),
            new Refusal<>(RunIdConflictError.class, "RUN_ID_CONFLICT", () -> runs.startRun(
                start(runId).setTaskThreadId("other").build()), it -> {
                assertEquals("task_thread_id", it.getField());
                assertEquals(List.of("other", "thread"), List.of(it.getRequested(), it.getActual()));
            }));
        refusals.forEach(Refusal::check);
        var messages = ErrorProto.getDescriptor().getMessageTypes().stream().map(type -> type.getName());
        assertEquals(messages.collect(Collectors.toSet()),
            refusals.stream().map(it -> it.detail().getSimpleName()).collect(Collectors.toSet()));
    }

    @Test void the_other_details_are_unpacked_and_what_is_absent_is_empty() {
        runs.startRun(start(runId).setDeferred(true).build());
        var update = UpdateRunRequest.newBuilder().setRunId(runId).build();
        var refusal = refused("RUN_NOT_RUNNING", () -> runs.updateRun(update));
        assertEquals(RunStatus.RUN_STATUS_PENDING, Bridge.detail(refusal, RunSummary.class).orElseThrow().getStatus());
        assertEquals(Optional.empty(), Bridge.detail(refusal, LeaseLostError.class));
        assertFalse(Bridge.isTransient(refusal));
        refusal = refused("INVALID_FIELD", () -> runs.startRun(start("not an id").setTaskThreadId("").build()));
        var violations = Bridge.detail(refusal, BadRequest.class).orElseThrow().getFieldViolationsList();
        assertEquals(Set.of("run_id", "task_thread_id"),
            violations.stream().map(BadRequest.FieldViolation::getField).collect(Collectors.toSet()));
        refusal = refused("RUN_NOT_FOUND", () -> get(newRunId()));
        assertTrue(Bridge.detail(refusal, ResourceInfo.class).isPresent());
    }

    @Test void what_the_library_says_itself_has_no_reason() {
        var request = GetRunRequest.getDefaultInstance();
        var late = refused("", () -> runs.withDeadlineAfter(-1, TimeUnit.SECONDS).getRun(request));
        assertEquals(Status.Code.DEADLINE_EXCEEDED, late.getStatus().getCode());
        try (var nowhere = new Bridge("127.0.0.1:1")) {
            var nobody = refused("", () -> nowhere.runs.getRun(request));
            assertEquals(Status.Code.UNAVAILABLE, nobody.getStatus().getCode());
            assertTrue(Bridge.isTransient(late) && Bridge.isTransient(nobody));
        }
    }

    @Test void a_call_whose_answer_is_lost_is_sent_again_and_applied_once() throws Exception {
        try (var proxy = new Proxy(SERVER); var behind = new Bridge(proxy.address)) {
            var request = start(runId).setRequestId("once").build();
            // Without the service config, the lost answer is the caller's trouble.
            var plain = ManagedChannelBuilder.forTarget(proxy.address).usePlaintext().build();
            proxy.answersToLose.set(1);
            refused("", () -> RunServiceGrpc.newBlockingStub(plain).startRun(request));
            plain.shutdownNow();
            proxy.answersToLose.set(1);
            assertEquals(Disposition.DISPOSITION_REPLAYED, behind.runs.startRun(request).getDisposition());
            assertEquals(0, proxy.answersToLose.get());
        }
        assertEquals(List.of(RunEventType.RUN_EVENT_TYPE_CREATED), events());
    }

    static StatusRuntimeException refusal(Code code, String reason, Message... details) {
        var status = com.google.rpc.Status.newBuilder().setCode(code.getNumber());
        status.addDetails(Any.pack(ErrorInfo.newBuilder().setDomain("runledger").setReason(reason).build()));
        // Of a type that no client knows.
        status.addDetails(Any.newBuilder().setTypeUrl("type.googleapis.com/runledger.v9.New"));
        for (var detail : details) status.addDetails(Any.pack(detail));
        return StatusProto.toStatusRuntimeException(status.build());
    }

    static Server serve(RunServiceGrpc.RunServiceImplBase service) throws Exception {
        return Grpc.newServerBuilderForPort(0, InsecureServerCredentials.create()).addService(service).build().start();
    }

    @Test void an_overloaded_server_is_asked_five_times_within_fifteen_seconds() throws Exception {
        var deadlines = new ConcurrentLinkedQueue<Long>();
        var server = serve(new RunServiceGrpc.RunServiceImplBase() {
            @Override public void getRun(GetRunRequest request, StreamObserver<GetRunResponse> answer) {
                deadlines.add(Context.current().getDeadline().timeRemaining(TimeUnit.MILLISECONDS));
                var retry = RetryInfo.newBuilder().setRetryDelay(Duration.newBuilder().setNanos(5)).build();
                answer.onError(refusal(Code.RESOURCE_EXHAUSTED, "OVERLOADED", retry));
            }
        });
        try (var bridge = new Bridge("127.0.0.1:" + server.getPort())) {
            var error = refused("OVERLOADED", () -> bridge.runs.getRun(GetRunRequest.getDefaultInstance()));
            assertEquals(5, Bridge.detail(error, RetryInfo.class).orElseThrow().getRetryDelay().getNanos());
            assertTrue(Bridge.isTransient(error));
            assertEquals(5, deadlines.size());
            assertTrue(deadlines.stream().allMatch(left -> left > 0 && left <= 15_000), deadlines.toString());
        } finally {
            server.shutdownNow();
        }
    }

    @Test void a_watch_resumes_with_its_epoch_and_begins_anew_when_the_ledger_was_restored() throws Exception {
        var requests = new ConcurrentLinkedQueue<WatchRunRequest>();
        var change = WatchRunResponse.newBuilder();
        change.getChangeBuilder().getEventBuilder().setRevision(4);
        var snapshot = WatchRunResponse.newBuilder().setLedgerEpoch(7);
        snapshot.getSnapshotBuilder().getRunBuilder().setRevision(2);
        var end = WatchRunResponse.newBuilder().setLedgerEpoch(7);
        end.getEndBuilder().getRunBuilder().setRevision(3);
        var unknown = WatchRunResponse.getDefaultInstance();
        var server = serve(new RunServiceGrpc.RunServiceImplBase() {
            @Override public void watchRun(WatchRunRequest request, StreamObserver<WatchRunResponse> frames) {
                requests.add(request);
                switch (requests.size()) {
                    case 1 -> {
                        frames.onNext(change.build());
                        frames.onNext(unknown);
                        frames.onError(refusal(Code.UNAVAILABLE, "DRAINING"));
                    }
                    case 2 -> frames.onError(refusal(Code.OUT_OF_RANGE, "LEDGER_RESTORED"));
                    case 3 -> {
                        frames.onNext(snapshot.build());
                        frames.onCompleted();
                    }
                    default -> {
                        frames.onNext(end.build());
                        frames.onCompleted();
                    }
                }
            }
        });
        var shown = new ArrayList<WatchRunResponse>();
        var first = WatchRunRequest.newBuilder().setRunId(runId).setAfterRevision(3).build();
        try (var bridge = new Bridge("127.0.0.1:" + server.getPort())) {
            bridge.watch(first, shown::add);
        } finally {
            server.shutdownNow();
        }
        assertEquals(List.of(change.build(), snapshot.build(), end.build()), shown);
        var anew = WatchRunRequest.newBuilder().setRunId(runId).build();
        assertEquals(List.of(first, first.toBuilder().setAfterRevision(4).setLedgerEpoch(0).build(), anew,
            anew.toBuilder().setAfterRevision(2).setLedgerEpoch(7).build()), List.copyOf(requests));
    }
}
