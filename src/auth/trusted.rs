//! What credentials are held against: the rules of the access file, and the keys of its issuers.

use std::sync::Arc;

use super::jwt::{BadIssuers, Jwts};
use super::rules::{IssuerRule, Rules};
use crate::clock::Clock;

/// See the module.
#[derive(Debug)]
pub struct Trusted {
    rules: Rules,
    jwts: Arc<Jwts>,
}

impl Trusted {
    /// The rules, and nothing of the keys of their issuers.
    ///
    /// # Errors
    ///
    /// The issuers cannot be used together.
    pub fn new(rules: Rules, clock: Arc<dyn Clock>) -> Result<Self, BadIssuers> {
        let issuers = rules.issuers().iter().map(|rule| rule.issuer.clone()).collect();
        Ok(Self { jwts: Arc::new(Jwts::new(issuers, clock)?), rules })
    }

    /// Other rules, with what is known of those issuers that stay.
    ///
    /// # Errors
    ///
    /// The issuers cannot be used together.
    pub fn renewed(&self, rules: Rules) -> Result<Self, BadIssuers> {
        let issuers = || rules.issuers().iter().map(|IssuerRule { issuer, .. }| issuer);
        let jwts = if self.jwts.issuers().eq(issuers()) {
            Arc::clone(&self.jwts)
        } else {
            Arc::new(self.jwts.renewed(issuers().cloned().collect())?)
        };
        Ok(Self { rules, jwts })
    }

    #[must_use]
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Those who verify signed tokens. Their keys must be followed.
    #[must_use]
    pub fn jwts(&self) -> &Arc<Jwts> {
        &self.jwts
    }
}
