package bridge;

import com.google.rpc.ResourceInfo;
import com.runledger.v1.*;
import io.grpc.StatusRuntimeException;

/** Works on a run, shows its history, and meets a refusal. */
class Example {
    public static void main(String[] args) throws Exception {
        try (var bridge = new Bridge(args[0])) {
            var start = StartRunRequest.newBuilder().setTaskThreadId("thread-1").build();
            var run = bridge.work(start, held -> {
                for (int page = 1; page <= 3; page++) {
                    Thread.sleep(100); // Whatever the work is: it throws when it is interrupted.
                    var progress = Progress.newBuilder().setDone(page).setTotal(3).setMessage("fetching");
                    var update = UpdateRunRequest.newBuilder().setProgress(progress).putLabels("page", "" + page);
                    held.update(update.build());
                }
            }).orElseThrow();
            var history = WatchRunRequest.newBuilder().setRunId(run.getRunId()).setAfterRevision(0).build();
            bridge.watch(history, frame -> {
                if (frame.hasChange()) System.out.println(frame.getChange().getEvent().getType());
            });
            try {
                bridge.runs.getRun(GetRunRequest.newBuilder().setRunId("nobody").build());
            } catch (StatusRuntimeException error) {
                var resource = Bridge.detail(error, ResourceInfo.class).map(ResourceInfo::getResourceName);
                System.out.println(Bridge.reason(error) + " " + resource.orElse("")); // RUN_NOT_FOUND nobody
            }
        }
    }
}
