//! A problem, and the one place that keeps it small: all details of one problem are at most 4 KiB encoded, because they
//! travel in HTTP/2 trailers, and clients cut or drop larger ones.

use std::collections::BTreeMap;

use prost::Message;
use prost_types::Any;
use tonic_types::pb::BadRequest;
use tonic_types::pb::bad_request::FieldViolation;

use super::Code;
use crate::domain::Violation;
use crate::wire::validate::VIOLATIONS_MAX;

/// Bytes of the encoded `google.rpc.Status`.
pub(super) const DETAILS_BYTES_MAX: usize = 4096;
/// Bytes of the text: it travels twice, the second time percent-encoded.
pub(super) const MESSAGE_BYTES_MAX: usize = 512;
/// Violations that one status lists.
const LISTED_MAX: usize = 20;
/// Bytes of a listed violation's field and description.
const FIELD_BYTES_MAX: usize = 128;
const DESCRIPTION_BYTES_MAX: usize = 256;

const BAD_REQUEST: &str = "google.rpc.BadRequest";

/// `google.rpc.ErrorInfo`, whose metadata has one order: equal refusals are equal bytes, so that what refuses alike
/// cannot be told apart.
#[derive(Clone, PartialEq, Message)]
struct ErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: BTreeMap<String, String>,
}

/// A refusal or a failure, as callers are told of it.
#[derive(Clone, Debug)]
pub struct Problem {
    code: Code,
    reason: &'static str,
    message: String,
    metadata: BTreeMap<String, String>,
    details: Vec<Any>,
}

impl Problem {
    pub(super) fn new(code: Code, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), metadata: BTreeMap::new(), details: Vec::new() }
    }

    /// The same problem, said in other words.
    pub(super) fn saying(self, message: String) -> Self {
        Self { message, ..self }
    }

    /// A dynamic part of the message, for programs.
    pub(super) fn info(mut self, key: &str, value: &str) -> Self {
        self.metadata.insert(key.to_owned(), value.to_owned());
        self
    }

    /// A typed detail. `name` is the message's full name.
    pub(super) fn detail(mut self, name: &str, message: &impl Message) -> Self {
        self.details.push(any(name, message));
        self
    }

    /// The problem's code.
    #[must_use]
    pub fn code(&self) -> Code {
        self.code
    }

    /// The reason, for programs: never changes.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        self.reason
    }

    /// The same problem without details but its reason.
    #[must_use]
    pub fn reason_alone(&self) -> Self {
        Self { metadata: BTreeMap::new(), details: Vec::new(), ..self.clone() }
    }

    /// The text for people, and the encoded `google.rpc.Status` with all details.
    #[must_use]
    pub fn encoded(self) -> (String, Vec<u8>) {
        let rpc = self.into_rpc_status();
        let details = rpc.encode_to_vec();
        (rpc.message, details)
    }

    /// The `google.rpc.Status` with all details, of which the `ErrorInfo` is the first. Details of valid values fit, as a
    /// test holds; should one not, the last are left out rather than the whole answer lost on its way.
    #[must_use]
    pub fn into_rpc_status(mut self) -> tonic_types::pb::Status {
        cut(&mut self.message, MESSAGE_BYTES_MAX);
        let mut rpc = self.rpc_status();
        while rpc.encoded_len() > DETAILS_BYTES_MAX && rpc.details.len() > 1 {
            rpc.details.pop();
        }
        if rpc.encoded_len() > DETAILS_BYTES_MAX {
            self.metadata.clear();
            self.details.clear();
            rpc = self.rpc_status();
        }
        rpc
    }

    fn rpc_status(&self) -> tonic_types::pb::Status {
        let info = ErrorInfo {
            reason: self.reason.to_owned(),
            domain: "runledger".to_owned(),
            metadata: self.metadata.clone(),
        };
        let mut details = vec![any("google.rpc.ErrorInfo", &info)];
        details.extend(self.details.iter().cloned());
        tonic_types::pb::Status { code: self.code.number(), message: self.message.clone(), details }
    }
}

/// `INVALID_FIELD`: as many of the first violations as are allowed and fit, and how many more there are.
pub(super) fn invalid(violations: Vec<Violation>) -> Problem {
    let total = violations.len();
    let mut listed: Vec<FieldViolation> = violations.into_iter().take(LISTED_MAX).map(field_violation).collect();
    loop {
        let problem = listing(&listed, total);
        if listed.len() <= 1 || problem.rpc_status().encoded_len() <= DETAILS_BYTES_MAX {
            return problem;
        }
        listed.pop();
    }
}

fn listing(listed: &[FieldViolation], total: usize) -> Problem {
    let more = total - listed.len();
    let first = listed.first().map(|first| format!("{}: {}", first.field, first.description)).unwrap_or_default();
    // A request that breaks more rules than are kept is not counted to its end.
    let at_least = if total >= VIOLATIONS_MAX { "at least " } else { "" };
    let message = match (total, more) {
        (0 | 1, _) => format!("Correct the request: {first}"),
        (_, 0) => format!("Correct {total} fields; all are in the details, the first is {first}"),
        (_, _) => format!(
            "Correct {at_least}{total} fields; {} are in the details and {at_least}{more} more are not, the first is {first}",
            listed.len()
        ),
    };
    Problem::new(Code::InvalidArgument, "INVALID_FIELD", message)
        .info("violations", &total.to_string())
        .info("more", &more.to_string())
        .detail(BAD_REQUEST, &BadRequest { field_violations: listed.to_vec() })
}

fn field_violation(violation: Violation) -> FieldViolation {
    let Violation { mut field, mut description, within: _ } = violation;
    cut(&mut field, FIELD_BYTES_MAX);
    cut(&mut description, DESCRIPTION_BYTES_MAX);
    FieldViolation { field, description, ..FieldViolation::default() }
}

fn any(name: &str, message: &impl Message) -> Any {
    Any { type_url: format!("type.googleapis.com/{name}"), value: message.encode_to_vec() }
}

/// Cuts a text at a character so that it is at most `max` bytes, and shows that it was cut.
fn cut(text: &mut String, max: usize) {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max - '…'.len_utf8()));
        text.push('…');
    }
}
