//! The access file: who has which credential, and what was granted to it. TOML; the reference is `docs/identity.md`.

use std::path::PathBuf;

use serde::Deserialize;

use super::rules::{CertificateRule, GrantTemplate, IssuerRule, KeySource, Rules, SubjectRule, TokenRule, is_name};
use super::template::Template;
use super::token::TokenHash;
use super::{Grant, Grants, Role};
use crate::domain::limits::{ISSUER_BYTES_MAX, SUBJECT_BYTES_MAX};
use crate::domain::{Pattern, Time};

/// Bytes of an access file.
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Token>,
    #[serde(default)]
    certificate: Vec<Certificate>,
    #[serde(default)]
    issuer: Vec<Issuer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    name: String,
    sha256: String,
    expires_at: Option<Time>,
    grants: Vec<RawGrant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Certificate {
    name: String,
    grants: Vec<RawGrant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Issuer {
    #[serde(rename = "issuer")]
    name: Option<String>,
    audience: Option<OneOrMore>,
    #[serde(default)]
    kubernetes: bool,
    jwks_file: Option<PathBuf>,
    jwks_url: Option<String>,
    ca_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
    #[serde(default)]
    subject: Vec<Subject>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Subject {
    name: String,
    #[serde(default)]
    claims: std::collections::BTreeMap<String, String>,
    grants: Vec<RawGrant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGrant {
    namespaces: Vec<String>,
    roles: Vec<String>,
    agents: Option<Vec<String>>,
}

/// Reads an access file's text.
///
/// # Errors
///
/// Everything that is wrong, each with the place where it stands. No secret is shown: the file has none.
pub fn read(text: &str) -> Result<Rules, Vec<String>> {
    let file: File = toml::from_str(text).map_err(|error| vec![error.to_string().trim_end().to_owned()])?;
    let mut faults = Faults::default();
    let tokens = faults.each("token", file.token, token);
    let certificates = faults.each("certificate", file.certificate, certificate);
    let issuers = faults.each("issuer", file.issuer, issuer);
    for (index, rule) in tokens.iter().enumerate() {
        if tokens[..index].iter().any(|other| other.hash == rule.hash) {
            faults.add(&format!("token `{}`", rule.name), "another token has the same sha256");
        }
    }
    for (index, rule) in issuers.iter().enumerate() {
        if issuers[..index].iter().any(|other| other.issuer == rule.issuer) {
            faults.add(&format!("issuer `{}`", rule.issuer), "is given twice");
        }
    }
    if faults.0.is_empty() { Ok(Rules::new(tokens, certificates, issuers)) } else { Err(faults.0) }
}

#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn add(&mut self, place: &str, fault: &str) {
        self.0.push(format!("{place}: {fault}"));
    }

    /// Reads each entry of a table, and remembers what is wrong with which.
    fn each<T, R>(&mut self, kind: &str, entries: Vec<T>, read: impl Fn(&mut Place<'_>, T) -> Option<R>) -> Vec<R> {
        let mut found = Vec::with_capacity(entries.len());
        for (index, entry) in entries.into_iter().enumerate() {
            let mut place = Place { faults: self, name: format!("{kind} {}", index + 1) };
            found.extend(read(&mut place, entry));
        }
        found
    }
}

/// A place in the file, for what is wrong there.
struct Place<'a> {
    faults: &'a mut Faults,
    name: String,
}

impl Place<'_> {
    fn wrong<T>(&mut self, fault: impl AsRef<str>) -> Option<T> {
        self.faults.add(&self.name, fault.as_ref());
        None
    }

    fn name(&mut self, name: &str, bytes_max: usize) -> Option<()> {
        if !is_name(name, bytes_max) {
            return self.wrong(format!("name must be 1 to {bytes_max} bytes without control characters"));
        }
        self.name = format!("{} (`{name}`)", self.name);
        Some(())
    }

    fn grants(&mut self, raw: &[RawGrant]) -> Option<Vec<GrantTemplate>> {
        if raw.is_empty() {
            return self.wrong("grants must have one grant at least");
        }
        let before = self.faults.0.len();
        let grants = raw.iter().filter_map(|raw| self.grant(raw)).collect();
        (self.faults.0.len() == before).then_some(grants)
    }

    fn grant(&mut self, raw: &RawGrant) -> Option<GrantTemplate> {
        let namespaces = self.templates("namespaces", &raw.namespaces);
        let agents = self.templates("agents", raw.agents.as_deref().unwrap_or_default());
        let mut roles = Vec::new();
        for role in &raw.roles {
            match role.as_str() {
                "reader" => roles.push(Role::Reader),
                "reporter" => roles.push(Role::Reporter),
                "operator" => roles.push(Role::Operator),
                "admin" => roles.push(Role::Admin),
                other => {
                    self.wrong::<()>(format!("roles: `{other}` is none of reader, reporter, operator, admin"));
                }
            }
        }
        if raw.namespaces.is_empty() {
            self.wrong::<()>("namespaces must name one at least: a name, name* or *");
        }
        if raw.roles.is_empty() {
            self.wrong::<()>("roles must name one at least: reader, reporter, operator or admin");
        }
        let is_for_all = roles.iter().any(|role| role.reaches_all());
        let agents = match (raw.agents.is_some(), is_for_all) {
            (true, _) => agents?,
            (false, true) => vec![Template::parse("*").ok()?],
            (false, false) if roles.contains(&Role::Reporter) => {
                return self.wrong("a reporter's grant must say as which agents: agents = [\"*\"] for all");
            }
            (false, false) => Vec::new(),
        };
        Some(GrantTemplate { namespaces: namespaces?, roles, agents })
    }

    fn templates(&mut self, field: &str, texts: &[String]) -> Option<Vec<Template>> {
        let before = self.faults.0.len();
        let mut templates = Vec::with_capacity(texts.len());
        for text in texts {
            match Template::parse(text) {
                Ok(template) => templates.push(template),
                Err(expected) => {
                    self.wrong::<()>(format!("{field}: {expected}"));
                }
            }
        }
        (self.faults.0.len() == before).then_some(templates)
    }

    /// Grants that need no claims.
    fn plain(&mut self, raw: &[RawGrant]) -> Option<Grants> {
        let templates = self.grants(raw)?;
        let grants: Option<Vec<Grant>> = templates.iter().map(GrantTemplate::plain).collect();
        match grants {
            Some(grants) => Some(Grants::new(grants)),
            None => self.wrong("only grants of an issuer's subject take ${/claims}"),
        }
    }
}

