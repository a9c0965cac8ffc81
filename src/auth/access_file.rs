//! The access file: who has which credential, and what was granted to it. TOML; the reference is `docs/identity.md`.

mod issuers;

use serde::{Deserialize, Deserializer, de::Error as _};

use self::issuers::{IssuerEntry, issuer};
use super::grant::is_name;
use super::rules::{CertificateRule, GrantTemplate, Rules, TokenRule};
use super::template::Template;
use super::token::TokenHash;
use super::{Grant, Grants, Role};
use crate::domain::limits::{LINK_BYTES_MAX, SUBJECT_BYTES_MAX};
use crate::domain::namespace::{self, NAME_RULE};
use crate::domain::{Pattern, Time};
use crate::text;

/// Bytes of an access file.
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The issuer that a cluster most often is: the name by which a file is read elsewhere than in the cluster.
const A_CLUSTER: &str = "https://kubernetes.default.svc.cluster.local";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    token: Vec<Token>,
    #[serde(default)]
    certificate: Vec<Certificate>,
    #[serde(default)]
    issuer: Vec<IssuerEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Token {
    name: String,
    sha256: String,
    #[serde(default, deserialize_with = "end")]
    expires_at: Option<Time>,
    grants: Vec<RawGrant>,
}

/// The time after which a token is no longer taken.
fn end<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Time>, D::Error> {
    text::time(&String::deserialize(from)?).map(Some).map_err(D::Error::custom)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Certificate {
    name: String,
    grants: Vec<RawGrant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawGrant {
    namespaces: Vec<String>,
    roles: Vec<String>,
    agents: Option<Vec<String>>,
}

/// Reads an access file's text where nobody is let in by it: nothing but the text is looked at.
///
/// # Errors
///
/// Everything that is wrong, each with the place where it stands. No secret is shown: the file has none.
pub fn read(text: &str) -> Result<Rules, Vec<String>> {
    read_in(text, Some(A_CLUSTER))
}

/// Reads an access file's text where callers are let in by it. The pod's own token tells the issuer that the cluster
/// is, where the text does not: so a small file may be read, which blocks.
///
/// # Errors
///
/// See [`read`].
pub(super) fn read_to_serve(text: &str) -> Result<Rules, Vec<String>> {
    read_in(text, None)
}

fn read_in(text: &str, cluster: Option<&str>) -> Result<Rules, Vec<String>> {
    let file: File = toml::from_str(text).map_err(|error| vec![malformed(text, &error)])?;
    let mut faults = Faults::default();
    let tokens = faults.each("token", file.token, token);
    let certificates = faults.each("certificate", file.certificate, certificate);
    let issuers = faults.each("issuer", file.issuer, |place, raw| issuer(place, raw, cluster));
    for (index, rule) in tokens.iter().enumerate() {
        if tokens[..index].iter().any(|other| other.hash == rule.hash) {
            faults.add(&format!("token `{}`", rule.name), "another token has the same sha256");
        }
    }
    for (index, rule) in issuers.iter().enumerate() {
        let name = &rule.issuer.issuer;
        if issuers[..index].iter().any(|other| other.issuer.issuer == *name) {
            faults.add(&format!("issuer `{name}`"), "is given twice");
        }
    }
    if faults.0.is_empty() { Ok(Rules::new(tokens, certificates, issuers)) } else { Err(faults.0) }
}

/// A fault of the text as a whole, and its line. The parser's own words show the line itself, which may hold a token that
/// should not be there.
fn malformed(text: &str, error: &toml::de::Error) -> String {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    format!("line {}: {}", before.matches('\n').count() + 1, error.message().lines().next().unwrap_or_default())
}

/// The pattern of namespaces that a text stands for.
fn of_namespaces(text: &str) -> Result<Template, String> {
    let template = Template::parse(text)?;
    let refused = || format!("`{text}` is the name of no namespace: one {NAME_RULE}");
    template.may_match(namespace::is_name).then_some(template).ok_or_else(refused)
}

/// The pattern of agents that a text stands for.
fn of_agents(text: &str) -> Result<Template, String> {
    let template = Template::parse(text)?;
    let is_id = |id: &str| (1..=LINK_BYTES_MAX).contains(&id.len()) && !id.contains('\0');
    let refused = || format!("`{text}` is the id of no agent: one has 1 to {LINK_BYTES_MAX} bytes without U+0000");
    template.may_match(is_id).then_some(template).ok_or_else(refused)
}

/// A pattern of namespaces for an access file, as it is written.
///
/// # Errors
///
/// What is wrong with it.
pub fn namespaces(text: &str) -> Result<String, String> {
    of_namespaces(text).map(|_template| text.to_owned())
}

/// A pattern of agents for an access file, as it is written.
///
/// # Errors
///
/// What is wrong with it.
pub fn agents(text: &str) -> Result<String, String> {
    of_agents(text).map(|_template| text.to_owned())
}

#[derive(Default)]
struct Faults(Vec<String>);

impl Faults {
    fn add(&mut self, place: &str, fault: &str) {
        self.0.push(format!("{place}: {fault}"));
    }

    /// Reads each entry of a table, and remembers what is wrong with which.
    fn each<T, R>(
        &mut self,
        kind: &str,
        entries: Vec<T>,
        read: impl Fn(&mut FaultPlace<'_>, T) -> Option<R>,
    ) -> Vec<R> {
        let mut found = Vec::with_capacity(entries.len());
        for (index, entry) in entries.into_iter().enumerate() {
            let mut place = FaultPlace { faults: self, name: format!("{kind} {}", index + 1) };
            found.extend(read(&mut place, entry));
        }
        found
    }
}

/// A place in the file, for what is wrong there.
struct FaultPlace<'a> {
    faults: &'a mut Faults,
    name: String,
}

impl FaultPlace<'_> {
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
        let namespaces = self.templates("namespaces", &raw.namespaces, of_namespaces);
        let agents = self.templates("agents", raw.agents.as_deref().unwrap_or_default(), of_agents);
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
        let is_for_all = roles.iter().any(|role| role.operates());
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

    fn templates(
        &mut self,
        field: &str,
        texts: &[String],
        read: impl Fn(&str) -> Result<Template, String>,
    ) -> Option<Vec<Template>> {
        let before = self.faults.0.len();
        let mut templates = Vec::with_capacity(texts.len());
        for text in texts {
            match read(text) {
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

fn token(place: &mut FaultPlace<'_>, raw: Token) -> Option<TokenRule> {
    place.name(&raw.name, SUBJECT_BYTES_MAX)?;
    let hash = match TokenHash::parse(&raw.sha256) {
        Some(hash) => Some(hash),
        None => place.wrong("sha256 must be 64 hexadecimal digits, as `runledger token new` prints them"),
    };
    let grants = place.plain(&raw.grants);
    Some(TokenRule { name: raw.name, hash: hash?, expires_at: raw.expires_at, grants: grants? })
}

#[expect(clippy::needless_pass_by_value, reason = "all kinds of entries are read alike")]
fn certificate(place: &mut FaultPlace<'_>, raw: Certificate) -> Option<CertificateRule> {
    place.name(&raw.name, SUBJECT_BYTES_MAX)?;
    let name = match Pattern::parse(&raw.name) {
        Some(pattern) => Some(pattern),
        None => place.wrong("name must be a certificate's name, or name*"),
    };
    let grants = place.plain(&raw.grants);
    Some(CertificateRule { name: name?, grants: grants? })
}

#[cfg(test)]
mod tests;
