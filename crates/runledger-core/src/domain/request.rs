//! A caller's own request, by which its retry is recognised.

/// The part of an applied call that the authority remembers, to recognise its retry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The caller's `request_id`.
    pub id: String,
    /// See [`Command::digest`](super::Command::digest).
    pub digest: [u8; 32],
}
