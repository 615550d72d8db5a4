//! The server's word on when to come back.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::RETRY_AFTER;

/// How long from `now` the answer with these `headers` asks to wait: `Retry-After` in seconds or as an HTTP date, or
/// the millisecond forms that some Azure services send. A date in the past is zero; what cannot be read is `None`.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    let millis = |name: &str| text(name)?.parse().ok().map(Duration::from_millis);
    millis("retry-after-ms").or_else(|| millis("x-ms-retry-after-ms")).or_else(|| {
        let value = text(RETRY_AFTER.as_str())?;
        match value.parse() {
            Ok(seconds) => Some(Duration::from_secs(seconds)),
            Err(_) => {
                let date = httpdate::parse_http_date(value).ok()?;
                Some(date.duration_since(now).unwrap_or_default())
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_is_read_and_nonsense_is_not() {
        // Sun, 06 Nov 1994 08:49:37 GMT
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (name, value, expected) in [
            ("retry-after", "0", Some(0)),
            ("retry-after", " 10 ", Some(10_000)),
            ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT", Some(30_000)),
            ("retry-after", "Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("retry-after", "soon", None),
            ("retry-after", "-5", None),
            ("retry-after", "1.5", None),
            ("retry-after", "99999999999999999999", None),
            ("retry-after-ms", "250", Some(250)),
            ("x-ms-retry-after-ms", "1500", Some(1500)),
            ("x-other", "10", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            assert_eq!(retry_after(&headers, now), expected.map(Duration::from_millis), "{name}: {value}");
        }
    }
}
