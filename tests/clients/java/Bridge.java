package bridge;

import static java.util.concurrent.TimeUnit.*;

import com.google.gson.Gson;
import com.google.gson.reflect.TypeToken;
import com.google.protobuf.*;
import com.google.rpc.ErrorInfo;
import com.runledger.v1.*;
import io.grpc.*;
import io.grpc.protobuf.StatusProto;
import io.grpc.stub.ClientCalls;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.*;
import java.util.concurrent.*;
import java.util.function.*;

/** A connection to Runledger, for any number of threads: work under leases, watches, and what refusals say. */
public final class Bridge implements AutoCloseable {
    /** Every call. Each has 15 s; but give {@code waitRun} and {@code claimNextRun} a {@code withDeadlineAfter}. */
    public final RunServiceGrpc.RunServiceBlockingStub runs;
    private final ManagedChannel channel;

    /** Connects, with the first call, to a server such as {@code 127.0.0.1:50051}, in plain text. */
    public Bridge(String server) { this(server, InsecureChannelCredentials.create(), null); }

    /** The same over TLS, to a server whose CA is in a file; every call has the token of a file, unless it is null. */
    public Bridge(String server, Path ca, Path token) throws IOException {
        this(server, TlsChannelCredentials.newBuilder().trustManager(ca.toFile()).build(), token);
    }

    private Bridge(String server, ChannelCredentials credentials, Path token) {
        var config = new InputStreamReader(Bridge.class.getResourceAsStream("/service_config.json"));
        channel = Grpc.newChannelBuilder(server, credentials)
            .defaultServiceConfig(new Gson().fromJson(config, new TypeToken<Map<String, ?>>() {}))
            .keepAliveTime(20, SECONDS).keepAliveTimeout(10, SECONDS).keepAliveWithoutCalls(true).build();
        var all = RunServiceGrpc.newBlockingStub(channel);
        runs = token == null ? all : all.withCallCredentials(new TokenFile(token));
    }

    /** Reads the token for each call: the file has another one now and then. */
    private static final class TokenFile extends CallCredentials {
        private final Path file;

        private TokenFile(Path file) { this.file = file; }

        @Override public void applyRequestMetadata(RequestInfo call, Executor executor, MetadataApplier applier) {
            executor.execute(() -> {
                try {
                    var headers = new Metadata();
                    var name = Metadata.Key.of("authorization", Metadata.ASCII_STRING_MARSHALLER);
                    headers.put(name, "Bearer " + Files.readString(file).strip());
                    applier.apply(headers);
                } catch (IOException unreadable) {
                    applier.fail(Status.UNAUTHENTICATED.withCause(unreadable));
                }
            });
        }
    }

    /** Ends the connection, and every call on it. */
    @Override public void close() { channel.shutdownNow(); }

    /** The detail of this type in a refusal. A type that a later {@code error.proto} adds needs no change here. */
    public static <D extends Message> Optional<D> detail(Throwable error, Class<D> type) {
        var status = StatusProto.fromThrowable(error);
        for (Any packed : status == null ? List.<Any>of() : status.getDetailsList()) {
            try {
                if (packed.is(type)) return Optional.of(packed.unpack(type));
            } catch (InvalidProtocolBufferException broken) {
                throw new IllegalArgumentException(broken);
            }
        }
        return Optional.empty();
    }

    /** Why Runledger refused, such as LEASE_LOST; empty when the error is not its own: the call is perhaps applied. */
    public static String reason(Throwable error) {
        var info = detail(error, ErrorInfo.class).filter(it -> it.getDomain().equals("runledger"));
        return info.map(ErrorInfo::getReason).orElse("");
    }

    /** Whether to send the same call again, with the same {@code request_id}. */
    public static boolean isTransient(StatusRuntimeException error) {
        if (Context.current().isCancelled()) return false; // It was the caller who gave up.
        return switch (error.getStatus().getCode()) {
            case UNAVAILABLE, RESOURCE_EXHAUSTED, DEADLINE_EXCEEDED -> true;
            case UNIMPLEMENTED -> false;
            default -> reason(error).isEmpty();
        };
    }

    /** What is done under a lease. To return completes the run; to throw fails it or, after a stop, aborts it. */
    public interface Work { void run(Held held) throws Exception; }

