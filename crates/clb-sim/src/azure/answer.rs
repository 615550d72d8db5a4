//! Requests and answers, and errors as Azure Resource Manager words them.

use serde_json::{Value, json};

/// The methods that are modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Creates or replaces.
    Put,
    /// Removes.
    Delete,
    /// Asks for an action.
    Post,
}

/// One request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// The path, without the query.
    pub path: String,
    /// The query's parameters, decoded.
    pub query: Vec<(String, String)>,
    /// The `If-Match` header.
    pub if_match: Option<String>,
    /// The body, or `null`.
    pub body: Value,
}

/// One answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// Headers. A value that begins with `/` is a path on this server, to be made absolute by whoever speaks HTTP.
    pub headers: Vec<(&'static str, String)>,
    /// The body; `null` is none.
    pub body: Value,
}

impl Response {
    pub(crate) fn new(status: u16, body: Value) -> Self {
        Self { status, headers: Vec::new(), body }
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The error code, if this is an error.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        self.body.get("error")?.get("code")?.as_str()
    }
}

/// A refusal. It changes nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    status: u16,
    code: &'static str,
    message: String,
    detail: Option<&'static str>,
}

impl Refusal {
    pub(crate) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), detail: None }
    }

    /// A request that can never succeed.
    pub(crate) fn bad(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(400, code, message)
    }

    pub(crate) fn with_detail(mut self, code: &'static str) -> Self {
        self.detail = Some(code);
        self
    }
}

impl From<Refusal> for Response {
    fn from(Refusal { status, code, message, detail }: Refusal) -> Self {
        let details: Vec<Value> =
            detail.into_iter().map(|code| json!({"code": code, "message": message})).collect();
        Self::new(status, json!({"error": {"code": code, "message": message, "details": details}}))
    }
}

/// A field of an object, its name in any casing, as the published examples of the ServiceGateway have it.
pub(crate) fn field<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    let found = object.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
    Some(found.1).filter(|value| !value.is_null())
}

/// A text field, empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    field(object, name).and_then(Value::as_str).unwrap_or_default()
}

/// The elements of a list field, none if there is none.
pub(crate) fn list<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    field(object, name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// A boolean field, perhaps written as text; false if there is none.
pub(crate) fn flag(object: &Value, name: &str) -> bool {
    field(object, name).is_some_and(|value| match value {
        Value::Bool(flag) => *flag,
        Value::String(text) => text.eq_ignore_ascii_case("true"),
        Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => false,
    })
}
