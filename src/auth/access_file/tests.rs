use super::*;
use crate::auth::Access;
use crate::auth::jwks::{KeySource, Trust};
use crate::auth::jwt::{Issuer, Proof};

const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

fn faults(text: &str) -> String {
    read(text).expect_err("a fault").join("\n")
}

#[test]
fn a_token_a_certificate_and_an_issuer_are_read() {
    let rules = read(&format!(
        r#"
        [[token]]
        name = "ci"
        sha256 = "{HASH}"
        expires_at = "2030-01-01T00:00:00Z"
        grants = [{{ namespaces = ["team-a", "team-b"], roles = ["reporter"], agents = ["ci-*"] }}]

        [[certificate]]
        name = "spiffe://example.org/bridge/*"
        grants = [{{ namespaces = ["*"], roles = ["reader"] }}]

        [[issuer]]
        kubernetes = true
        [[issuer.subject]]
        name = "system:serviceaccount:*"
        grants = [{{ namespaces = ["${{/kubernetes.io/namespace}}"], roles = ["reporter"], agents = ["${{/sub}}"] }}]
        "#
    ))
    .unwrap();
    let known = rules.of_token(&TokenHash::new(b"abc")).unwrap();
    assert_eq!((known.identity.subject.as_str(), known.identity.issuer.as_str()), ("ci", "runledger"));
    assert_eq!(known.expires_at.unwrap().to_string(), "2030-01-01T00:00:00.000000Z");
    assert!(known.grants.allow(Access::Report, "team-b").is_ok() && known.grants.allow(Access::Report, "c").is_err());
    let certificate = rules.of_certificate("spiffe://example.org/bridge/7", "CN=ca").unwrap();
    assert!(certificate.grants.allow(Access::Read, "any").is_ok());
    assert!(rules.of_certificate("spiffe://example.com/bridge/7", "CN=ca").is_none());
    let claims =
        serde_json::json!({ "sub": "system:serviceaccount:team-a:x", "kubernetes.io": { "namespace": "team-a" } });
    let proof = |issuer: &str| Proof {
        issuer: issuer.into(),
        subject: "system:serviceaccount:team-a:x".into(),
        expires_at: Time::from_micros(1),
        ends_at: Time::from_micros(2),
        claims: claims.as_object().unwrap().clone(),
    };
    let subject = rules.of_proof(&proof("https://kubernetes.default.svc.cluster.local")).unwrap();
    assert_eq!(subject.expires_at, Some(Time::from_micros(1)));
    let agent = Some("system:serviceaccount:team-a:x".to_owned());
    assert_eq!(subject.grants.allow_as(Access::Report, "team-a", None).unwrap().agent_id, agent);
    assert!(subject.grants.allow(Access::Read, "team-b").is_err());
    assert!(rules.of_proof(&proof("https://elsewhere")).is_none());
}

/// The issuer of a file with one, with the lines that tell where its keys are.
fn issuer(lines: &str) -> Result<Issuer, String> {
    let subject = "[[issuer.subject]]\nname = \"*\"\ngrants = [{ namespaces = [\"*\"], roles = [\"reader\"] }]\n";
    let rules = read(&format!("[[issuer]]\n{lines}\n{subject}")).map_err(|faults| faults.join("\n"))?;
    Ok(rules.issuers()[0].issuer.clone())
}

#[test]
fn the_keys_of_an_issuer_are_in_a_file_at_a_url_where_it_says_or_in_the_cluster() {
    let (named, url) = ("issuer = \"https://a.example\"\naudience = \"b\"\n", "jwks_url = \"https://a.example/k\"");
    let trust = |ca: &str, token: &str| Trust { ca_file: Some(ca.into()), bearer_token_file: Some(token.into()) };
    let keys = |lines: &str| issuer(lines).unwrap().keys;
    assert_eq!(keys(&format!("{named}jwks_file = \"k\"")), KeySource::File("k".into()));
    let expected = KeySource::Url { url: "https://a.example/k".parse().unwrap(), trust: Trust::default() };
    assert_eq!(keys(&format!("{named}{url}")), expected);
    let expected = KeySource::Discovery { issuer: "https://a.example".parse().unwrap(), trust: trust("c", "t") };
    assert_eq!(keys(&format!("{named}ca_file = \"c\"\ntoken_file = \"t\"")), expected);
    let cluster = issuer("kubernetes = true\nca_file = \"c\"").unwrap();
    let trust = trust("c", "/var/run/secrets/kubernetes.io/serviceaccount/token");
    let url = "https://kubernetes.default.svc/openid/v1/jwks".parse().unwrap();
    assert_eq!((cluster.keys, cluster.audience), (KeySource::Url { url, trust }, vec!["runledger".to_owned()]));
    for (lines, fault) in [
        ("jwks_url = \"http://a.example/k\"", "jwks_url must begin with https://"),
        ("jwks_file = \"k\"\nkubernetes = true", "jwks_file stands alone"),
        ("jwks_url = \"https://b\"\nkubernetes = true\nca_file = \"c\"", "jwks_url needs ca_file and token_file"),
        ("jwks_url = \"https://b\"\nkubernetes = true\ntoken_file = \"c\"", "jwks_url needs ca_file and token_file"),
        ("jwks_file = \"k\"\nca_file = \"c\"", "jwks_file stands alone"),
    ] {
        let fault_found = issuer(&format!("{named}{lines}")).unwrap_err();
        assert!(fault_found.contains(fault), "{lines}: {fault_found}");
    }
    let own = issuer("issuer = \"runledger\"\naudience = \"b\"\njwks_file = \"k\"").unwrap_err();
    assert!(own.contains("issuer `runledger` is the one of this file's own tokens"), "{own}");
    let no_url = issuer("issuer = \"a\"\naudience = \"b\"").unwrap_err();
    assert!(no_url.contains("the issuer is no URL, so its keys must be named"), "{no_url}");
}

