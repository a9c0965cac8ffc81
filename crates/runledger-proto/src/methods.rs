//! The methods of the services, with what the proto says of each: see `proto/runledger/v1/options.proto`. The build makes
//! the table, and fails for a method of which something is not said.

use prost::Message;

use crate::json::Named;
use crate::v1;

/// A method, and what holds of its calls.
#[derive(Debug)]
pub struct Method {
    /// The path of its calls: `/`, its service, `/`, and its name.
    pub path: &'static str,
    /// Its place in [`METHODS`].
    pub number: usize,
    /// How many levels within its request the fields stand of the requests that it lists; 0: it is no list.
    pub list_levels: usize,
    /// What a caller must be allowed to do.
    pub access: Access,
    /// The kind of its calls.
    pub kind: Kind,
    /// When its calls are not taken on.
    pub shed: Shed,
    /// Whether `runledger-client` sends its calls again.
    pub resend: Resend,
}

/// The method of a path; none where our services have no such method.
#[must_use]
pub fn of(path: &str) -> Option<&'static Method> {
    index(path).map(|index| &METHODS[index])
}

/// A request that is answered once.
pub trait Unary: Message + Default + Clone + 'static {
    /// The message that answers the request.
    type Answer: Message + Default + 'static;
    /// The method that the request is sent to.
    const METHOD: &'static Method;

    /// Whether it has an id that makes a repetition the same call; of a list of commands, whether each of them has.
    fn has_request_id(&self) -> bool {
        false
    }

    /// Whether the request may be sent again without harm: it has no effect, or its `request_id` makes the repetition the
    /// same call.
    fn is_repeatable(&self) -> bool {
        match Self::METHOD.resend {
            Resend::Always => true,
            Resend::ByRequestId => self.has_request_id(),
            Resend::Never => false,
        }
    }
}

/// A request that changes a run, and whose answer shows the run.
pub trait RunMutation: Unary<Answer: Named> + Named {
    /// Sets the id that makes a repetition the same call, and the revision that the run must be at.
    fn set_terms(&mut self, request_id: String, expected_revision: Option<u64>);

    /// The run as an answer shows it, and the number of the answer's disposition.
    fn outcome(answer: &Self::Answer) -> (Option<&v1::Run>, i32);
}

/// A request that is answered by a stream.
pub trait Streamed: Message + Default + Clone + 'static {
    /// A message of the stream.
    type Frame: Message + Default + 'static;
    /// The method that the request is sent to.
    const METHOD: &'static Method;
}

include!(concat!(env!("OUT_DIR"), "/methods.rs"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_leads_to_its_own_method_and_any_other_to_none() {
        for (number, method) in METHODS.iter().enumerate() {
            assert_eq!(of(method.path).map(|found| found.number), Some(number), "{}", method.path);
            let name = method.path.rsplit('/').next().unwrap();
            let wrong =
                [format!("{}X", method.path), method.path.to_lowercase(), method.path[1..].to_owned(), name.to_owned()];
            assert!(wrong.iter().all(|path| of(path).is_none()), "{wrong:?}");
        }
        assert!(
            ["", "/", "/runledger.v1.RunService/", "/runledger.v1.RunService/DeleteRun"]
                .iter()
                .all(|path| of(path).is_none())
        );
    }

    #[test]
    fn a_request_is_sent_again_by_what_its_method_says() {
        let start = v1::StartRunRequest { request_id: "a".into(), ..Default::default() };
        assert!(start.is_repeatable() && !v1::StartRunRequest::default().is_repeatable());
        assert!(v1::GetRunRequest::default().is_repeatable() && v1::HeartbeatRunRequest::default().is_repeatable());
        assert!(!v1::CreateNamespaceRequest::default().is_repeatable());
        let command = |request_id: &str| v1::RunCommand {
            command: Some(v1::run_command::Command::Start(v1::StartRunRequest {
                request_id: request_id.into(),
                ..Default::default()
            })),
        };
        let list = |commands| v1::ApplyCommandsRequest { commands, view: None };
        assert!(list(vec![command("a"), command("b")]).is_repeatable());
        assert!(!list(vec![command("a"), command("")]).is_repeatable());
        assert!(!list(vec![command("a"), v1::RunCommand::default()]).is_repeatable());
    }
}
