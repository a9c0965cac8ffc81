//! The variables of the environment that are not the process's own, and that it or one of its libraries reads: each has
//! a row here, with what a value means that cannot be followed. None of them stops a server.

use std::fmt::Write as _;
use std::thread::available_parallelism;

/// A variable, or several of one meaning, and what they do.
#[derive(Clone, Copy, Debug)]
pub struct Ambient {
    /// The names.
    pub names: &'static [&'static str],
    /// What they are for.
    pub meaning: &'static str,
    /// What comes of a value that cannot be followed.
    pub wrong: &'static str,
    /// Such values.
    pub wrong_values: &'static [&'static str],
}

/// All of them.
pub const ALL: &[Ambient] = &[
    Ambient {
        names: &[
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT",
        ],
        meaning: "the collector, where `--otlp-endpoint` is not given",
        wrong: "a warning; nothing is sent",
        wrong_values: &["collector:4317", "https://", "ftp://collector"],
    },
    Ambient {
        names: &[
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL",
        ],
        meaning: "the protocol to it: `grpc` is the only one that is spoken",
        wrong: "a warning; with `http/protobuf` and `http/json` nothing is sent \
                to the collector that the environment names",
        wrong_values: &["http/protobuf", "smoke"],
    },
    Ambient {
        names: &[
            "OTEL_EXPORTER_OTLP_TIMEOUT",
            "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
            "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT",
        ],
        meaning: "the longest time of one export, in milliseconds, up to a minute (default 5000)",
        wrong: "a warning; the default holds",
        wrong_values: &["soon", "-1"],
    },
    Ambient {
        names: &[
            "OTEL_EXPORTER_OTLP_CERTIFICATE",
            "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE",
            "OTEL_EXPORTER_OTLP_METRICS_CERTIFICATE",
        ],
        meaning: "CAs that the collector is proven by, where `--otlp-ca` is not given",
        wrong: "a warning; nothing is sent to a collector that the environment names",
        wrong_values: &["/nowhere/ca.pem"],
    },
    Ambient {
        names: &[
            "OTEL_EXPORTER_OTLP_HEADERS",
            "OTEL_EXPORTER_OTLP_TRACES_HEADERS",
            "OTEL_EXPORTER_OTLP_METRICS_HEADERS",
        ],
        meaning: "headers to the collector, beside those of `--otlp-headers-file`",
        wrong: "a header that is none is left out",
        wrong_values: &["no header", "a=%zz,\u{e9}=b"],
    },
    Ambient {
        names: &[
            "OTEL_EXPORTER_OTLP_COMPRESSION",
            "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION",
            "OTEL_EXPORTER_OTLP_METRICS_COMPRESSION",
            "OTEL_EXPORTER_OTLP_INSECURE",
        ],
        meaning: "not followed: nothing is compressed, and the URL says whether TLS is spoken",
        wrong: "as any value",
        wrong_values: &["gzip", "smoke"],
    },
    Ambient {
        names: &["OTEL_SDK_DISABLED"],
        meaning: "`true` sends neither metrics nor traces, whatever flags say",
        wrong: "a warning; as if it were not set",
        wrong_values: &["perhaps"],
    },
    Ambient {
        names: &["OTEL_TRACES_EXPORTER", "OTEL_METRICS_EXPORTER"],
        meaning: "`none` sends no such, whatever flags say; `otlp` is the default",
        wrong: "a warning; as `none`",
        wrong_values: &["console", "smoke"],
    },
    Ambient {
        names: &["OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"],
        meaning: "the resource of all that is sent; `service.name` is `runledger` where neither names another",
        wrong: "an attribute that is none is left out",
        wrong_values: &["=,=", "no pair"],
    },
    Ambient {
        names: &["OTEL_TRACES_SAMPLER", "OTEL_TRACES_SAMPLER_ARG"],
        meaning: "leaves out some of the calls that `--trace-sample-ratio` and callers have traced",
        wrong: "as if it were not set",
        wrong_values: &["smoke"],
    },
    Ambient {
        names: &[
            "OTEL_BSP_SCHEDULE_DELAY",
            "OTEL_BSP_MAX_QUEUE_SIZE",
            "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
            "OTEL_BSP_EXPORT_TIMEOUT",
            "OTEL_BSP_MAX_CONCURRENT_EXPORTS",
            "OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT",
            "OTEL_SPAN_EVENT_COUNT_LIMIT",
            "OTEL_SPAN_LINK_COUNT_LIMIT",
        ],
        meaning: "bounds of the queue of spans, and of a span",
        wrong: "as if it were not set",
        wrong_values: &["many", "-1"],
    },
    Ambient {
        names: &["OTEL_METRIC_EXPORT_INTERVAL"],
        meaning: "not followed: `--otlp-interval` says it",
        wrong: "as any value",
        wrong_values: &["soon"],
    },
    Ambient {
        names: &["SSL_CERT_FILE", "SSL_CERT_DIR"],
        meaning: "the system's CAs, for what is called over TLS without CAs of its own: a collector, issuers, Postgres with \
                  `sslrootcert=system`, servers",
        wrong: "such a peer is not trusted: its connections fail, and a collector is done without",
        wrong_values: &["/nowhere/certs", "relative"],
    },
    Ambient {
        names: &["TOKIO_WORKER_THREADS"],
        meaning: "threads that serve, from 1 to 1024 (default: the processors)",
        wrong: "the default holds",
        wrong_values: &["0", "many", "-1", "99999999999999999999"],
    },
    Ambient {
        names: &["RUST_MIN_STACK"],
        meaning: "not followed: stacks have a size of their own",
        wrong: "as any value",
        wrong_values: &["99999999999999", "much"],
    },
    Ambient {
        names: &["RUST_BACKTRACE", "RUST_LIB_BACKTRACE"],
        meaning: "`1` says with a panic where it came from",
        wrong: "as if it were not set",
        wrong_values: &["perhaps"],
    },
    Ambient {
        names: &["RUST_LOG"],
        meaning: "not followed: `--log` says it",
        wrong: "as any value",
        wrong_values: &["===", "trace"],
    },
    Ambient {
        names: &["NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "COLORTERM", "TERM", "COLUMNS", "LINES", "LANG", "LC_ALL"],
        meaning: "colours and widths of what is written to a terminal; with `NO_COLOR` the log has no colours either",
        wrong: "the default holds",
        wrong_values: &["smoke", "-1"],
    },
    Ambient {
        names: &["TZ", "TZDIR"],
        meaning: "not followed: all times are UTC",
        wrong: "as any value",
        wrong_values: &["Nowhere/At_All", ":/nowhere"],
    },
    Ambient {
        names: &["TMPDIR", "SQLITE_TMPDIR"],
        meaning: "the folder of passing files: of SQLite where it sorts much, and of `run worker` for its program",
        wrong: "SQLite takes another folder; `run worker` says so, and fails \
                its run with SPAWN_FAILED",
        wrong_values: &["/nowhere/tmp", "relative"],
    },
    Ambient {
        names: &["PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGSSLMODE", "PGOPTIONS", "PGSERVICE"],
        meaning: "not followed: `--store` says it whole",
        wrong: "as any value",
        wrong_values: &["nowhere"],
    },
    Ambient {
        names: &[
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "NO_PROXY",
            "http_proxy",
            "https_proxy",
            "all_proxy",
            "no_proxy",
        ],
        meaning: "not followed: nothing is called through a proxy",
        wrong: "as any value",
        wrong_values: &["nowhere", "http://127.0.0.1:1"],
    },
    Ambient {
        names: &["_RJEM_MALLOC_CONF"],
        meaning: "options of the memory's allocator",
        wrong: "a line of the allocator's own at the start",
        wrong_values: &["smoke"],
    },
];

/// The reference of all of them, in Markdown.
#[must_use]
pub fn reference() -> String {
    let mut text = String::from("| variable | meaning | a value that cannot be followed |\n| --- | --- | --- |\n");
    for Ambient { names, meaning, wrong, .. } in ALL {
        let names: Vec<_> = names.iter().map(|name| format!("`{name}`")).collect();
        let _written = writeln!(text, "| {} | {meaning} | {wrong} |", names.join(" "));
    }
    text
}

/// The threads that serve.
#[must_use]
pub fn worker_threads() -> usize {
    let asked = super::variable("TOKIO_WORKER_THREADS");
    let asked =
        asked.and_then(|text| text.to_str()?.trim().parse().ok()).filter(|threads| (1..=1024).contains(threads));
    asked.unwrap_or_else(|| available_parallelism().map_or(1, usize::from))
}

/// Whether the user wants no colours, wherever they are written.
#[must_use]
pub fn wants_no_colour() -> bool {
    super::variable("NO_COLOR").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_in_the_docs_is_that_of_the_table() {
        let docs = include_str!("../../docs/configuration.md");
        assert!(docs.contains(&reference()), "put this into docs/configuration.md:\n{}", reference());
    }
}