    /** Starts a run under a lease, of 30 s unless the request says otherwise, and works on it as below. */
    public Optional<Run> work(StartRunRequest start, Work work) throws ExecutionException, InterruptedException {
        var request = start.toBuilder();
        if (!start.hasLeaseTtl()) request.setLeaseTtl(Duration.newBuilder().setSeconds(30));
        if (start.getRequestId().isEmpty()) request.setRequestId(UUID.randomUUID().toString());
        var started = insist(runs::startRun, request.build());
        // UNCHANGED has granted nothing: the lease that it shows is somebody else's.
        if (started.getDisposition() == Disposition.DISPOSITION_UNCHANGED) return Optional.empty();
        return work(started.getRun(), work);
    }

    /**
     * Works, in a thread of its own, on a run that was started or claimed with a lease; renews the lease meanwhile;
     * then reports the end, for 5 minutes if nobody answers. An interrupt of the caller stops the work. Returns the run
     * as it ended, or nothing when that was somebody else's to say. Throws what the work threw, once it is reported.
     */
    public Optional<Run> work(Run run, Work work) throws ExecutionException, InterruptedException {
        var held = new Held(run, work);
        held.thread.start();
        boolean interrupted = false;
        ExecutionException failed = null;
        // The first heartbeat goes out at once: the lease may have been granted long before its answer came.
        for (long due = System.nanoTime(); ; ) {
            try {
                held.working.get(due - System.nanoTime(), NANOSECONDS);
                break;
            } catch (TimeoutException atWork) {
                due = held.renew();
            } catch (InterruptedException told) {
                interrupted = true;
                held.stop("WORKER_STOPPED", "its worker was told to stop");
            } catch (ExecutionException thrown) {
                failed = thrown;
                break;
            }
        }
        interrupted |= Thread.interrupted(); // Else the report would be interrupted.
        Optional<Run> end = Optional.empty();
        try {
            if (!held.lost) end = Optional.of(held.end(failed));
        } catch (StatusRuntimeException refused) {
            if (failed != null) refused.addSuppressed(failed);
            // These say that somebody else has the lease by now, or has ended the run.
            if (!Set.of("LEASE_LOST", "INVALID_TRANSITION").contains(reason(refused))) throw refused;
        } finally {
            if (interrupted) Thread.currentThread().interrupt();
        }
        if (failed != null && !held.stopped()) throw failed;
        return end;
    }

    /** A run under a lease that this bridge holds. */
    public final class Held {
        /** The run as it was when the lease was granted. */
        public final Run run;
        private final long epoch;
        private final FutureTask<Void> working;
        private final Thread thread;
        private volatile AbortRunRequest.Builder abort; // Set when the work is to stop.
        private boolean lost;

        private Held(Run run, Work work) {
            if (!run.hasLease()) throw new IllegalArgumentException("there is no run, or none with a lease");
            this.run = run;
            epoch = run.getLease().getEpoch();
            working = new FutureTask<>(() -> { work.run(this); return null; });
            thread = new Thread(working, "run " + run.getRunId());
        }

        /** Whether the work is to stop, and to throw. Its thread is interrupted then, too, once. */
        public boolean stopped() { return abort != null; }

        /** Updates the run, or its progress alone. The run's id, the epoch and a {@code request_id} are filled in. */
        public UpdateRunResponse update(UpdateRunRequest update) throws InterruptedException {
            var request = update.toBuilder().setRunId(run.getRunId()).setLeaseEpoch(epoch);
            return insist(runs::updateRun, request.setRequestId(UUID.randomUUID().toString()).build());
        }

        private void stop(String code, String reason) {
            if (stopped()) return;
            abort = AbortRunRequest.newBuilder().setReasonCode(code).setFailureReason(reason);
            thread.interrupt();
        }

