//! Requests and answers, and errors as Azure Resource Manager words them.

use serde_json::{Value, json};

/// What is done with what a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Method {
    /// Reads.
    Get,
    /// Creates or replaces.
    Put,
    /// Removes.
    Delete,
    /// Asks for an action.
    Post,
    /// Changes a part.
    Patch,
    /// Any other. None is modelled.
    Other(String),
}

impl Method {
    /// As it stands in a request.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Get => "GET",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Post => "POST",
            Self::Patch => "PATCH",
            Self::Other(name) => name,
        }
    }
}

impl From<&str> for Method {
    /// Reads a method, which is in capitals.
    fn from(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "POST" => Self::Post,
            "PATCH" => Self::Patch,
            other => Self::Other(other.to_owned()),
        }
    }
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

impl Request {
    /// The value of a query parameter, its name in any casing.
    pub(crate) fn parameter(&self, name: &str) -> Option<&str> {
        let found = self.query.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
        Some(&found.1)
    }
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
    target: Option<&'static str>,
    /// `None` for an error without any list of details.
    details: Option<Vec<(&'static str, String)>>,
}

impl Refusal {
    pub(crate) fn new(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { status, code, message: message.into(), target: None, details: Some(Vec::new()) }
    }

    /// A request that can never succeed.
    pub(crate) fn bad(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(400, code, message)
    }

    /// A request whose parts do not have the form that they must have.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::bad("InvalidRequestFormat", message)
    }

    /// A request that this simulator has no answer for; it must not pass for one that Azure refuses.
    pub(crate) fn not_modelled(what: impl std::fmt::Display) -> Self {
        Self::new(501, "NotModelled", format!("the simulator does not model {what}"))
    }

    pub(crate) fn with_detail(mut self, code: &'static str, message: String) -> Self {
        self.details = Some(vec![(code, message)]);
        self
    }

    /// One resource names another that is not there.
    pub(crate) fn missing_reference(missing: &str, user: &str) -> Self {
        let message = format!(
            "Resource {missing} referenced by resource {user} was not found. Please make sure that the referenced \
             resource exists, and that both resources are in the same region."
        );
        Self::bad("InvalidResourceReference", message)
    }

    /// Without a list of details, as Azure Resource Manager itself and Compute answer.
    pub(crate) fn bare(mut self) -> Self {
        self.details = None;
        self
    }

    /// Says which parameter is meant.
    pub(crate) fn with_target(mut self, target: &'static str) -> Self {
        self.target = Some(target);
        self
    }
}

impl From<Refusal> for Response {
    fn from(Refusal { status, code, message, target, details }: Refusal) -> Self {
        let mut error = json!({"code": code, "message": message});
        if let Some(target) = target {
            error["target"] = json!(target);
        }
        if let Some(details) = details {
            error["details"] =
                details.iter().map(|(code, message)| json!({"code": code, "message": message})).collect();
        }
        Self::new(status, json!({"error": error}))
    }
}

/// A field of an object, its name in any casing, as the published examples of the ServiceGateway have it. `null` is told
/// from absence.
pub(crate) fn nullable<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object.as_object()?.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

/// A field of an object that is not `null`.
pub(crate) fn field<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    nullable(object, name).filter(|value| !value.is_null())
}

/// A text field; empty if there is none, or if it is no text.
pub(crate) fn text<'a>(object: &'a Value, name: &str) -> &'a str {
    field(object, name).and_then(Value::as_str).unwrap_or_default()
}

/// A list field, if there is one. Azure takes `[]` for an empty list, and no `null`.
pub(crate) fn optional_list<'a>(object: &'a Value, name: &str) -> Result<Option<&'a [Value]>, Refusal> {
    match nullable(object, name) {
        None => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(other) => Err(Refusal::malformed(format!("{name} is {other}; it is a list"))),
    }
}

/// The elements of a list field, none if there is none.
pub(crate) fn list<'a>(object: &'a Value, name: &str) -> Result<&'a [Value], Refusal> {
    Ok(optional_list(object, name)?.unwrap_or_default())
}

/// A boolean field, perhaps written as text, if there is one.
pub(crate) fn flag(object: &Value, name: &str) -> Result<Option<bool>, Refusal> {
    match field(object, name) {
        None => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("true") => Ok(Some(true)),
        Some(Value::String(text)) if text.eq_ignore_ascii_case("false") => Ok(Some(false)),
        Some(other) => Err(Refusal::malformed(format!("{name} is {other}; it is true or false"))),
    }
}
