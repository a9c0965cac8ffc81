//! Requests that are no requests: wrong in many places, empty, too big, not protobuf at all.

use bytes::{Buf as _, BufMut as _, Bytes};
use runledger_proto::v1::{
    AbortRunRequest, CompleteRunRequest, FailRunRequest, PrincipalKind, StartRunRequest, UpdateRunRequest,
};
use serde_json::json;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Request, Status};
use tonic_types::pb::BadRequest;
use tower::ServiceExt as _;

use super::caller::{Ask, Caller, complete, fresh, start, update};
use super::place::Place;
use super::refused::Refused;
use super::values::structure;
use crate::support::patient::Patient;

const UNARY: [&str; 8] =
    ["StartRun", "UpdateRun", "CompleteRun", "AbortRun", "FailRun", "GetRun", "CheckTransition", "ListRunEvents"];

/// Bytes as they are.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}

/// A call with these bytes as its message.
async fn raw(caller: &mut Grpc<Patient>, rpc: &str, message: Bytes) -> Result<Bytes, Status> {
    caller.ready().await.unwrap();
    let path = format!("/runledger.v1.RunService/{rpc}").parse().unwrap();
    match rpc {
        "WatchRun" => {
            let mut frames = caller.server_streaming(Request::new(message), path, Raw).await?.into_inner();
            Ok(frames.message().await?.unwrap_or_default())
        }
        _ => Ok(caller.unary(Request::new(message), path, Raw).await?.into_inner()),
    }
}

pub(crate) async fn what_is_no_message_is_the_callers_fault(place: Place) {
    let mut grpc = Grpc::new(place.channel().await);
    // Cut short, no such wire type, a tag of field 0, noise; and text that is not UTF-8, a lone surrogate among it.
    let noise: [&[u8]; 7] = [
        b"\x0a\x05a",
        b"\x0a",
        b"\x0f",
        b"\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x0a\x02\xc3\x28",
        b"\x0a\x03\xed\xa0\x80",
    ];
    for rpc in UNARY.into_iter().chain(["WatchRun"]) {
        for noise in noise {
            if rpc == "CheckTransition" && noise[0] == 0x0a {
                // The first field of this request is no text, so the wire type is wrong.
                assert_eq!(
                    raw(&mut grpc, rpc, Bytes::from_static(noise)).await.unwrap_err().code(),
                    Code::InvalidArgument
                );
                continue;
            }
            let status = raw(&mut grpc, rpc, Bytes::from_static(noise)).await.unwrap_err();
            assert_eq!(Refused::from(status).fields(), ["request"], "{rpc} {noise:?}");
        }
    }
}

/// Posts a body as it is, and gives the status that the answer's headers carry.
async fn posted(place: &Place, rpc: &str, body: &str) -> Status {
    let request = http::Request::post(format!("http://{}/runledger.v1.RunService/{rpc}", place.address()))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(Body::new(body.to_owned()))
        .unwrap();
    let answer = place.channel().await.oneshot(request).await.unwrap();
    Status::from_header_map(answer.headers()).unwrap_or_else(|| panic!("no status in {:?}", answer.headers()))
}

pub(crate) async fn a_body_that_is_not_framed_as_grpc_is_an_invalid_argument(place: Place) {
    // Cut short in the message and in its frame's head, none at all, said to be compressed, not gRPC.
    for body in ["\0\0\0\0\u{5}\n\u{1}a", "\0\0\0", "", "\u{1}\0\0\0\0", "{\"run_id\": \"a\"}"] {
        for rpc in ["StartRun", "GetRun", "WatchRun"] {
            let status = posted(&place, rpc, body).await;
            assert_eq!(Refused::from(status).fields(), ["request"], "{rpc} {body:?}");
        }
    }
    assert_eq!(posted(&place, "NoSuchCall", "\0\0\0\0\0").await.code(), Code::Unimplemented);
}

pub(crate) async fn a_request_above_4_mib_is_an_invalid_argument(place: Place) {
    let mut grpc = Grpc::new(place.channel().await);
    for rpc in UNARY.into_iter().chain(["WatchRun"]) {
        // One unknown field, so that only its size is wrong.
        let mut message = vec![0x7a, 0x80, 0x80, 0x80, 0x02];
        message.resize(message.len() + 4 * 1024 * 1024, b'x');
        let status = raw(&mut grpc, rpc, message.into()).await.unwrap_err();
        assert_eq!(Refused::from(status).fields(), ["request"], "{rpc}");
    }
}

pub(crate) async fn an_empty_message_names_what_is_missing(place: Place) {
    let caller = place.caller().await;
    let mut grpc = Grpc::new(place.channel().await);
    for (rpc, fields) in [
        ("StartRun", &["task_thread_id"][..]),
        ("UpdateRun", &["run_id"]),
        ("CompleteRun", &["run_id"]),
        ("AbortRun", &["run_id"]),
        ("FailRun", &["failure_reason", "run_id"]),
        ("GetRun", &["run_id"]),
        ("CheckTransition", &["to", "from", "run_id"]),
        ("ListRunEvents", &["run_id"]),
        ("WatchRun", &["run_id"]),
    ] {
        let status = raw(&mut grpc, rpc, Bytes::new()).await.unwrap_err();
        assert_eq!(Refused::from(status).fields(), fields, "{rpc}");
    }
    for ask in [
        Ask::from(UpdateRunRequest::default()),
        CompleteRunRequest::default().into(),
        AbortRunRequest::default().into(),
    ] {
        assert_eq!(caller.refused(ask.expecting(0)).await.fields(), ["run_id", "expected_revision"]);
    }
    assert_eq!(
        caller.refused(Ask::from(FailRunRequest::default()).expecting(0)).await.fields(),
        ["failure_reason", "run_id", "expected_revision"]
    );
}

