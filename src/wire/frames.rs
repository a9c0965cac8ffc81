//! The encoding of the feed's runs, events and cursors for the wire.

use bytes::Bytes;
use prost::Message as _;

use super::cursor;
use crate::domain::{Event, Run};
use crate::feed::Encode;
use crate::feed::cursor::Cursor;
use crate::store::Ledger;
use runledger_proto::v1;

/// Encodes for the watches of one ledger.
#[derive(Clone, Copy, Debug)]
pub struct WireFrames {
    /// The ledger that cursors are bound to. Each cursor has its epoch.
    pub ledger: Ledger,
}

impl Encode for WireFrames {
    fn run(&self, run: &Run) -> Bytes {
        v1::Run::from(run).encode_to_vec().into()
    }

    fn event(&self, event: &Event) -> Bytes {
        let event: v1::RunEvent = event.into();
        event.encode_to_vec().into()
    }

    fn cursor(&self, namespace: &str, cursor: &Cursor) -> Bytes {
        cursor::encode(cursor, self.ledger, namespace).into()
    }
}
