// Adds jobs to graphile-worker and works them for a time, in this one process, and prints what came of it as a line of
// JSON, as the Go program beside it does.
import { randomBytes, randomInt } from "node:crypto";
import { parseArgs } from "node:util";
import { Logger, makeWorkerUtils, run } from "graphile-worker";

// What a user may set. The last is what its page on performance calls its optimal conditions.
const SETTINGS = {
    default: {},
    concurrent: { concurrentJobs: 24, maxPoolSize: 25 },
    batches: {
        concurrentJobs: 24,
        maxPoolSize: 25,
        localQueue: { size: 500 },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
    },
};

// The line of JSON stands alone.
const logger = new Logger(() => (level, message) => {
    if (level === "error") console.error(message);
});

// Jobs that wait or are worked, at most: enough that there is always one to take.
const BACKLOG_MAX = 20_000;

const flag = (value) => ({ type: "string", default: value });
const { values } = parseArgs({
    options: {
        database: flag(process.env.DATABASE_URL ?? ""),
        settings: flag("default"),
        batch: flag("1"),
        callers: flag("512"),
        connections: flag("25"),
        seconds: flag("10"),
        "warm-up": flag("3"),
    },
});
const batch = Number(values.batch);
const callers = Number(values.callers);
const connections = Number(values.connections);
const seconds = Number(values.seconds);
const worker = SETTINGS[values.settings];
if (worker === undefined) throw new Error(`--settings ${values.settings}: ${Object.keys(SETTINGS).join(", ")}`);

// Lets so many jobs in, and wakes whoever waits once others have left.
let left = batch === 1 ? BACKLOG_MAX / 5 : BACKLOG_MAX;
const waiting = [];
const letIn = () => {
    while (waiting.length > 0 && left >= waiting[0].count) {
        left -= waiting[0].count;
        waiting.shift().resolve();
    }
};
const enter = (count) =>
    new Promise((resolve) => {
        waiting.push({ count, resolve });
        letIn();
    });
const leave = () => {
    left += 1;
    letIn();
};

const metadata = { note: randomBytes(120).toString("base64url"), url: "https://example.com/x" };
const next = () => ({
    run_id: `run-${randomBytes(8).toString("hex")}`,
    task_thread_id: `thread-${randomInt(100_000)}`,
    metadata,
});

const adding = await makeWorkerUtils({ connectionString: values.database, maxPoolSize: connections, logger });
await adding.migrate();
const looking = await makeWorkerUtils({ connectionString: values.database, maxPoolSize: 1, logger });
const runner = await run({
    preset: { worker: { connectionString: values.database, logger, ...worker } },
    taskList: { run: async () => leave() },
    noHandleSignals: true,
});

const begin = performance.now() + Number(values["warm-up"]) * 1000;
const end = begin + seconds * 1000;
let added = 0;
const waits = [];
const call = async () => {
    while (performance.now() < end) {
        await enter(batch);
        const jobs = Array.from({ length: batch }, next);
        const sent = performance.now();
        if (batch === 1) await adding.addJob("run", jobs[0]);
        else await adding.addJobs(jobs.map((payload) => ({ identifier: "run", payload })));
        const answered = performance.now();
        added += batch;
        if (answered >= begin && answered < end) waits.push(answered - sent);
    }
};
// A job's row is gone once its end was written; the event of its end comes earlier.
const ended = async () => {
    const { rows } = await looking.withPgClient((client) =>
        client.query("select count(*)::int as waiting from graphile_worker.jobs"),
    );
    return { at: performance.now(), jobs: added - rows[0].waiting };
};
const at = (time) => new Promise((resolve) => setTimeout(resolve, time - performance.now()));

// Workers that end of themselves are a fault.
runner.promise.then(
    () => {},
    (error) => {
        console.error(error);
        process.exit(1);
    },
);
const calling = Promise.all(Array.from({ length: callers }, call));
await at(begin);
const before = await ended();
await at(end);
const after = await ended();
await calling;
await runner.stop();
// The queue is left as it was found: empty.
await looking.withPgClient((client) => client.query("delete from graphile_worker._private_jobs"));
await Promise.all([adding.release(), looking.release()]);

const jobsPerSecond = ((after.jobs - before.jobs) * 1000) / (after.at - before.at);
if (jobsPerSecond <= 0) throw new Error("no job was worked in the time");
waits.sort((one, other) => one - other);
const share = (of) => waits[Math.floor(of * (waits.length - 1))] ?? 0;
console.log(
    JSON.stringify({
        of: "graphile-worker",
        callers,
        connections,
        runs_per_second: jobsPerSecond,
        p50_ms: share(0.5),
        p99_ms: share(0.99),
    }),
);
