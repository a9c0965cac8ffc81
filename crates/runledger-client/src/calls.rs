//! The way of a request to its method, over one connection. What the method is, the table of the proto says.

use http::uri::PathAndQuery;
use runledger_proto::methods::{Method, Streamed, Unary};
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// A connection.
pub(crate) type Wire = Grpc<Channel>;

/// Sends a request that is answered once.
pub(crate) async fn ask<C: Unary>(wire: &mut Wire, request: Request<C>) -> Result<Response<C::Answer>, Status> {
    let path = ready(wire, C::METHOD).await?;
    wire.unary(request, path, ProstCodec::default()).await
}

/// Sends a request that is answered by a stream.
pub(crate) async fn open<C: Streamed>(
    wire: &mut Wire,
    request: Request<C>,
) -> Result<Response<Streaming<C::Frame>>, Status> {
    let path = ready(wire, C::METHOD).await?;
    wire.server_streaming(request, path, ProstCodec::default()).await
}

async fn ready(wire: &mut Wire, method: &Method) -> Result<PathAndQuery, Status> {
    let ready = wire.ready().await;
    ready.map_err(|error| Status::unknown(format!("Service was not ready: {error}")))?;
    Ok(PathAndQuery::from_static(method.path))
}