#[test]
fn everything_that_is_wrong_is_named_with_its_place() {
    let text = r#"
        [[token]]
        name = "ci"
        sha256 = "12"
        grants = [{ namespaces = [], roles = ["chief"] }]
        [[token]]
        name = ""
        sha256 = "12"
        grants = []
        [[certificate]]
        name = "*.example.org"
        grants = [{ namespaces = ["${/sub}"], roles = ["reader"] }]
        [[issuer]]
        issuer = "https://issuer"
        jwks_file = "a"
        jwks_url = "https://b"
    "#;
    let faults = faults(text);
    for fault in [
        "token 1 (`ci`): sha256",
        "token 1 (`ci`): roles: `chief` is none of",
        "token 1 (`ci`): namespaces must name one",
        "token 2: name must be",
        "certificate 1 (`*.example.org`): name must be",
        "certificate 1 (`*.example.org`): only grants of an issuer's subject",
        "issuer 1 (`https://issuer`): audience",
        "issuer 1 (`https://issuer`): jwks_file stands alone",
        "issuer 1 (`https://issuer`): [[issuer.subject]]",
    ] {
        assert!(faults.contains(fault), "{fault}\nin\n{faults}");
    }
}

#[test]
fn a_grant_for_what_can_have_no_such_name_is_refused_with_its_place() {
    let read = |namespace: &str, agent: &str| {
        let (namespace, agent) = (toml::Value::from(namespace), toml::Value::from(agent));
        let grant = format!("{{ namespaces = [\"a\", {namespace}], roles = [\"reporter\"], agents = [{agent}] }}");
        super::read(&format!("[[token]]\nname = \"ci\"\nsha256 = \"{HASH}\"\ngrants = [{grant}]"))
    };
    for (namespace, agent) in [("team-*", "ci-*"), ("*", " é A"), ("b", "*")] {
        assert!(read(namespace, agent).is_ok(), "{namespace} {agent}");
    }
    for name in [" ", "A", "a b", "é", "a.b*", "-*", "a_b", "a/"] {
        let faults = read(name, "a").unwrap_err();
        assert_eq!(
            faults,
            [format!("token 1 (`ci`): namespaces: `{name}` is the name of no namespace: one {NAME_RULE}")]
        );
    }
    for agent in ["a\0", &"a".repeat(LINK_BYTES_MAX + 1)] {
        let faults = read("a", agent).unwrap_err().join("");
        assert!(faults.starts_with("token 1 (`ci`): agents: ") && faults.contains("of no agent"), "{faults}");
    }
}

#[test]
fn an_unknown_key_is_refused_with_its_line() {
    let text = "[[token]]\nname = \"ci\"\nsha = \"12\"\ngrants = []\n";
    let faults = faults(text);
    assert!(faults.contains("line 3") && faults.contains("sha"), "{faults}");
}

#[test]
fn a_reporters_grant_says_as_which_agents() {
    let text = |agents: &str| {
        format!(
            "[[token]]\nname = \"a\"\nsha256 = \"{HASH}\"\ngrants = [{{ namespaces = [\"*\"], roles = [\"reporter\"]{agents} }}]"
        )
    };
    assert!(faults(&text("")).contains("must say as which agents"));
    assert!(read(&text(", agents = [\"*\"]")).is_ok());
}

#[test]
fn a_token_is_given_once() {
    let one = format!(
        "[[token]]\nname = \"a\"\nsha256 = \"{HASH}\"\ngrants = [{{ namespaces = [\"*\"], roles = [\"reader\"] }}]\n"
    );
    assert!(faults(&format!("{one}{one}")).contains("another token has the same sha256"));
}

#[test]
fn the_access_files_of_the_page_are_read() {
    let page = include_str!("../../../docs/identity.md");
    let files: Vec<&str> = page.split("```toml\n").skip(1).map(|rest| rest.split("```").next().unwrap()).collect();
    assert_eq!(files.len(), 2);
    for file in files {
        if let Err(faults) = read(file) {
            panic!("{faults:?}\nin\n{file}");
        }
    }
}

#[test]
fn a_token_that_stands_where_its_hash_belongs_is_not_shown() {
    for wrong in ["token = \"rl_SECRET\"", "sha256 = rl_SECRET", "sha256 = \"rl_SECRET\""] {
        let text = format!("[[token]]\nname = \"ci\"\n{wrong}\ngrants = []\n");
        let faults = read(&text).unwrap_err().join("\n");
        assert!(!faults.contains("SECRET"), "{faults}");
    }
}
