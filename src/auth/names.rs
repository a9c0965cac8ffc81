//! The names that a call's headers give: the acting agent, the namespace.

use base64::Engine as _;
use base64::engine::general_purpose::GeneralPurpose;
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};
use http::HeaderMap;
use runledger_proto::headers::{
    AGENT_ID as AGENT_ID_HEADER, AGENT_ID_BIN as AGENT_ID_BIN_HEADER, NAMESPACE as NAMESPACE_HEADER,
};

use crate::domain::ids::DEFAULT_NAMESPACE;
use crate::domain::limits::LINK_BYTES_MAX;
use crate::domain::namespace::{NAME_RULE, is_name};
use crate::domain::{Namespace, Violation};

/// Headers in base64 come with padding or without.
const ANY_PADDING: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The names that a call's headers give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) namespace: Namespace,
    pub(super) agent: Option<String>,
}

impl Names {
    /// The names in these headers. Every header that breaks its rule is told.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, Vec<Violation>> {
        match (agent(headers), namespace(headers)) {
            (Ok(agent), Ok(namespace)) => Ok(Self { namespace, agent }),
            (agent, namespace) => Err(agent.err().into_iter().chain(namespace.err()).collect()),
        }
    }

    /// The names of a call that concerns no run.
    pub(super) fn none() -> Self {
        Self { namespace: Namespace::only(), agent: None }
    }
}

/// The acting agent that a call names, if it names one.
///
/// # Errors
///
/// The header that breaks its rule.
pub fn agent(headers: &HeaderMap) -> Result<Option<String>, Violation> {
    let text = at_most_once(AGENT_ID_HEADER, headers.get_all(AGENT_ID_HEADER).iter())?;
    let binary = at_most_once(AGENT_ID_BIN_HEADER, headers.get_all(AGENT_ID_BIN_HEADER).iter())?;
    match (text, binary) {
        (None, None) => Ok(None),
        (Some(text), None) => visible(text.as_bytes()).map(Some),
        (None, Some(binary)) => any(ANY_PADDING.decode(binary.as_bytes()).ok().as_deref()).map(Some),
        (Some(_), Some(_)) => {
            Err(Violation::new(AGENT_ID_BIN_HEADER, format!("name one acting agent: {AGENT_ID_HEADER} came too")))
        }
    }
}

fn visible(id: &[u8]) -> Result<String, Violation> {
    let sound = (1..=LINK_BYTES_MAX).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic);
    std::str::from_utf8(id).ok().filter(|_| sound).map(str::to_owned).ok_or_else(|| {
        let rule = format!(
            "must be 1 to {LINK_BYTES_MAX} visible ASCII characters, no spaces: {AGENT_ID_BIN_HEADER} takes any id"
        );
        Violation::new(AGENT_ID_HEADER, rule)
    })
}

fn any(id: Option<&[u8]>) -> Result<String, Violation> {
    let id = id.filter(|id| (1..=LINK_BYTES_MAX).contains(&id.len()) && !id.contains(&0));
    id.and_then(|id| std::str::from_utf8(id).ok()).map(str::to_owned).ok_or_else(|| {
        let rule = format!("must be 1 to {LINK_BYTES_MAX} bytes of UTF-8 without U+0000, encoded as base64");
        Violation::new(AGENT_ID_BIN_HEADER, rule)
    })
}

fn namespace(headers: &HeaderMap) -> Result<Namespace, Violation> {
    match at_most_once(NAMESPACE_HEADER, headers.get_all(NAMESPACE_HEADER).iter())? {
        None => Ok(Namespace::only()),
        Some(value) if value.as_bytes() == DEFAULT_NAMESPACE.as_bytes() => Ok(Namespace::only()),
        Some(value) => {
            let name = value.to_str().ok().filter(|name| is_name(name));
            name.map(Namespace::from).ok_or_else(|| Violation::new(NAMESPACE_HEADER, NAME_RULE))
        }
    }
}

