//! Requests as values: built and tested without I/O.

use std::fmt;

use http::header::{ACCEPT, CONTENT_TYPE, HeaderName, IF_MATCH};
use http::{HeaderMap, HeaderValue, Method};
use url::Url;

use crate::deadline::Deadline;
use crate::retry::is_idempotent;
use crate::{CallContext, Endpoint, Error, ErrorKind, Result};

/// The header that names a call.
pub(crate) const CLIENT_REQUEST_ID: HeaderName = HeaderName::from_static("x-ms-client-request-id");

/// One request to Azure Resource Manager, relative to the endpoint that a client adds. `Debug` prints neither its query nor
/// its body.
#[derive(Clone, PartialEq, Eq)]
pub struct Request {
    method: Method,
    path: String,
    query: Vec<(String, String)>,
    headers: HeaderMap,
    body: Vec<u8>,
    context: CallContext,
}

impl Request {
    /// A GET of `path`, which is relative to the endpoint and starts with a slash, in the given version of its API.
    /// The methods of [`ArmClient`](crate::ArmClient) set the HTTP method they stand for.
    #[must_use]
    pub fn new(path: impl Into<String>, api_version: &str, context: &CallContext) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            query: vec![("api-version".to_owned(), api_version.to_owned())],
            headers: HeaderMap::new(),
            body: Vec::new(),
            context: context.clone(),
        }
    }

    /// With another HTTP method.
    #[must_use]
    pub fn method(mut self, method: Method) -> Self {
        self.method = method;
        self
    }

    /// With one more query parameter; `value` is encoded here.
    #[must_use]
    pub fn query(mut self, name: &str, value: &str) -> Self {
        self.query.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With `If-Match: etag`, so that a resource that has changed since is left alone.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when the ETag could not travel in a header.
    pub fn if_match(mut self, etag: &str) -> Result<Self> {
        let value = HeaderValue::from_str(etag)
            .map_err(|_| Error::new(ErrorKind::Invalid, format!("{etag:?} is not an ETag")))?;
        self.headers.insert(IF_MATCH, value);
        Ok(self)
    }

    /// With this JSON as its body.
    #[must_use]
    pub fn json(mut self, body: Vec<u8>) -> Self {
        self.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        self.body = body;
        self
    }

    /// The path, without a query.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The call that this request belongs to.
    #[must_use]
    pub fn context(&self) -> &CallContext {
        &self.context
    }

    /// The HTTP request that goes to `endpoint`, complete but for `User-Agent` and `Authorization`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when the path is not one.
    pub fn to_http(&self, endpoint: &Endpoint) -> Result<http::Request<Vec<u8>>> {
        let url = self.url(endpoint)?;
        let mut request = http_request(self.method.clone(), &url, &self.context, self.body.clone())?;
        request.headers_mut().extend(self.headers.clone());
        Ok(request)
    }

    /// Its URL at `endpoint`.
    pub(crate) fn url(&self, endpoint: &Endpoint) -> Result<Url> {
        if !self.path.starts_with('/') {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{:?} does not start with a slash", self.path),
            ));
        }
        let mut url = endpoint.url(&self.path);
        url.query_pairs_mut().extend_pairs(&self.query);
        Ok(url)
    }

    /// This request, as a part of a call with this deadline if that has no earlier one.
    pub(crate) fn until(mut self, deadline: Deadline) -> Self {
        self.context = self.context.until(deadline);
        self
    }

    pub(crate) fn deadline(&self) -> Deadline {
        self.context.deadline()
    }

    /// Whether sending it twice does the same as sending it once.
    pub(crate) fn is_idempotent(&self) -> bool {
        is_idempotent(&self.method, self.headers.contains_key(IF_MATCH))
    }

    pub(crate) fn http_method(&self) -> &Method {
        &self.method
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("path", &self.path)
            .field("client_request_id", &self.context.client_request_id())
            .finish_non_exhaustive()
    }
}

/// A request with the headers that every one carries.
pub(crate) fn http_request(
    method: Method,
    url: &Url,
    context: &CallContext,
    body: Vec<u8>,
) -> Result<http::Request<Vec<u8>>> {
    http::Request::builder()
        .method(method)
        .uri(url.as_str())
        .header(ACCEPT, "application/json")
        .header(CLIENT_REQUEST_ID, context.header())
        .body(body)
        .map_err(|error| Error::new(ErrorKind::Invalid, format!("the URL is not one: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cloud;

    fn context() -> CallContext {
        CallContext::new("call-1").unwrap()
    }

    fn headers(request: &http::Request<Vec<u8>>) -> Vec<(&str, &str)> {
        let mut headers: Vec<_> =
            request.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        headers.sort_unstable();
        headers
    }

    #[test]
    fn a_get_has_its_version_and_call_id_and_no_body() {
        let request = Request::new("/subscriptions/s", "2025-05-01", &context())
            .query("$filter", "a eq 'b'")
            .to_http(&Endpoint::new(&Cloud::Public).unwrap())
            .unwrap();
        assert_eq!(request.method(), Method::GET);
        assert_eq!(
            request.uri(),
            "https://management.azure.com/subscriptions/s?api-version=2025-05-01&%24filter=a+eq+%27b%27"
        );
        assert_eq!(headers(&request), [("accept", "application/json"), ("x-ms-client-request-id", "call-1")]);
        assert_eq!(request.body(), b"");
    }

    #[test]
    fn a_put_has_its_body_and_precondition() {
        let request = Request::new("/subscriptions/s", "v", &context())
            .method(Method::PUT)
            .json(b"{}".to_vec())
            .if_match("W/\"1\"")
            .unwrap()
            .to_http(&Endpoint::new(&Cloud::UsGov).unwrap())
            .unwrap();
        assert_eq!(request.method(), Method::PUT);
        assert_eq!(request.uri(), "https://management.usgovcloudapi.net/subscriptions/s?api-version=v");
        assert_eq!(
            headers(&request),
            [
                ("accept", "application/json"),
                ("content-type", "application/json"),
                ("if-match", "W/\"1\""),
                ("x-ms-client-request-id", "call-1")
            ]
        );
        assert_eq!(request.body(), b"{}");
    }

    #[test]
    fn what_cannot_be_sent_is_invalid() {
        let endpoint = Endpoint::new(&Cloud::Public).unwrap();
        let relative = Request::new("subscriptions", "v", &context()).to_http(&endpoint).unwrap_err();
        let etag = Request::new("/", "v", &context()).if_match("a\nb").unwrap_err();
        assert_eq!([relative.kind(), etag.kind()], [ErrorKind::Invalid; 2]);
        assert!(CallContext::new("").is_err());
        assert!(CallContext::new("a b").is_err());
    }

    #[test]
    fn nothing_prints_the_query_and_the_body() {
        let request = Request::new("/r", "v", &context()).query("s", "SECRET").json(b"SECRET".to_vec());
        assert_eq!(
            format!("{request:?}"),
            r#"Request { method: GET, path: "/r", client_request_id: "call-1", .. }"#
        );
    }

    #[test]
    fn a_path_cannot_leave_the_endpoint() {
        let request = Request::new("//evil.example/x", "v", &context())
            .to_http(&Endpoint::new(&Cloud::Public).unwrap())
            .unwrap();
        assert_eq!(request.uri().host(), Some("management.azure.com"));
    }
}
