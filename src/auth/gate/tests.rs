use std::sync::Mutex as StdMutex;

use http::HeaderValue;
use runledger_proto::methods;

use super::*;
use crate::auth::access_file;
use crate::auth::rules::Rules;
use crate::auth::token::TokenHash;
use crate::clock::CredentialClock;
use crate::domain::PrincipalKind;

#[derive(Debug)]
struct Hands(StdMutex<i64>);

impl Clock for Hands {
    fn now(&self) -> Time {
        Time::from_micros(*self.0.lock().unwrap())
    }
}

const NOW: i64 = 1_800_000_000_000_000;

fn file(tokens: &[(&str, &str, &str)]) -> Rules {
    let entry = |(token, more, grants): &(&str, &str, &str)| {
        let hash = TokenHash::new(token.as_bytes());
        format!("[[token]]\nname = \"{token}\"\nsha256 = \"{hash}\"\n{more}\ngrants = [{grants}]\n")
    };
    access_file::read(&tokens.iter().map(entry).collect::<String>()).unwrap()
}

const REPORTER: &str = "{ namespaces = [\"default\"], roles = [\"reporter\"], agents = [\"bridge-*\"] }";
const READER: &str = "{ namespaces = [\"default\"], roles = [\"reader\"] }";

fn trusted(rules: Rules) -> Trusted {
    Trusted::new(rules, Arc::new(Hands(StdMutex::new(NOW)))).unwrap()
}

fn gate(rules: Rules) -> (Gate, Arc<Hands>) {
    let clock = Arc::new(Hands(StdMutex::new(NOW)));
    (Gate::of(Kinds::all(), trusted(rules), clock.clone()), clock)
}

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    pairs.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_str(value).unwrap())).collect()
}

fn asked<'a>(path: &str, headers: &'a HeaderMap) -> GatedCall<'a> {
    let is_open = path.starts_with("/grpc.");
    let access = if is_open { Some(Access::Open) } else { methods::of(path).map(|method| method.access) };
    GatedCall { access, headers, certificate: None, lasts: false }
}