/// The one value of a header, if it came.
fn at_most_once<T>(header: &str, mut values: impl Iterator<Item = T>) -> Result<Option<T>, Violation> {
    let value = values.next();
    match values.next() {
        None => Ok(value),
        Some(_) => Err(Violation::new(header, "must come once at most")),
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

    use super::*;

    fn metadata(headers: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut map = http::HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, http::HeaderValue::from_bytes(value).unwrap());
        }
        map
    }

    #[test]
    fn a_caller_that_names_nobody_is_anonymous_in_the_default_namespace() {
        let names = Names::of(&metadata(&[])).unwrap();
        assert_eq!(names, Names { namespace: "default".into(), agent: None });
        assert_eq!(Names::of(&metadata(&[(NAMESPACE_HEADER, b"default")])).unwrap(), names);
    }

    #[test]
    fn a_namespace_is_named_by_a_dns_label() {
        let named = Names::of(&metadata(&[(NAMESPACE_HEADER, b"team-a")])).unwrap();
        assert_eq!(named.namespace, "team-a");
        for value in [b"".as_slice(), b"Team", b"-a", b"a-", b"a_b", b"a,b", "ä".as_bytes(), &[b'a'; 64]] {
            let violations = Names::of(&metadata(&[(NAMESPACE_HEADER, value)])).unwrap_err();
            assert_eq!(violations[0].field, NAMESPACE_HEADER, "{value:?}");
        }
    }

    #[test]
    fn an_agent_is_named_in_the_header() {
        let longest = [b'~'; LINK_BYTES_MAX];
        for value in [b"a".as_slice(), b"agent-7/x", &longest] {
            let names = Names::of(&metadata(&[(AGENT_ID_HEADER, value)])).unwrap();
            assert_eq!(names.agent.unwrap().as_bytes(), value);
        }
    }

    #[test]
    fn an_agent_that_cannot_be_told_is_refused() {
        let too_long = [b'a'; LINK_BYTES_MAX + 1];
        for value in [b"".as_slice(), b"a b", b"a\tb", "agént".as_bytes(), b"\xff", &too_long] {
            let violations = Names::of(&metadata(&[(AGENT_ID_HEADER, value)])).unwrap_err();
            assert_eq!(violations.len(), 1, "{value:?}");
            assert_eq!(violations[0].field, AGENT_ID_HEADER);
        }
    }

    #[test]
    fn an_agent_whose_id_is_not_ascii_is_named_in_the_binary_header() {
        let longest = [b'~'; LINK_BYTES_MAX];
        for id in ["agént 7".as_bytes(), "エージェント".as_bytes(), b"a", b"\n", &longest] {
            for encoded in [STANDARD.encode(id), STANDARD_NO_PAD.encode(id)] {
                let names = Names::of(&metadata(&[(AGENT_ID_BIN_HEADER, encoded.as_bytes())])).unwrap();
                assert_eq!(names.agent.unwrap().as_bytes(), id);
            }
        }
        for id in [b"".as_slice(), b"a\0b", b"\xff", &[b'a'; LINK_BYTES_MAX + 1]] {
            let violations =
                Names::of(&metadata(&[(AGENT_ID_BIN_HEADER, STANDARD.encode(id).as_bytes())])).unwrap_err();
            assert_eq!(violations[0].field, AGENT_ID_BIN_HEADER, "{id:?}");
        }
        let noise = Names::of(&metadata(&[(AGENT_ID_BIN_HEADER, "a".as_bytes())])).unwrap_err();
        assert_eq!(noise[0].field, AGENT_ID_BIN_HEADER);
    }

    #[test]
    fn a_header_comes_once_and_one_header_names_the_agent() {
        for (headers, field) in [
            ([(AGENT_ID_HEADER, b"a".as_slice()), (AGENT_ID_HEADER, b"a")], AGENT_ID_HEADER),
            ([(AGENT_ID_BIN_HEADER, b"YQ"), (AGENT_ID_BIN_HEADER, b"YQ")], AGENT_ID_BIN_HEADER),
            ([(AGENT_ID_HEADER, b"a"), (AGENT_ID_BIN_HEADER, b"YQ")], AGENT_ID_BIN_HEADER),
            ([(NAMESPACE_HEADER, b"default"), (NAMESPACE_HEADER, b"default")], NAMESPACE_HEADER),
        ] {
            let violations = Names::of(&metadata(&headers)).unwrap_err();
            assert_eq!((violations.len(), violations[0].field.as_str()), (1, field));
        }
    }

    #[test]
    fn both_headers_are_complained_of_in_one_answer() {
        let violations = Names::of(&metadata(&[(AGENT_ID_HEADER, b""), (NAMESPACE_HEADER, b"Other")])).unwrap_err();
        let fields: Vec<_> = violations.iter().map(|violation| violation.field.as_str()).collect();
        assert_eq!(fields, [AGENT_ID_HEADER, NAMESPACE_HEADER]);
        assert_eq!(violations[1].description, NAME_RULE);
    }
}
