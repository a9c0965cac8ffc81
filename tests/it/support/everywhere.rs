//! TLS and a token for every server and every client of the tests, where `RUNLEDGER_TEST_SECURED` is set.

use std::net::SocketAddr;
use std::sync::OnceLock;

use runledger::auth::token::TokenHash;
use tempfile::TempDir;
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use super::postgres::variable;
use super::tls::{Ca, channel};

/// The token of everybody.
const TOKEN: &str = "rl_everybody";

/// See the module.
pub(crate) struct Everywhere {
    ca: Ca,
    files: TempDir,
}

impl Everywhere {
    pub(crate) fn get() -> Option<&'static Self> {
        static EVERYWHERE: OnceLock<Option<Everywhere>> = OnceLock::new();
        EVERYWHERE.get_or_init(|| variable("RUNLEDGER_TEST_SECURED").map(|_set| Self::new())).as_ref()
    }

    fn new() -> Self {
        let (ca, files) = (Ca::new("everywhere"), TempDir::new().unwrap());
        ca.server().write(&files.path().join("server.pem"), &files.path().join("server.key"));
        let access = format!(
            "[[token]]\nname = \"everybody\"\nsha256 = \"{}\"\n\
             grants = [{{ namespaces = [\"*\"], roles = [\"admin\"], agents = [\"*\"] }}]\n",
            TokenHash::new(TOKEN.as_bytes())
        );
        for (name, text) in [("ca.pem", ca.pem().as_str()), ("access.toml", &access), ("token", TOKEN)] {
            std::fs::write(files.path().join(name), text).unwrap();
        }
        Self { ca, files }
    }

    fn file(&self, name: &str) -> String {
        self.files.path().join(name).display().to_string()
    }

    /// The flags of a server, unless it has its own.
    pub(crate) fn flags(args: &[&str]) -> Vec<String> {
        let has_own = args.contains(&"--tls-cert") || args.contains(&"--access-file");
        let Some(everywhere) = Self::get().filter(|_| !has_own) else { return Vec::new() };
        let flags = [("--tls-cert", "server.pem"), ("--tls-key", "server.key"), ("--access-file", "access.toml")];
        flags.into_iter().flat_map(|(flag, name)| [flag.to_owned(), everywhere.file(name)]).collect()
    }

    /// The environment of a command that calls servers.
    pub(crate) fn environment() -> Vec<(&'static str, String)> {
        let Some(everywhere) = Self::get() else { return Vec::new() };
        [("RUNLEDGER_CLIENT_TLS_CA", "ca.pem"), ("RUNLEDGER_TOKEN_FILE", "token")]
            .map(|(name, file)| (name, everywhere.file(file)))
            .to_vec()
    }
}

/// Adds the token to each call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bearer;

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if Everywhere::get().is_some() {
            let token = MetadataValue::try_from(format!("Bearer {TOKEN}")).unwrap();
            request.metadata_mut().insert("authorization", token);
        }
        Ok(request)
    }
}

/// What carries the calls of the tests to a server.
pub(crate) type Wire = InterceptedService<Channel, Bearer>;

/// A wire that connects when it is first used, and again after each cut.
pub(crate) fn wire(address: SocketAddr, set: impl FnOnce(Endpoint) -> Endpoint) -> Wire {
    if let Some(everywhere) = Everywhere::get() {
        return channel(address, everywhere.ca.trusted(None, &[b"h2"]));
    }
    let endpoint = set(Endpoint::from_shared(format!("http://{address}")).unwrap());
    InterceptedService::new(endpoint.connect_lazy(), Bearer)
}