        /** Sends a heartbeat, and says when the next one is due. */
        private long renew() {
            var ttl = run.getLease().getTtl();
            long sent = System.nanoTime(), third = (SECONDS.toNanos(ttl.getSeconds()) + ttl.getNanos()) / 3;
            var request = HeartbeatRunRequest.newBuilder().setRunId(run.getRunId()).setLeaseEpoch(epoch).build();
            try {
                var answer = runs.withDeadlineAfter(third, NANOSECONDS).heartbeatRun(request);
                if (answer.hasAbortRequest()) stop("ABORT_REQUESTED", answer.getAbortRequest().getReason());
                return sent + third;
            } catch (StatusRuntimeException error) {
                // At its own epoch, the lease is over but nobody has followed: the work may still come to its end. An
                // end that was presumed by the authority is still to be reported.
                lost |= detail(error, LeaseLostError.class).filter(it -> it.getCurrentEpoch() != epoch).isPresent()
                    || detail(error, RunSummary.class).filter(it -> !it.getPresumed()).isPresent()
                    || List.of("RUN_NOT_FOUND", "NOT_OWNER").contains(reason(error));
                if (lost || reason(error).equals("RUN_NOT_RUNNING")) stop(reason(error), "the run had ended already");
                channel.resetConnectBackoff();
                return System.nanoTime() + Math.min(third / 4, MILLISECONDS.toNanos(500));
            }
        }

        private Run end(ExecutionException failed) throws InterruptedException {
            String id = run.getRunId(), requestId = UUID.randomUUID().toString();
            if (failed == null) {
                var complete = CompleteRunRequest.newBuilder().setRunId(id).setLeaseEpoch(epoch);
                return insist(runs::completeRun, complete.setRequestId(requestId).build()).getRun();
            }
            if (stopped()) {
                abort.setRunId(id).setLeaseEpoch(epoch).setRequestId(requestId);
                return insist(runs::abortRun, abort.build()).getRun();
            }
            var why = failed.getCause().toString().replace('\0', ' ');
            var fail = FailRunRequest.newBuilder().setRunId(id).setLeaseEpoch(epoch).setRequestId(requestId)
                .setFailureReason(why.substring(0, Math.min(why.length(), 1_000)));
            return insist(runs::failRun, fail.build()).getRun();
        }
    }

    /** Sends a request until it is answered or refused, for 5 minutes. */
    private <Q, A> A insist(Function<Q, A> call, Q request) throws InterruptedException {
        for (long until = System.nanoTime() + MINUTES.toNanos(5); ; ) {
            try {
                return call.apply(request);
            } catch (StatusRuntimeException error) {
                if (!isTransient(error) || channel.isShutdown() || System.nanoTime() - until > 0) throw error;
            }
            Thread.sleep(500);
            channel.resetConnectBackoff(); // By itself, it tries to connect again after up to two minutes.
        }
    }

    /**
     * Shows a run's frames, beginning where the request says, until the run has ended; resumes a stream that is cut. A
     * snapshot that follows other frames says that the ledger was restored: what was shown before it is gone.
     */
    public void watch(WatchRunRequest from, Consumer<WatchRunResponse> show) throws InterruptedException {
        var next = from.toBuilder();
        for (long pause = 100; ; pause = Math.min(2 * pause + 100, 5_000)) {
            var call = channel.newCall(RunServiceGrpc.getWatchRunMethod(), runs.getCallOptions());
            boolean came = false;
            String cut = "";
            try {
                var frames = ClientCalls.blockingServerStreamingCall(call, next.build());
                while (true) {
                    try {
                        if (!frames.hasNext()) break;
                    } catch (StatusRuntimeException error) {
                        cut = reason(error);
                        if (isTransient(error) && !channel.isShutdown() || cut.equals("LEDGER_RESTORED")) break;
                        throw error;
                    }
                    var frame = frames.next();
                    came = true;
                    long revision = switch (frame.getFrameCase()) {
                        case SNAPSHOT -> frame.getSnapshot().getRun().getRevision();
                        case CHANGE -> frame.getChange().getEvent().getRevision();
                        case CAUGHT_UP -> frame.getCaughtUp().getRevision();
                        case CHECKPOINT -> frame.getCheckpoint().getRevision();
                        default -> 0;
                    };
                    if (revision != 0) next.setAfterRevision(revision).setLedgerEpoch(frame.getLedgerEpoch());
                    if (frame.getFrameCase() != WatchRunResponse.FrameCase.FRAME_NOT_SET) show.accept(frame);
                    if (frame.hasEnd()) return;
                }
            } finally {
                call.cancel("nobody reads on", null);
            }
            if (cut.equals("LEDGER_RESTORED")) next.clearAfterRevision().clearLedgerEpoch();
            if (came) pause = cut.equals("DRAINING") ? 0 : 100;
            Thread.sleep(pause);
            channel.resetConnectBackoff();
        }
    }
}
