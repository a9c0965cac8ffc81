//! What kind of call a path is: it decides which bounds hold for it.

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It reads or changes a run, and is answered soon.
    Call,
    /// It reads many: its answer may be the largest there is.
    Page,
    /// It is answered when something happens.
    Wait,
    /// A stream of answers.
    Watch,
    /// It looks at this process alone, and is answered however busy it is.
    Local,
}

impl Kind {
    /// Of a call to any of this port's services. A test holds that every method of `RunService` is what it says.
    pub(super) fn of(path: &str) -> Self {
        let Some(method) = path.strip_prefix(RUNS) else {
            return if path == "/grpc.health.v1.Health/Watch" || path.starts_with("/grpc.reflection.") {
                Self::Watch
            } else {
                Self::Local
            };
        };
        match method {
            "ListRuns" | "CountRuns" | "ListRunEvents" => Self::Page,
            "WaitRun" | "ClaimNextRun" => Self::Wait,
            "WatchRun" | "WatchRuns" => Self::Watch,
            _ => Self::Call,
        }
    }
}

impl Kind {
    /// Whether it is refused while more is asked for than can be done. Pages have turns of their own; a watch that was cut
    /// comes back, and what only looks is to be answered then.
    pub(super) fn is_refused_in_need(self) -> bool {
        match self {
            Self::Call | Self::Wait => true,
            Self::Page | Self::Watch | Self::Local => false,
        }
    }
}

/// What the paths of `RunService` begin with.
pub(in crate::grpc) const RUNS: &str = "/runledger.v1.RunService/";

#[cfg(test)]
mod tests {
    use prost_reflect::DescriptorPool;

    use super::*;
    use runledger_proto::FILE_DESCRIPTOR_SET;

    #[test]
    fn a_stream_of_answers_is_a_watch_and_nothing_else_is() {
        let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).unwrap();
        let service = pool.get_service_by_name("runledger.v1.RunService").unwrap();
        assert_eq!(format!("/{}/", service.full_name()), RUNS);
        for method in service.methods() {
            let kind = Kind::of(&format!("{RUNS}{}", method.name()));
            assert_eq!(kind == Kind::Watch, method.is_server_streaming(), "{}", method.name());
            assert!(!method.is_client_streaming(), "{}: requests are read as one message", method.name());
        }
    }
}
