//! Who makes a call, by its metadata. Believed, not proven: it keeps honest agents apart, not hostile ones.

use tonic::metadata::{Ascii, MetadataMap, MetadataValue};

use crate::domain::ids::DEFAULT_NAMESPACE;
use crate::domain::limits::LINK_BYTES_MAX;
use crate::domain::{Principal, Violation};

/// The header that names the acting agent.
pub const AGENT_ID_HEADER: &str = "runledger-agent-id";
/// The header that names the namespace.
pub const NAMESPACE_HEADER: &str = "runledger-namespace";

/// Who makes a call, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The namespace that the call is for.
    pub namespace: String,
    /// Who asks.
    pub principal: Principal,
}

/// The caller that a call's metadata names.
///
/// # Errors
///
/// Every header that breaks its rule.
pub fn caller(metadata: &MetadataMap) -> Result<Caller, Vec<Violation>> {
    let principal = principal(metadata);
    let namespace = namespace(metadata);
    match (principal, namespace) {
        (Ok(principal), Ok(namespace)) => Ok(Caller { namespace, principal }),
        (principal, namespace) => Err(principal.err().into_iter().chain(namespace.err()).collect()),
    }
}

fn principal(metadata: &MetadataMap) -> Result<Principal, Violation> {
    let mut values = metadata.get_all(AGENT_ID_HEADER).iter();
    match (values.next(), values.next()) {
        (None, _) => Ok(Principal::anonymous()),
        (Some(_), Some(_)) => Err(Violation::new(AGENT_ID_HEADER, "name one acting agent: the header came twice")),
        (Some(value), None) => agent_id(value).map(Principal::claimed).ok_or_else(|| {
            Violation::new(
                AGENT_ID_HEADER,
                format!("must be 1 to {LINK_BYTES_MAX} visible ASCII characters, no spaces"),
            )
        }),
    }
}

fn agent_id(value: &MetadataValue<Ascii>) -> Option<String> {
    let bytes = value.as_bytes();
    let text = std::str::from_utf8(bytes).ok()?;
    ((1..=LINK_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)).then(|| text.to_owned())
}

fn namespace(metadata: &MetadataMap) -> Result<String, Violation> {
    if metadata.get_all(NAMESPACE_HEADER).iter().all(|value| value.as_bytes() == DEFAULT_NAMESPACE.as_bytes()) {
        Ok(DEFAULT_NAMESPACE.to_owned())
    } else {
        Err(Violation::new(NAMESPACE_HEADER, format!("only the namespace `{DEFAULT_NAMESPACE}` exists")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::PrincipalKind;

    fn metadata(headers: &[(&'static str, &[u8])]) -> MetadataMap {
        let mut map = http::HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, http::HeaderValue::from_bytes(value).unwrap());
        }
        MetadataMap::from_headers(map)
    }

    #[test]
    fn a_caller_that_names_nobody_is_anonymous_in_the_default_namespace() {
        let caller = caller(&metadata(&[])).unwrap();
        assert_eq!(caller, Caller { namespace: "default".into(), principal: Principal::anonymous() });
        assert_eq!(super::caller(&metadata(&[(NAMESPACE_HEADER, b"default")])).unwrap(), caller);
    }

    #[test]
    fn an_agent_named_in_the_header_is_claimed() {
        let longest = [b'~'; LINK_BYTES_MAX];
        for value in [b"a".as_slice(), b"agent-7/x", &longest] {
            let principal = caller(&metadata(&[(AGENT_ID_HEADER, value)])).unwrap().principal;
            assert_eq!(principal.kind, PrincipalKind::Claimed);
            assert_eq!(principal.agent_id.unwrap().as_bytes(), value);
        }
    }

    #[test]
    fn an_agent_that_cannot_be_told_is_refused() {
        let too_long = [b'a'; LINK_BYTES_MAX + 1];
        for value in [b"".as_slice(), b"a b", b"a\tb", "agént".as_bytes(), b"\xff", &too_long] {
            let violations = caller(&metadata(&[(AGENT_ID_HEADER, value)])).unwrap_err();
            assert_eq!(violations.len(), 1, "{value:?}");
            assert_eq!(violations[0].field, AGENT_ID_HEADER);
        }
        let twice = caller(&metadata(&[(AGENT_ID_HEADER, b"a"), (AGENT_ID_HEADER, b"a")])).unwrap_err();
        assert_eq!(twice[0].field, AGENT_ID_HEADER);
    }

    #[test]
    fn both_headers_are_complained_of_in_one_answer() {
        let violations = caller(&metadata(&[(AGENT_ID_HEADER, b""), (NAMESPACE_HEADER, b"other")])).unwrap_err();
        let fields: Vec<_> = violations.iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(fields, [AGENT_ID_HEADER, NAMESPACE_HEADER]);
        assert_eq!(violations[1].description, "only the namespace `default` exists");
    }
}
