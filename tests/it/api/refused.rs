//! A refusal in its parts. The properties of every refusal are checked when one is taken apart.

use std::collections::HashMap;

use prost::Message;
use runledger_proto::v1::{Run, RunSummary};
use tonic::{Code, Status};
use tonic_types::pb::{BadRequest, ErrorInfo};

#[derive(Clone, Debug)]
pub(crate) struct Refused {
    pub(crate) code: Code,
    pub(crate) reason: String,
    pub(crate) message: String,
    pub(crate) info: HashMap<String, String>,
    details: Vec<prost_types::Any>,
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        assert!(!status.details().is_empty(), "every refusal has details: {status:?}");
        assert!(status.details().len() <= 4096, "{} bytes of details", status.details().len());
        let rpc = tonic_types::pb::Status::decode(status.details()).unwrap();
        assert_eq!((rpc.code, rpc.message.as_str()), (i32::from(status.code()), status.message()));
        rpc.into()
    }
}

/// One that stands in an answer.
impl From<tonic_types::pb::Status> for Refused {
    fn from(rpc: tonic_types::pb::Status) -> Self {
        let code = rpc.code.into();
        let mut details = rpc.details;
        let first = details.remove(0);
        assert_eq!(first.type_url, "type.googleapis.com/google.rpc.ErrorInfo");
        let ErrorInfo { reason, domain, metadata } = ErrorInfo::decode(first.value.as_slice()).unwrap();
        assert_eq!(domain, "runledger");
        Self { code, reason, message: rpc.message, info: metadata, details }
    }
}

impl Refused {
    /// Asserts that this is the refusal.
    #[track_caller]
    pub(crate) fn is(self, code: Code, reason: &str) -> Self {
        assert_eq!((self.code, self.reason.as_str()), (code, reason), "{self:?}");
        self
    }

    /// The typed detail with this full name: there must be one.
    #[track_caller]
    pub(crate) fn detail<M: Message + Default>(&self, name: &str) -> M {
        let url = format!("type.googleapis.com/{name}");
        let mut found = self.details.iter().filter(|detail| detail.type_url == url);
        let detail = found.next().unwrap_or_else(|| panic!("no {name} in {self:?}"));
        assert!(found.next().is_none(), "two of {name}");
        M::decode(detail.value.as_slice()).unwrap()
    }

    /// The fields that were found wrong, of an `INVALID_FIELD`.
    #[track_caller]
    pub(crate) fn fields(&self) -> Vec<String> {
        assert_eq!((self.code, self.reason.as_str()), (Code::InvalidArgument, "INVALID_FIELD"), "{self:?}");
        let listed = self.detail::<BadRequest>("google.rpc.BadRequest").field_violations;
        assert!(!listed.is_empty() && listed.iter().all(|violation| !violation.description.is_empty()), "{self:?}");
        listed.into_iter().map(|violation| violation.field).collect()
    }
}

/// The part of a run that a refusal must show.
pub(crate) fn summary(run: &Run) -> RunSummary {
    let run = run.clone();
    RunSummary {
        namespace: run.namespace,
        run_id: run.run_id,
        task_thread_id: run.task_thread_id,
        agent_id: run.agent_id,
        status: run.status,
        revision: run.revision,
        started_at: run.started_at,
        running_at: run.running_at,
        updated_at: run.updated_at,
        completed_at: run.completed_at,
        presumed: run.presumed,
        reason_code: run.reason_code,
        failure_reason: run.failure_reason[..run.failure_reason.floor_char_boundary(512)].to_owned(),
    }
}