pub(crate) async fn one_answer_names_every_violation(place: Place) {
    let caller = place.caller().await;
    let asked = StartRunRequest {
        run_id: "a b".into(),
        task_thread_id: String::new(),
        agent_id: "x".repeat(257),
        route: 99,
        tab_group_id: "\0".into(),
        metadata: structure(json!({"k": "\0"})),
        request_id: "x".repeat(129),
        ..StartRunRequest::default()
    };
    let wanted = ["task_thread_id", "agent_id", "route", "tab_group_id", "metadata.k", "run_id", "request_id"];
    let refused = caller.refused(asked).await;
    assert_eq!(refused.fields(), wanted);
    assert_eq!((&*refused.info["violations"], &*refused.info["more"]), ("7", "0"));
}

pub(crate) async fn of_many_violations_20_are_listed_and_the_rest_counted(place: Place) {
    let caller = place.caller().await;
    let many = (0..40).map(|n| (format!("k{n}"), json!("\0"))).collect::<serde_json::Map<_, _>>();
    for (count, listed) in [(20, 20), (21, 20), (40, 20)] {
        let some: serde_json::Map<_, _> = many.clone().into_iter().take(count).collect();
        let asked = UpdateRunRequest { metadata: structure(some.into()), ..update("unknown") };
        let refused = caller.refused(asked).await;
        assert_eq!(refused.fields().len(), listed);
        let info = (refused.info["violations"].clone(), refused.info["more"].clone());
        assert_eq!(info, (count.to_string(), (count - listed).to_string()));
    }
    // Long names: what does not fit into 4 KiB of details is counted as well.
    let long =
        (0..30).map(|n| (format!("{n}{}", "\u{202e}".repeat(50)), json!("\0"))).collect::<serde_json::Map<_, _>>();
    let refused = caller.refused(UpdateRunRequest { metadata: structure(long.into()), ..update("unknown") }).await;
    let listed = refused.detail::<BadRequest>("google.rpc.BadRequest").field_violations.len();
    assert!((1..=20).contains(&listed));
    assert_eq!(refused.info["more"], (30 - listed).to_string());
}

pub(crate) async fn an_unknown_enum_value_is_refused(place: Place) {
    let caller = place.caller().await;
    for route in [4, 99, -1, i32::MAX, i32::MIN] {
        assert_eq!(caller.refused(StartRunRequest { route, ..start(&fresh("enum")) }).await.fields(), ["route"]);
        assert_eq!(caller.refused(UpdateRunRequest { route, ..update("unknown") }).await.fields(), ["route"]);
    }
}

pub(crate) async fn an_agent_with_any_id_can_act(place: Place) {
    let caller = place.caller().await;
    let id = "agént 7 🦀";
    let acting = caller.binary_header("runledger-agent-id-bin", id.as_bytes());
    let run = acting.apply(start(&fresh("any"))).await;
    assert_eq!(run.agent_id, id);
    let principal = acting.events(&run.run_id).await[0].principal.clone().unwrap();
    assert_eq!((principal.kind(), principal.agent_id.as_str()), (PrincipalKind::Claimed, id));
    caller.agent("other").refused(complete(&run.run_id)).await.is(Code::PermissionDenied, "NOT_OWNER");
    acting.apply(complete(&run.run_id)).await;
    for id in [b"".as_slice(), b"a\0", b"\xff", &[b'a'; 257]] {
        let hostile = caller.binary_header("runledger-agent-id-bin", id);
        assert_eq!(hostile.refused(start(&fresh("any"))).await.fields(), ["runledger-agent-id-bin"], "{id:?}");
    }
    let both = acting.agent("a");
    assert_eq!(both.refused(start(&fresh("any"))).await.fields(), ["runledger-agent-id-bin"]);
}

pub(crate) async fn headers_are_validated(place: Place) {
    let caller = place.caller().await;
    caller.header("runledger-namespace", b"default").apply(start(&fresh("namespace"))).await;
    for value in ["-other", "", "Default", "other.", "default,other", &"a".repeat(64)] {
        let refused = caller.header("runledger-namespace", value.as_bytes()).refused(start(&fresh("n"))).await;
        assert_eq!(refused.fields(), ["runledger-namespace"], "{value:?}");
    }
    let longest = "~".repeat(256);
    assert_eq!(caller.agent(&longest).apply(start(&fresh("agent"))).await.agent_id, longest);
    let hostile: [&[u8]; 6] = [b"", b"a b", b"a\tb", "agént".as_bytes(), b"\xff\xfe", &[b'a'; 257]];
    for value in hostile {
        let hostile = caller.header("runledger-agent-id", value);
        assert_eq!(hostile.refused(start(&fresh("agent"))).await.fields(), ["runledger-agent-id"], "{value:?}");
        assert_eq!(Refused::from(hostile.try_get("unknown").await.unwrap_err()).fields(), ["runledger-agent-id"]);
    }
    let twice: Caller = caller.agent("a").agent("b");
    assert_eq!(twice.refused(start(&fresh("agent"))).await.fields(), ["runledger-agent-id"]);
    let twice = caller.header("runledger-namespace", b"default").header("runledger-namespace", b"default");
    assert_eq!(twice.refused(start(&fresh("twice"))).await.fields(), ["runledger-namespace"]);
    let both = caller.agent("").header("runledger-namespace", b"Other");
    assert_eq!(both.refused(start(&fresh("both"))).await.fields(), ["runledger-agent-id", "runledger-namespace"]);
}
