//! The issuers of an access file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::{FaultPlace, RawGrant};
use crate::auth::grant::is_name;
use crate::auth::jwks::{KeySource, KeyUrl, Trust};
use crate::auth::jwt::{AUDIENCE, Issuer, SERVICE_ACCOUNT};
use crate::auth::rules::{IssuerRule, SubjectRule, TOKEN_ISSUER};
use crate::domain::Pattern;
use crate::domain::limits::ISSUER_BYTES_MAX;
use crate::telemetry::chain;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct IssuerEntry {
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
    claims: BTreeMap<String, String>,
    grants: Vec<RawGrant>,
}

pub(super) fn issuer(place: &mut FaultPlace<'_>, raw: IssuerEntry, cluster: Option<&str>) -> Option<IssuerRule> {
    let named = raw.name.as_deref().or(if raw.kubernetes { cluster } else { None });
    if named.is_none() && !raw.kubernetes {
        return place.wrong("issuer must be the `iss` of its tokens");
    }
    if named.is_some_and(|name| !is_name(name, ISSUER_BYTES_MAX)) {
        return place.wrong(format!("issuer must be 1 to {ISSUER_BYTES_MAX} bytes without control characters"));
    }
    if named == Some(TOKEN_ISSUER) {
        return place.wrong(format!("issuer `{TOKEN_ISSUER}` is the one of this file's own tokens"));
    }
    if let Some(name) = named {
        place.name = format!("{} (`{name}`)", place.name);
    }
    let audience = match raw.audience {
        Some(OneOrMore::One(audience)) => vec![audience],
        Some(OneOrMore::More(audience)) => audience,
        None if raw.kubernetes => vec![AUDIENCE.to_owned()],
        None => Vec::new(),
    };
    if audience.is_empty() || audience.iter().any(String::is_empty) {
        place.wrong::<()>("audience must name one at least: tokens for others are refused by it");
    }
    let keys = Keys { file: raw.jwks_file, url: raw.jwks_url, ca_file: raw.ca_file, token_file: raw.token_file };
    let issuer = keys.of_issuer(place, named, raw.kubernetes, audience);
    if raw.subject.is_empty() {
        place.wrong::<()>("[[issuer.subject]] must be given once at least: nobody would be let in");
    }
    let before = place.faults.0.len();
    let subjects = raw.subject.into_iter().filter_map(|raw| subject(place, raw)).collect();
    (place.faults.0.len() == before).then_some(())?;
    Some(IssuerRule { issuer: issuer?, subjects })
}

/// The place of an issuer's keys, as it is written.
struct Keys {
    file: Option<PathBuf>,
    url: Option<String>,
    ca_file: Option<PathBuf>,
    token_file: Option<PathBuf>,
}

impl Keys {
    fn of_issuer(
        self,
        place: &mut FaultPlace<'_>,
        name: Option<&str>,
        is_cluster: bool,
        audience: Vec<String>,
    ) -> Option<Issuer> {
        let Self { file, url, ca_file, token_file } = self;
        let is_alone = url.is_none() && ca_file.is_none() && token_file.is_none() && !is_cluster;
        let url = match url.map(|url| url.parse::<KeyUrl>()) {
            Some(Err(error)) => return place.wrong(format!("jwks_url {error}")),
            Some(Ok(url)) => Some(url),
            None => None,
        };
        let trust = Trust { ca_file, bearer_token_file: token_file };
        let made = match (file, url, name) {
            (Some(_), ..) if !is_alone => {
                return place.wrong("jwks_file stands alone: without jwks_url, kubernetes, ca_file and token_file");
            }
            // What a URL is asked for with is told by whoever names it: the pod's own token is for its cluster alone.
            (None, Some(_), _) if is_cluster && (trust.ca_file.is_none() || trust.bearer_token_file.is_none()) => {
                return place.wrong("jwks_url needs ca_file and token_file beside kubernetes");
            }
            (None, url, name) if is_cluster => {
                let cluster = Issuer::cluster(name, Path::new(SERVICE_ACCOUNT), trust, url);
                cluster.map(|cluster| Issuer { audience, ..cluster })
            }
            (Some(file), _, name) => Ok(Issuer::new(name?, audience, KeySource::File(file))),
            (None, Some(url), name) => Ok(Issuer::new(name?, audience, KeySource::Url { url, trust })),
            (None, None, name) => Issuer::discovered(name?, audience, trust),
        };
        match made {
            Ok(issuer) if is_name(&issuer.issuer, ISSUER_BYTES_MAX) => Some(issuer),
            Ok(_) => place.wrong("the pod's own token names an issuer that cannot be used: name the issuer"),
            Err(error) => place.wrong(chain(&error)),
        }
    }
}

fn subject(place: &mut FaultPlace<'_>, raw: Subject) -> Option<SubjectRule> {
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
