//! What an error answer says, whatever it is written in.

use serde_json::Value;

/// The most of an answer that is looked at, in bytes. ARM's own errors take a few hundred; what is larger is a page
/// of some gateway, whose beginning says it all.
const MAX_INPUT: usize = 64 * 1024;

/// The most text that is kept to look for codes in, in bytes.
const MAX_TEXT: usize = 4096;

/// The most text that is shown to people, in bytes.
const MAX_MESSAGE: usize = 400;

/// The deepest nesting of details that is followed. ARM's own errors have three levels at most.
const MAX_DEPTH: usize = 8;

/// What could be read from an error answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ErrorBody {
    /// The codes, the most specific first: what is inside comes before what it is inside of.
    pub(crate) codes: Vec<String>,
    /// Everything it says in words, the outermost first, on one line, of bounded length.
    text: String,
}

impl ErrorBody {
    /// Reads `body`, which is anything: ARM's JSON in any casing of its keys, other JSON, HTML, text, nothing.
    pub(crate) fn read(body: &[u8]) -> Self {
        let json = serde_json::from_slice(body.get(..MAX_INPUT).unwrap_or(body)).unwrap_or(Value::Null);
        Self::from_json(&json).unwrap_or_else(|| {
            let text = String::from_utf8_lossy(body.get(..MAX_INPUT).unwrap_or(body));
            let text =
                if text.trim_start().starts_with('<') { without_tags(&text) } else { text.into_owned() };
            Self { codes: Vec::new(), text: one_line([text.as_str()], MAX_TEXT) }
        })
    }

    /// Reads the `error` that `json` holds or is, if there is one.
    pub(crate) fn from_json(json: &Value) -> Option<Self> {
        let error = field(json, "error").or_else(|| field(json, "odata.error")).unwrap_or(json);
        let (mut codes, mut messages) = (Vec::new(), Vec::new());
        match error.as_str() {
            // OAuth style: `{"error":"invalid_token"}`.
            Some(text) if !std::ptr::eq(error, json) => messages.push(text),
            Some(_) | None => collect(error, MAX_DEPTH, &mut codes, &mut messages),
        }
        let found = !codes.is_empty() || !messages.is_empty();
        found.then(|| Self { codes, text: one_line(messages, MAX_TEXT) })
    }

    /// A message without a code.
    pub(crate) fn from_text(text: &str) -> Self {
        Self { codes: Vec::new(), text: one_line([text], MAX_TEXT) }
    }

    /// The part of the text that is shown to people.
    pub(crate) fn message(&self) -> &str {
        cut(&self.text, MAX_MESSAGE)
    }

    /// Whether `code` is among the codes, or stands as a word in the text: some failures arrive as prose only.
    pub(crate) fn has_code(&self, code: &str) -> bool {
        self.codes.iter().any(|found| found.eq_ignore_ascii_case(code))
            || self
                .text
                .split(|c: char| !c.is_ascii_alphanumeric())
                .any(|word| word.eq_ignore_ascii_case(code))
    }
}

/// The value of `key` in an object, in any casing, unless it is null.
pub(crate) fn field<'a>(json: &'a Value, key: &str) -> Option<&'a Value> {
    let found = json.as_object()?.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
    found.map(|(_, value)| value).filter(|value| !value.is_null())
}

/// Gathers what `error` and everything inside it says: codes from the inside out, messages from the outside in.
fn collect<'a>(error: &'a Value, depth: usize, codes: &mut Vec<String>, messages: &mut Vec<&'a str>) {
    let Some(depth) = depth.checked_sub(1) else { return };
    // OData wraps its message: `{"lang":"en-us","value":"…"}`.
    let message = field(error, "message").map(|message| field(message, "value").unwrap_or(message));
    if let Some(message) = message.and_then(Value::as_str).filter(|message| !messages.contains(message)) {
        messages.push(message);
    }
    let details = field(error, "details").and_then(Value::as_array).into_iter().flatten();
    for inner in details.chain(field(error, "innererror")) {
        collect(inner, depth, codes, messages);
    }
    let code = field(error, "code").and_then(Value::as_str).map(str::trim).unwrap_or_default();
    if !code.is_empty() && !codes.iter().any(|known| known.eq_ignore_ascii_case(code)) {
        codes.push(one_line([code], MAX_MESSAGE));
    }
}

/// `texts` one after the other, every run of white space and control characters one blank, cut at `limit` bytes.
fn one_line<'a>(texts: impl IntoIterator<Item = &'a str>, limit: usize) -> String {
    let mut line = String::new();
    let words = texts.into_iter().flat_map(|text| text.split(|c: char| c.is_whitespace() || c.is_control()));
    for word in words.filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.len() >= limit {
            return cut(&line, limit).to_owned();
        }
    }
    line
}

