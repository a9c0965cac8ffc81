//! The encoding of the feed's runs, events and cursors for the wire.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;

use super::cursor;
use super::seal::Seals;
use crate::domain::{Event, Run};
use crate::feed::Encode;
use crate::feed::cursor::Cursor;
use crate::wire::from_domain::{FromDomain as _, IntoMessage as _};
use runledger_proto::v1;

/// Encodes for the watches of one ledger.
#[derive(Clone, Debug)]
pub struct WireFrames {
    /// The seals of cursors.
    pub seals: Arc<Seals>,
}

impl Encode for WireFrames {
    fn run(&self, run: &Run) -> Bytes {
        v1::Run::from_domain(run).encode_to_vec().into()
    }

    fn event(&self, event: &Event) -> Bytes {
        let event: v1::RunEvent = event.into_message();
        event.encode_to_vec().into()
    }

    fn cursor(&self, namespace: &str, cursor: &Cursor) -> Bytes {
        cursor::encode(cursor, &self.seals, namespace).into()
    }
}
