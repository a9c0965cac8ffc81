//! The answers of the admin port.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;

use super::scrapes::Scrapes;
use crate::grpc::health::Readiness;
use crate::telemetry::meter::Exposition;

/// The answer to a request. Probes look at the status; people read the text.
pub(super) async fn to(method: &Method, path: &str, readiness: Readiness, metrics: &Scrapes) -> Response<Full<Bytes>> {
    let is_read = *method == Method::GET || *method == Method::HEAD;
    let (status, text) = match path {
        // The code that answers is the work that is asked for: the store is not looked at.
        "/livez" => (StatusCode::OK, "alive".to_owned()),
        "/readyz" if readiness.is_ready() => (StatusCode::OK, readiness.to_string()),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, readiness.to_string()),
        "/metrics" if is_read => match &metrics.scrape().await.text {
            Ok(text) => return text_of(StatusCode::OK, Exposition::CONTENT_TYPE, text.clone()),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("the metrics cannot be written: {error}")),
        },
        "/metrics" => (StatusCode::OK, String::new()),
        _ => (StatusCode::NOT_FOUND, "not found: /livez, /readyz and /metrics are here".to_owned()),
    };
    let (status, text) = match status {
        StatusCode::NOT_FOUND => (status, text),
        _ if is_read => (status, text),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered".to_owned()),
    };
    let mut answer = text_of(status, "text/plain; charset=utf-8", text + "\n");
    if status == StatusCode::METHOD_NOT_ALLOWED {
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    answer
}

/// An answer of text. hyper leaves the body of an answer to HEAD out, and keeps its length.
fn text_of(status: StatusCode, media_type: &'static str, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::new(text.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_answer() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let metrics = Scrapes::new(Exposition::default());
        let to = |method: &Method, path, readiness| runtime.block_on(to(method, path, readiness, &metrics));
        let status = |method: &Method, path, readiness| to(method, path, readiness).status().as_u16();
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(status(&method, "/livez", Readiness::Draining), 200);
            assert_eq!(status(&method, "/readyz", Readiness::Ready), 200);
            for not_ready in [Readiness::Opening, Readiness::StoreAway, Readiness::CommitsFail, Readiness::Draining] {
                assert_eq!(status(&method, "/readyz", not_ready), 503, "{not_ready:?}");
            }
            assert_eq!(status(&method, "/metrics", Readiness::Opening), 200);
            for path in ["/", "/livez/", "/readyz2", "/metrics2"] {
                assert_eq!(status(&method, path, Readiness::Ready), 404, "{path}");
            }
        }
        for path in ["/livez", "/readyz", "/metrics"] {
            let answer = to(&Method::POST, path, Readiness::Ready);
            assert_eq!((answer.status().as_u16(), &answer.headers()[ALLOW]), (405, &"GET, HEAD".parse().unwrap()));
        }
        assert_eq!(status(&Method::POST, "/other", Readiness::Ready), 404);
    }
}
