//! The rules of an access file: from a proven name to what was granted to it.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::grant::is_name;
use super::jwt::{Issuer, Proof};
use super::template::{Template, claim};
use super::token::TokenHash;
use super::{Grant, Grants, Role};
use crate::domain::limits::{ISSUER_BYTES_MAX, SUBJECT_BYTES_MAX};
use crate::domain::{Identity, Pattern, Time};

/// The issuer of the tokens of an access file, as events name it.
pub const TOKEN_ISSUER: &str = "runledger";

/// A token, by its hash.
#[derive(Clone, Debug)]
pub struct TokenRule {
    /// The name of whoever holds the token. Several tokens may have one name, as while one replaces another.
    pub name: String,
    /// The token's hash.
    pub hash: TokenHash,
    /// The time from which on the token is no longer taken.
    pub expires_at: Option<Time>,
    /// What was granted.
    pub grants: Grants,
}

/// Client certificates, by their name.
#[derive(Clone, Debug)]
pub struct CertificateRule {
    /// The names.
    pub name: Pattern,
    /// What was granted.
    pub grants: Grants,
}

/// An issuer of signed tokens.
#[derive(Clone, Debug)]
pub struct IssuerRule {
    /// The issuer, and what its tokens must have.
    pub issuer: Issuer,
    /// What is granted to whom.
    pub subjects: Vec<SubjectRule>,
}

/// What is granted to subjects of an issuer.
#[derive(Clone, Debug)]
pub struct SubjectRule {
    /// The subjects.
    pub name: Pattern,
    /// Claims that the token must have, by their JSON pointers.
    pub claims: Vec<(String, String)>,
    /// What is granted, by the token's claims.
    pub(super) grants: Vec<GrantTemplate>,
}

/// A grant whose names may come from a token's claims.
#[derive(Clone, Debug)]
pub(super) struct GrantTemplate {
    pub(super) namespaces: Vec<Template>,
    pub(super) roles: Vec<Role>,
    pub(super) agents: Vec<Template>,
}

impl GrantTemplate {
    /// The grant, where it needs no claim.
    pub(super) fn plain(&self) -> Option<Grant> {
        let patterns = |templates: &[Template]| templates.iter().map(Template::plain).collect::<Option<Vec<_>>>();
        Some(Grant {
            namespaces: patterns(&self.namespaces)?,
            roles: self.roles.clone(),
            agents: patterns(&self.agents)?.into(),
        })
    }

    /// The grant by these claims. A name whose claim is missing is left out.
    fn fill(&self, claims: &Map<String, Value>) -> Grant {
        let patterns = |templates: &[Template]| -> Vec<Pattern> {
            templates.iter().filter_map(|template| template.fill(claims)).collect()
        };
        Grant {
            namespaces: patterns(&self.namespaces),
            roles: self.roles.clone(),
            agents: patterns(&self.agents).into(),
        }
    }
}

/// Somebody who is known by a credential.
#[derive(Clone, Debug)]
pub struct Known {
    /// The proven identity.
    pub identity: Arc<Identity>,
    /// What was granted.
    pub grants: Grants,
    /// The time from which on the credential is no longer taken.
    pub expires_at: Option<Time>,
}

/// The rules of an access file.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    tokens: HashMap<TokenHash, Known>,
    certificates: Vec<CertificateRule>,
    issuers: Vec<IssuerRule>,
}

impl Rules {
    pub(super) fn new(tokens: Vec<TokenRule>, certificates: Vec<CertificateRule>, issuers: Vec<IssuerRule>) -> Self {
        let known = |rule: TokenRule| {
            let identity = Arc::new(Identity { subject: rule.name, issuer: TOKEN_ISSUER.to_owned() });
            (rule.hash, Known { identity, grants: rule.grants, expires_at: rule.expires_at })
        };
        Self { tokens: tokens.into_iter().map(known).collect(), certificates, issuers }
    }

    /// Whoever holds the token with this hash.
    #[must_use]
    pub fn of_token(&self, hash: &TokenHash) -> Option<&Known> {
        self.tokens.get(hash)
    }

    /// Whoever has a certificate with this name: the grants of every rule that its name matches.
    #[must_use]
    pub fn of_certificate(&self, name: &str, issuer: &str) -> Option<Known> {
        if !is_name(name, SUBJECT_BYTES_MAX) || !is_name(issuer, ISSUER_BYTES_MAX) {
            return None;
        }
        let rules: Vec<_> = self.certificates.iter().filter(|rule| rule.name.matches(name)).collect();
        let identity = || Arc::new(Identity { subject: name.to_owned(), issuer: issuer.to_owned() });
        let grants = || rules.iter().flat_map(|rule| rule.grants.iter().cloned()).collect();
        (!rules.is_empty()).then(|| Known { identity: identity(), grants: Grants::new(grants()), expires_at: None })
    }

    /// Whoever a token of an issuer has proven: the grants of every rule that its subject and its claims match.
    #[must_use]
    pub fn of_proof(&self, proof: &Proof) -> Option<Known> {
        let Proof { issuer, subject, claims, expires_at, .. } = proof;
        if !is_name(subject, SUBJECT_BYTES_MAX) {
            return None;
        }
        let rule = self.issuers.iter().find(|rule| rule.issuer.issuer == *issuer)?;
        let has = |(pointer, value): &(String, String)| claim(claims, pointer) == Some(value);
        let matching = |subjects: &&SubjectRule| subjects.name.matches(subject) && subjects.claims.iter().all(has);
        let rules: Vec<_> = rule.subjects.iter().filter(matching).collect();
        let identity = || Arc::new(Identity { subject: (**subject).to_owned(), issuer: (**issuer).to_owned() });
        let grants = || rules.iter().flat_map(|rule| &rule.grants).map(|grant| grant.fill(claims)).collect();
        let known = || Known { identity: identity(), grants: Grants::new(grants()), expires_at: Some(*expires_at) };
        (!rules.is_empty()).then(known)
    }

    /// Whether tokens by their hash are taken.
    #[must_use]
    pub fn has_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Whether client certificates name callers.
    #[must_use]
    pub fn has_certificates(&self) -> bool {
        !self.certificates.is_empty()
    }

    /// The issuers whose signed tokens are taken.
    #[must_use]
    pub fn issuers(&self) -> &[IssuerRule] {
        &self.issuers
    }

    /// All tokens: name, hash, end.
    pub fn tokens(&self) -> impl Iterator<Item = (&TokenHash, &Known)> {
        self.tokens.iter()
    }
}