/// The beginning of `text`, at most `limit` bytes long and ending between two characters.
fn cut(text: &str, limit: usize) -> &str {
    let end = (0..=limit.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or_default()]
}

/// The words of an HTML page.
fn without_tags(html: &str) -> String {
    let pieces = html.split('<').map(|piece| piece.split_once('>').map_or("", |(_, text)| text));
    pieces.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(body: &str) -> (Vec<String>, String) {
        let body = ErrorBody::read(body.as_bytes());
        (body.codes.clone(), body.message().to_owned())
    }

    fn said(codes: &[&str], message: &str) -> (Vec<String>, String) {
        (codes.iter().map(|&code| code.to_owned()).collect(), message.to_owned())
    }

    #[test]
    fn every_kind_of_body_is_read() {
        for (body, expected) in [
            (
                r#"{"error":{"code":"ResourceNotFound","message":"gone"}}"#,
                said(&["ResourceNotFound"], "gone"),
            ),
            (
                r#"{"Error":{"Code":"A","Message":"b","Details":null,"InnerError":{"code":"C"}}}"#,
                said(&["C", "A"], "b"),
            ),
            (
                r#"{"error":{"code":"PreconditionFailed","message":"No.","details":[{"code":"PreconditionFailedEtagMismatch","message":"Etag\n differs"}]}}"#,
                said(&["PreconditionFailedEtagMismatch", "PreconditionFailed"], "No. Etag differs"),
            ),
            (
                r#"{"error":{"code":"A","message":"m","details":[{"code":"B","message":"m","details":[{"code":"C"}]},{"code":"a"},{"code":"D","message":"n"}]}}"#,
                said(&["C", "B", "a", "D"], "m n"),
            ),
            (r#"{"code":"Top","message":"level"}"#, said(&["Top"], "level")),
            (r#"{"Message":"no HTTP resource"}"#, said(&[], "no HTTP resource")),
            (r#"{"error":"invalid_token"}"#, said(&[], "invalid_token")),
            (r#"{"odata.error":{"code":"X","message":{"lang":"en","value":"y"}}}"#, said(&["X"], "y")),
            (
                r#"{"error":{"code":"Trunc","message":"cut he"#,
                said(&[], r#"{"error":{"code":"Trunc","message":"cut he"#),
            ),
            (r#"{"error":{}}"#, said(&[], r#"{"error":{}}"#)),
            (r#""just a string""#, said(&[], r#""just a string""#)),
            ("", said(&[], "")),
            ("  upstream\r\n\tconnect error ", said(&[], "upstream connect error")),
            (
                "<html><head><title>502 Bad Gateway</title></head>\n<body class='x'>nginx</body></html>",
                said(&[], "502 Bad Gateway nginx"),
            ),
            ("<", said(&[], "")),
        ] {
            assert_eq!(read(body), expected, "{body}");
        }
    }

    #[test]
    fn a_code_is_found_in_any_casing_and_in_prose() {
        let code = "ServiceWithOverlayMappingsCannotBeDeleted";
        for (body, expected) in [
            (r#"{"error":{"code":"servicewithoverlaymappingscannotbedeleted"}}"#, true),
            (
                r#"{"error":{"code":"X","message":"failed: ServiceWithOverlayMappingsCannotBeDeleted."}}"#,
                true,
            ),
            (
                r#"{"error":{"code":"X","details":[{"code":"ServiceWithOverlayMappingsCannotBeDeleted"}]}}"#,
                true,
            ),
            (r#"{"error":{"code":"ServiceWithOverlayMappingsCannotBeDel"#, false),
            (r#"{"error":{"code":"ServiceWithOverlayMappingsCannotBeDeleted","mess"#, true),
            (r#"{"error":{"code":"NotServiceWithOverlayMappingsCannotBeDeleted"}}"#, false),
        ] {
            assert_eq!(ErrorBody::read(body.as_bytes()).has_code(code), expected, "{body}");
        }
    }

    #[test]
    fn nesting_without_end_is_not_followed_for_ever() {
        let deep =
            format!(r#"{}{{"code":"Deep"}}{}"#, r#"{"code":"L","details":["#.repeat(30), "]}".repeat(30));
        assert_eq!(read(&deep), said(&["L"], ""));
    }

    proptest! {
        #[test]
        fn whatever_arrives_is_one_short_line(body in prop::collection::vec(any::<u8>(), 0..2000), repeat in 1_usize..100) {
            let read = ErrorBody::read(&body.repeat(repeat));
            prop_assert!(read.message().len() <= MAX_MESSAGE);
            prop_assert!(!read.message().contains(char::is_control));
        }

        #[test]
        fn long_text_is_cut_between_characters(text in "\\PC{300,900}") {
            prop_assert!(ErrorBody::read(text.as_bytes()).message().len() <= MAX_MESSAGE);
        }
    }
}
