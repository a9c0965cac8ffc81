//! The answers of the admin port.

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;

use crate::grpc::health::Readiness;

/// The answer to a request. Probes look at the status; people read the text.
pub(super) fn to(method: &Method, path: &str, readiness: Readiness) -> Response<Full<Bytes>> {
    let (status, text) = match path {
        // The code that answers is the work that is asked for: the store is not looked at.
        "/livez" => (StatusCode::OK, "alive".to_owned()),
        "/readyz" if readiness.is_ready() => (StatusCode::OK, readiness.to_string()),
        "/readyz" => (StatusCode::SERVICE_UNAVAILABLE, readiness.to_string()),
        _ => (StatusCode::NOT_FOUND, "not found: /livez and /readyz are here".to_owned()),
    };
    let is_read = *method == Method::GET || *method == Method::HEAD;
    let (status, text) = match status {
        StatusCode::NOT_FOUND => (status, text),
        _ if is_read => (status, text),
        _ => (StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD are answered".to_owned()),
    };
    // hyper leaves the body of an answer to HEAD out, and keeps its length.
    let mut answer = Response::new(Full::new(Bytes::from(text + "\n")));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_path_has_its_answer() {
        let status = |method: &Method, path, readiness| to(method, path, readiness).status().as_u16();
        for method in [Method::GET, Method::HEAD] {
            assert_eq!(status(&method, "/livez", Readiness::Draining), 200);
            assert_eq!(status(&method, "/readyz", Readiness::Ready), 200);
            for not_ready in [Readiness::Opening, Readiness::StoreAway, Readiness::CommitsFail, Readiness::Draining] {
                assert_eq!(status(&method, "/readyz", not_ready), 503, "{not_ready:?}");
            }
            for path in ["/", "/livez/", "/readyz2", "/metrics"] {
                assert_eq!(status(&method, path, Readiness::Ready), 404, "{path}");
            }
        }
        for path in ["/livez", "/readyz"] {
            let answer = to(&Method::POST, path, Readiness::Ready);
            assert_eq!((answer.status().as_u16(), &answer.headers()[ALLOW]), (405, &"GET, HEAD".parse().unwrap()));
        }
        assert_eq!(status(&Method::POST, "/other", Readiness::Ready), 404);
    }
}