fn token(place: &mut Place<'_>, raw: Token) -> Option<TokenRule> {
    place.name(&raw.name, SUBJECT_BYTES_MAX)?;
    let hash = match TokenHash::parse(&raw.sha256) {
        Some(hash) => Some(hash),
        None => place.wrong("sha256 must be 64 hexadecimal digits, as `runledger token new` prints them"),
    };
    let grants = place.plain(&raw.grants);
    Some(TokenRule { name: raw.name, hash: hash?, expires_at: raw.expires_at, grants: grants? })
}

#[expect(clippy::needless_pass_by_value, reason = "all kinds of entries are read alike")]
fn certificate(place: &mut Place<'_>, raw: Certificate) -> Option<CertificateRule> {
    place.name(&raw.name, SUBJECT_BYTES_MAX)?;
    let name = match Pattern::parse(&raw.name) {
        Some(pattern) => Some(pattern),
        None => place.wrong("name must be a certificate's name, or name*"),
    };
    let grants = place.plain(&raw.grants);
    Some(CertificateRule { name: name?, grants: grants? })
}

fn issuer(place: &mut Place<'_>, raw: Issuer) -> Option<IssuerRule> {
    let issuer = match (raw.name, raw.kubernetes) {
        (Some(issuer), _) => issuer,
        (None, true) => "https://kubernetes.default.svc.cluster.local".to_owned(),
        (None, false) => return place.wrong("issuer must be the `iss` of its tokens"),
    };
    if !is_name(&issuer, ISSUER_BYTES_MAX) {
        return place.wrong(format!("issuer must be 1 to {ISSUER_BYTES_MAX} bytes without control characters"));
    }
    place.name = format!("{} (`{issuer}`)", place.name);
    let audience = match raw.audience {
        Some(OneOrMore::One(audience)) => vec![audience],
        Some(OneOrMore::More(audience)) => audience,
        None if raw.kubernetes => vec!["runledger".to_owned()],
        None => Vec::new(),
    };
    if audience.is_empty() || audience.iter().any(String::is_empty) {
        place.wrong::<()>("audience must name one at least: tokens for others are refused by it");
    }
    let keys = match (raw.jwks_file, raw.jwks_url, raw.kubernetes) {
        (Some(file), None, false) if raw.ca_file.is_none() && raw.token_file.is_none() => Some(KeySource::File(file)),
        (None, url, true) => Some(KeySource::Kubernetes { url, ca_file: raw.ca_file, token_file: raw.token_file }),
        (None, url, false) => Some(KeySource::Url { url, ca_file: raw.ca_file, token_file: raw.token_file }),
        (Some(_), ..) => place.wrong("jwks_file stands alone: without jwks_url, kubernetes, ca_file and token_file"),
    };
    if raw.subject.is_empty() {
        place.wrong::<()>("[[issuer.subject]] must be given once at least: nobody would be let in");
    }
    let before = place.faults.0.len();
    let subjects = raw.subject.into_iter().filter_map(|raw| subject(place, raw)).collect();
    (place.faults.0.len() == before).then_some(())?;
    Some(IssuerRule { issuer, audience, keys: keys?, subjects })
}

fn subject(place: &mut Place<'_>, raw: Subject) -> Option<SubjectRule> {
    let name = match Pattern::parse(&raw.name) {
        Some(pattern) => Some(pattern),
        None => place.wrong(format!("subject `{}`: expected a name, name* or *", raw.name)),
    };
    for pointer in raw.claims.keys().filter(|pointer| !pointer.starts_with('/')) {
        place.wrong::<()>(format!("claims: `{pointer}` is no JSON pointer, such as /kubernetes.io/namespace"));
    }
    let grants = place.grants(&raw.grants);
    Some(SubjectRule { name: name?, claims: raw.claims.into_iter().collect(), grants: grants? })
}

#[cfg(test)]
mod tests;
