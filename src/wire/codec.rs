//! The codec that generated servers and clients use: protobuf, with a typed answer to bytes that are not protobuf.

use std::marker::PhantomData;

use prost::Message;
use tonic::Status;
use tonic::codec::{BufferSettings, DecodeBuf, Decoder};
use tonic_prost::ProstEncoder;

use super::problem;

/// The initial size of a stream's buffer. A watch keeps the buffer while nothing happens: tonic's own 8 KiB were two
/// thirds of an idle watch's memory. Longer messages make the buffer grow.
const BUFFER_BYTES: usize = 1024;

/// Messages that are ready are sent together up to this size.
const TOGETHER_BYTES_MAX: usize = 32 * 1024;

/// Encodes `T` and decodes `U`.
#[derive(Debug)]
pub struct Codec<T, U> {
    messages: PhantomData<(T, U)>,
}

impl<T, U> Default for Codec<T, U> {
    fn default() -> Self {
        Self { messages: PhantomData }
    }
}

impl<T, U> tonic::codec::Codec for Codec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = RequestDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstEncoder::new(BufferSettings::new(BUFFER_BYTES, TOGETHER_BYTES_MAX))
    }

    fn decoder(&mut self) -> Self::Decoder {
        RequestDecoder { message: PhantomData }
    }
}

/// Decodes a message. A message that cannot be decoded (bad UTF-8, nested too deep, noise) is the sender's fault and is
/// answered as any other bad field, where tonic's own codec says INTERNAL and so tells the caller to blame the server.
///
/// A generated client decodes answers with this decoder too, and sees `INVALID_ARGUMENT` for a broken answer: a decoder
/// is not told which side it serves, and no server of ours sends a broken answer.
#[derive(Debug)]
pub struct RequestDecoder<U> {
    message: PhantomData<U>,
}

impl<U: Message + Default> Decoder for RequestDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        U::decode(buffer).map(Some).map_err(|error| problem::undecodable(&error).into())
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;
    use tonic::codec::{Codec as _, Streaming};

    use super::*;
    use runledger_proto::v1;

    /// The request that the server decodes from one frame's bytes.
    async fn decoded(message: &str) -> Result<Option<v1::GetRunRequest>, Status> {
        let length = char::from(u8::try_from(message.len()).unwrap());
        let decoder = Codec::<v1::GetRunResponse, v1::GetRunRequest>::default().decoder();
        Streaming::new_request(decoder, format!("\0\0\0\0{length}{message}"), None, None).message().await
    }

    #[tokio::test]
    async fn a_request_that_cannot_be_decoded_is_the_callers_fault() {
        assert_eq!(decoded("\n\u{3}abc").await.unwrap().unwrap().run_id, "abc");
        for noise in ["\n\u{5}a", "\n", "\u{7}", "\u{8}\u{1}\n\u{7f}", "\u{0}\u{0}"] {
            let status = decoded(noise).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{noise:?}");
            assert!(!status.details().is_empty());
        }
    }
}
