//! Who calls, as the headers of each call say: the acting agent, the namespace, and the bearer token.

use runledger_proto::headers;
use tonic::metadata::{AsciiMetadataValue, BinaryMetadataValue, MetadataMap};
use tonic::service::Interceptor;
use tonic::{Request, Status};

use crate::token::Token;

/// The header of the bearer token.
const AUTHORIZATION: &str = "authorization";

/// Who calls. As an interceptor it adds its headers to each call of a generated client.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    agent: Option<Agent>,
    namespace: Option<AsciiMetadataValue>,
    pub(crate) token: Option<Token>,
}

/// The acting agent, in the header that its name fits.
#[derive(Clone, Debug)]
enum Agent {
    Visible(AsciiMetadataValue),
    Any(BinaryMetadataValue),
}

impl Caller {
    pub(crate) fn new(agent_id: Option<&str>, namespace: Option<AsciiMetadataValue>, token: Option<Token>) -> Self {
        let agent = agent_id.map(|id| match AsciiMetadataValue::try_from(id) {
            Ok(value) if id.bytes().all(|byte| byte.is_ascii_graphic()) => Agent::Visible(value),
            Ok(_) | Err(_) => Agent::Any(BinaryMetadataValue::from_bytes(id.as_bytes())),
        });
        Self { agent, namespace, token }
    }

    /// Adds the headers, and gives the token that was sent.
    pub(crate) fn sign(&self, metadata: &mut MetadataMap) -> Option<AsciiMetadataValue> {
        match &self.agent {
            Some(Agent::Visible(id)) => drop(metadata.insert(headers::AGENT_ID, id.clone())),
            Some(Agent::Any(id)) => drop(metadata.insert_bin(headers::AGENT_ID_BIN, id.clone())),
            None => {}
        }
        if let Some(namespace) = &self.namespace {
            metadata.insert(headers::NAMESPACE, namespace.clone());
        }
        let bearer = self.token.as_ref().map(Token::bearer);
        if let Some(bearer) = &bearer {
            metadata.insert(AUTHORIZATION, bearer.clone());
        }
        bearer
    }

    /// The credential that a server did not accept, as a clause for people.
    pub(crate) fn refused_credential(&self) -> String {
        match self.token.as_ref().map(Token::file) {
            None => "no token was sent".to_owned(),
            Some(None) => "the token that was sent is not accepted".to_owned(),
            Some(Some(path)) => format!("the token in {} is not accepted, as it is now", path.display()),
        }
    }
}

impl Interceptor for Caller {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        self.sign(request.metadata_mut());
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_goes_into_the_header_that_its_name_fits() {
        for (id, visible) in [("agent-7/x", true), ("agent 7", false), ("agént", false), ("a\n", false)] {
            let mut metadata = MetadataMap::new();
            assert!(Caller::new(Some(id), None, None).sign(&mut metadata).is_none());
            assert_eq!(metadata.get(headers::AGENT_ID).is_some(), visible, "{id:?}");
            let any = metadata.get_bin(headers::AGENT_ID_BIN).map(|value| value.to_bytes().unwrap());
            assert_eq!(any.as_deref(), Some(id.as_bytes()).filter(|_| !visible));
        }
    }

    #[test]
    fn a_token_is_shown_by_nothing_that_prints_the_caller() {
        let caller = Caller::new(None, None, Some(Token::of_value("s3cret").unwrap()));
        let mut metadata = MetadataMap::new();
        assert_eq!(caller.sign(&mut metadata).unwrap(), "Bearer s3cret");
        let shown = format!("{caller:?} {metadata:?} {}", caller.refused_credential());
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(!Token::of_value("s3cret word").unwrap_err().to_string().contains("s3cret"));
    }
}