fn look(gate: &Gate, method: &str, pairs: &[(&'static str, &str)]) -> Result<Admitted, Denied> {
    let path = if method.starts_with('/') { method.to_owned() } else { format!("/runledger.v1.RunService/{method}") };
    match gate.look(asked(&path, &headers(pairs))) {
        Looked::Admitted(admitted) => Ok(*admitted),
        Looked::Denied(denied) => Err(denied),
        Looked::Unproven => panic!("a signed token"),
    }
}

#[test]
fn an_open_gate_believes_every_caller() {
    let gate = Gate::open();
    let admitted = look(&gate, "StartRun", &[("runledger-agent-id", "a")]).unwrap();
    assert_eq!(admitted.caller.principal, Principal::claimed("a".into()));
    assert_eq!(admitted.caller.agents, Agents::All);
    let anonymous = look(&gate, "StartRun", &[("authorization", "Bearer whatever")]).unwrap();
    assert_eq!(anonymous.caller.principal.kind, PrincipalKind::Anonymous);
    assert!(matches!(look(&gate, "StartRun", &[("runledger-agent-id", "a b")]), Err(Denied::Headers(_))));
}

#[test]
fn a_caller_without_a_credential_is_let_in_to_nothing_but_health_and_reflection() {
    let (gate, _) = gate(file(&[("rl_a", "", READER)]));
    for method in ["GetRun", "StartRun", "WatchRuns", "/runledger.v1.ReplicaService/GetReplica"] {
        assert_eq!(look(&gate, method, &[]).unwrap_err(), Denied::NoCredential, "{method}");
    }
    for method in ["/grpc.health.v1.Health/Check", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"] {
        assert!(look(&gate, method, &[]).is_ok(), "{method}");
    }
}

#[test]
fn a_bad_credential_is_refused_everywhere_also_where_none_is_needed() {
    let (gate, _) = gate(file(&[("rl_a", "", READER)]));
    for (authorization, bad) in [
        ("Bearer rl_b", BadCredential::Unknown),
        ("Bearer a.b.c", BadCredential::Unknown),
        ("Bearer eyJ.b.c", BadCredential::NotTaken),
        ("Basic cmxfYQ==", BadCredential::Malformed),
        ("Bearer ", BadCredential::Malformed),
        ("rl_a", BadCredential::Malformed),
    ] {
        for method in ["GetRun", "/grpc.health.v1.Health/Check"] {
            let denied = look(&gate, method, &[("authorization", authorization)]).unwrap_err();
            assert_eq!(denied, bad.clone().into(), "{authorization:?}");
        }
    }
    let mut twice = headers(&[("authorization", "Bearer rl_a")]);
    twice.append("authorization", HeaderValue::from_static("Bearer rl_a"));
    let looked = gate.look(asked("/runledger.v1.RunService/GetRun", &twice));
    assert!(matches!(looked, Looked::Denied(Denied::BadCredential(BadCredential::Malformed))));
}

#[test]
fn a_bad_token_does_not_fall_back_to_a_good_certificate_and_a_good_one_names_the_caller() {
    let rules = access_file::read(&format!(
        "[[token]]\nname = \"by-token\"\nsha256 = \"{}\"\ngrants = [{READER}]\n\
         [[certificate]]\nname = \"by-certificate\"\ngrants = [{REPORTER}]\n",
        TokenHash::new(b"rl_a")
    ));
    let (gate, _) = gate(rules.unwrap());
    let certificate = Some(Certificate { name: "by-certificate", issuer: "CN=ca" });
    let look = |pairs: &[(&'static str, &str)]| {
        gate.look(GatedCall { certificate, ..asked("/runledger.v1.RunService/GetRun", &headers(pairs)) })
    };
    // A prober that must show some certificate is let in without a rule for it.
    let health = |certificate, pairs: &[(&'static str, &str)]| {
        let headers = headers(pairs);
        let probe = GatedCall { certificate, ..asked("/grpc.health.v1.Health/Check", &headers) };
        matches!(gate.look(probe), Looked::Admitted(_))
    };
    let unknown = Some(Certificate { name: "a-prober", issuer: "CN=ca" });
    assert!(health(unknown, &[]) && health(certificate, &[]) && health(None, &[]));
    assert!(!health(unknown, &[("authorization", "Bearer rl_x")]), "a credential that comes is good, or refused");
    let Looked::Admitted(admitted) = look(&[]) else { panic!("the certificate") };
    let identity = admitted.caller.principal.identity.unwrap();
    assert_eq!((identity.subject.as_str(), identity.issuer.as_str()), ("by-certificate", "CN=ca"));
    let Looked::Admitted(admitted) = look(&[("authorization", "bearer rl_a")]) else { panic!("the token") };
    assert_eq!(admitted.caller.principal.identity.unwrap().subject, "by-token");
    assert!(matches!(look(&[("authorization", "Bearer rl_x")]), Looked::Denied(Denied::BadCredential(_))));
}

#[tokio::test]
async fn a_good_token_does_not_let_in_a_certificate_that_names_nobody() {
    let token =
        format!("[[token]]\nname = \"by-token\"\nsha256 = \"{}\"\ngrants = [{READER}]\n", TokenHash::new(b"rl_a"));
    let with = |name: &str| {
        let entry = format!("[[certificate]]\nname = \"{name}\"\ngrants = [{REPORTER}]\n");
        access_file::read(&(token.clone() + &entry)).unwrap()
    };
    let (gate, _) = gate(with("worker-*"));
    let headers = headers(&[("authorization", "Bearer rl_a")]);
    let asks = |gate: &Gate, name, lasts| {
        let certificate = Some(Certificate { name, issuer: "CN=ca" });
        let path = if lasts { "WatchRuns" } else { "GetRun" };
        let path = format!("/runledger.v1.RunService/{path}");
        gate.look(GatedCall { certificate, lasts, ..asked(&path, &headers) })
    };
    for lasts in [false, true] {
        assert!(matches!(asks(&gate, "worker-1", lasts), Looked::Admitted(_)));
        for unnamed in ["other", "", "worker"] {
            let Looked::Denied(denied) = asks(&gate, unnamed, lasts) else { panic!("{unnamed} is let in") };
            assert_eq!(denied, BadCredential::Certificate(unnamed.to_owned()).into());
        }
    }
    let Looked::Admitted(watch) = asks(&gate, "worker-1", true) else { panic!("a good one") };
    let session = watch.session.unwrap();
    gate.take(trusted(with("others-*")));
    let denied = session.until_denied().await;
    assert_eq!(denied, BadCredential::Certificate("worker-1".to_owned()).into(), "its certificate names nobody now");
    let certificate = Some(Certificate { name: "nobody", issuer: "CN=ca" });
    let headers_alone = HeaderMap::new();
    let alone = gate.look(GatedCall { certificate, ..asked("/runledger.v1.RunService/GetRun", &headers_alone) });
    let Looked::Denied(denied) = alone else { panic!("a certificate that names nobody") };
    assert_eq!(denied, BadCredential::UnknownCertificate("nobody".to_owned()).into());
    // Where certificates name nobody at all, one let the connection in, and no more.
    gate.take(trusted(access_file::read(&token).unwrap()));
    assert!(matches!(asks(&gate, "other", false), Looked::Admitted(_)));
}

#[test]
fn the_checks_come_in_their_order() {
    let (gate, _) = gate(file(&[("rl_a", "", REPORTER)]));
    let token = ("authorization", "Bearer rl_a");
    let bad_agent = ("runledger-agent-id", "a b");
    assert_eq!(look(&gate, "StartRun", &[bad_agent]).unwrap_err(), Denied::NoCredential);
    assert!(matches!(look(&gate, "StartRun", &[token, bad_agent]).unwrap_err(), Denied::Headers(_)));
    let other = ("runledger-agent-id", "other");
    assert_eq!(
        look(&gate, "StartRun", &[token, other]).unwrap_err(),
        Denied::Agent { named: Some("other".into()), own: "bridge-*".into() }
    );
    assert_eq!(look(&gate, "StartRun", &[token]).unwrap_err(), Denied::Agent { named: None, own: "bridge-*".into() });
    assert_eq!(
        look(&gate, "/runledger.v1.ReplicaService/GetReplica", &[token]).unwrap_err(),
        Denied::Role(Access::Inspect)
    );
    let admitted = look(&gate, "StartRun", &[token, ("runledger-agent-id", "bridge-1")]).unwrap();
    assert_eq!(admitted.caller.principal.kind, PrincipalKind::Authenticated);
    assert!(admitted.caller.agents.is_confined());
    assert_eq!(look(&gate, "NoSuchMethod", &[token]).unwrap_err(), Denied::UnknownMethod);
}

#[test]
fn a_token_is_taken_until_its_end_and_half_a_minute_more() {
    let (gate, clock) = gate(file(&[("rl_a", "expires_at = \"2027-01-15T08:00:10Z\"", READER)]));
    let token = [("authorization", "Bearer rl_a")];
    assert!(look(&gate, "GetRun", &token).unwrap().ends_at.is_some());
    *clock.0.lock().unwrap() = NOW + 39_999_999;
    assert!(look(&gate, "GetRun", &token).is_ok());
    *clock.0.lock().unwrap() = NOW + 40_000_000;
    assert_eq!(look(&gate, "GetRun", &token).unwrap_err(), BadCredential::Expired.into());
}

/// A machine whose clock is off by so much, in microseconds.
struct Off(Hands, StdMutex<i64>);

impl Clock for &'static Off {
    fn now(&self) -> Time {
        self.0.now().plus_micros(*self.1.lock().unwrap())
    }

    fn elapsed(&self) -> std::time::Duration {
        self.0.elapsed()
    }
}

#[tokio::test]
async fn a_clock_that_is_set_brings_no_ended_token_back_and_refuses_no_good_one() {
    let machine: &Off = Box::leak(Box::new(Off(Hands(StdMutex::new(NOW)), StdMutex::new(0))));
    let rules = file(&[("rl_a", "expires_at = \"2027-01-15T08:00:10Z\"", READER), ("rl_b", "", READER)]);
    let clock = Arc::new(CredentialClock::beside(machine));
    let gate = Gate::of(Kinds::all(), trusted(rules), clock.clone());
    let token = [("authorization", "Bearer rl_a")];
    let after = |passed: i64, off: i64| {
        *machine.0.0.lock().unwrap() = NOW + passed * 1_000_000;
        *machine.1.lock().unwrap() = off * 1_000_000;
        clock.look(None);
        look(&gate, "GetRun", &token)
    };
    assert!(after(0, 0).is_ok());
    assert!(after(1, 7_200).is_ok(), "ahead for a moment");
    let headers = headers(&token);
    let Looked::Admitted(waits) =
        gate.look(GatedCall { lasts: true, ..asked("/runledger.v1.RunService/WaitRun", &headers) })
    else {
        panic!("good")
    };
    assert!(waits.ends_at.unwrap() > tokio::time::Instant::now() + std::time::Duration::from_secs(30));
    assert!(after(39, -3_600).is_ok());
    gate.end_expired();
    let session = waits.session.unwrap();
    assert!(futures_util::FutureExt::now_or_never(session.until_denied()).is_none());
    for (passed, off) in [(40, 0), (41, -3_600), (42, -400 * 86_400), (43, 0)] {
        assert_eq!(after(passed, off).unwrap_err(), BadCredential::Expired.into(), "{passed} {off}");
    }
    // The machine has slept, and the session's own timer with it.
    gate.end_expired();
    assert_eq!(session.until_denied().await, BadCredential::Expired.into());
}

#[tokio::test]
async fn new_rules_end_what_they_do_not_let_in_and_nothing_else() {
    let (gate, _) = gate(file(&[("rl_a", "", READER), ("rl_b", "", READER), ("rl_c", "", READER)]));
    let session = |token: &str| {
        let headers = headers(&[("authorization", &format!("Bearer {token}"))]);
        let watches = GatedCall { lasts: true, ..asked("/runledger.v1.RunService/WatchRuns", &headers) };
        let Looked::Admitted(admitted) = gate.look(watches) else { panic!("{token}") };
        admitted.session.unwrap()
    };
    let (kept, gone, moved) = (session("rl_a"), session("rl_b"), session("rl_c"));
    let elsewhere = "{ namespaces = [\"elsewhere\"], roles = [\"admin\"] }";
    gate.take(trusted(file(&[("rl_a", "", REPORTER), ("rl_c", "", elsewhere)])));
    assert_eq!(gone.until_denied().await, BadCredential::Unknown.into());
    assert_eq!(moved.until_denied().await, Denied::Namespace);
    assert!(futures_util::FutureExt::now_or_never(kept.until_denied()).is_none());
}

#[tokio::test]
async fn a_claim_that_waits_ends_where_its_caller_may_write_other_runs_by_new_rules() {
    let operator = "{ namespaces = [\"default\"], roles = [\"operator\"] }";
    let of = |agents: &str| format!("{{ namespaces = [\"default\"], roles = [\"reporter\"], agents = [{agents}] }}");
    let (two, one) = (of("\"a\", \"b\""), of("\"a\""));
    let (gate, _) = gate(file(&[("rl_a", "", operator), ("rl_b", "", &two), ("rl_c", "", &one)]));
    let session = |token: &str, agent: Option<&str>| {
        let bearer = format!("Bearer {token}");
        let agent = agent.map(|agent| ("runledger-agent-id", agent));
        let all: Vec<(&str, &str)> = std::iter::once(("authorization", bearer.as_str())).chain(agent).collect();
        let headers = headers(&all);
        let waits = GatedCall { lasts: true, ..asked("/runledger.v1.RunService/ClaimNextRun", &headers) };
        let Looked::Admitted(admitted) = gate.look(waits) else { panic!("{token}") };
        admitted.session.unwrap()
    };
    let (demoted, narrowed, same) = (session("rl_a", None), session("rl_b", Some("a")), session("rl_c", None));
    gate.take(trusted(file(&[("rl_a", "", &one), ("rl_b", "", &one), ("rl_c", "", &one)])));
    assert_eq!(demoted.until_denied().await, BadCredential::Expired.into());
    assert_eq!(narrowed.until_denied().await, BadCredential::Expired.into());
    assert!(futures_util::FutureExt::now_or_never(same.until_denied()).is_none());
}

#[test]
fn sessions_that_have_gone_take_no_room() {
    let (gate, _) = gate(file(&[("rl_a", "", READER)]));
    let headers = headers(&[("authorization", "Bearer rl_a")]);
    for _ in 0..1_000 {
        let _gone = gate.look(GatedCall { lasts: true, ..asked("/runledger.v1.RunService/WaitRun", &headers) });
    }
    let Gate(Some(checked)) = &gate else { panic!("not open") };
    assert!(checked.sessions.lock().len() <= 2);
}
