//! Lists that come in pages.

use std::collections::HashSet;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures::stream::{BoxStream, Stream, StreamExt, try_unfold};
use http::Method;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use url::Url;

use crate::request::http_request;
use crate::{ArmClient, Endpoint, Error, ErrorKind, Request, Result};

/// The most pages that one list may have. A page of an address-location list holds some hundred entries, so this is
/// far beyond the largest cluster; it ends a list that makes up a new link for ever.
pub const MAX_PAGES: usize = 10_000;

/// A list as a [`Stream`] of its pages, which are fetched as they are asked for.
///
/// It ends after the last page or the first error; what came before an error is a part of the list and no more. The next
/// page is asked for where the last one says, but never at another host and never twice at the same place.
#[must_use = "nothing is fetched until it is polled"]
pub struct Pages<T>(BoxStream<'static, Result<Vec<T>>>);

impl<T: DeserializeOwned + Send + 'static> Pages<T> {
    pub(crate) fn new(pager: Pager) -> Self {
        let next = |mut pager: Pager| async move { Ok(pager.next().await?.map(|page| (page, pager))) };
        Self(try_unfold(pager, next).boxed())
    }

    /// The items of the next page, or `None` after the last one.
    pub async fn next(&mut self) -> Option<Result<Vec<T>>> {
        self.0.next().await
    }
}

impl<T> Stream for Pages<T> {
    type Item = Result<Vec<T>>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

impl<T> fmt::Debug for Pages<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pages").finish_non_exhaustive()
    }
}

/// Fetches the pages of one list.
pub(crate) struct Pager {
    client: ArmClient,
    request: Request,
    next: Next,
    /// Where pages were.
    seen: HashSet<Url>,
}

/// Where the next page is.
enum Next {
    /// Where the request says.
    First,
    At(Url),
    Nowhere,
}

impl Pager {
    pub(crate) fn new(client: ArmClient, request: Request) -> Self {
        Self { client, request, next: Next::First, seen: HashSet::new() }
    }

    /// The items of the next page, or `None` after the last one.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Vec<T>>> {
        let endpoint = self.client.endpoint();
        let (url, http) = match std::mem::replace(&mut self.next, Next::Nowhere) {
            Next::Nowhere => return Ok(None),
            Next::First => (self.request.url(endpoint)?, self.request.to_http(endpoint)?),
            Next::At(url) => {
                let http = http_request(Method::GET, &url, self.request.context(), Vec::new())?;
                (url, http)
            }
        };
        self.seen.insert(url);
        let (page, answer) = self.client.fetch::<Page<T>>(&self.request, http).await?;
        self.next = self.after(page.next_link(), endpoint).map_err(|why| {
            Error::new(ErrorKind::Transient, why).with_call(&self.request).with_answer(&answer)
        })?;
        Ok(Some(page.value))
    }

    /// Where the page after one with this link is, or why there can be none.
    fn after(&self, link: Option<&str>, endpoint: &Endpoint) -> std::result::Result<Next, String> {
        let Some(link) = link else { return Ok(Next::Nowhere) };
        let url = endpoint.follow(link).ok_or("the next page is on another host")?;
        if self.seen.contains(&url) {
            return Err(format!("the list goes round in circles after {} pages", self.seen.len()));
        }
        if self.seen.len() == MAX_PAGES {
            return Err(format!("the list has more than {MAX_PAGES} pages"));
        }
        Ok(Next::At(url))
    }
}

/// One page. Items that are `null` are left out, since they say nothing.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(bound = "T: Deserialize<'de>")]
pub(crate) struct Page<T> {
    #[serde(alias = "Value", default = "Vec::new", deserialize_with = "present")]
    pub(crate) value: Vec<T>,
    #[serde(rename = "nextLink", alias = "NextLink", default)]
    next_link: Option<String>,
}

impl<T> Page<T> {
    /// Where the next page is, unless this is the last one.
    pub(crate) fn next_link(&self) -> Option<&str> {
        self.next_link.as_deref().filter(|link| !link.is_empty())
    }
}

fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Vec<T>, D::Error> {
    let items = Option::<Vec<Option<T>>>::deserialize(deserializer)?;
    Ok(items.into_iter().flatten().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparse_pages_are_read() {
        for (body, items, next) in [
            (r#"{"value":[1,null,2],"nextLink":"https://h/2"}"#, vec![1, 2], Some("https://h/2")),
            (r#"{"Value":[1],"NextLink":""}"#, vec![1], None),
            (r#"{"value":null,"nextLink":null}"#, vec![], None),
            ("{}", vec![], None),
        ] {
            let page: Page<u8> = serde_json::from_str(body).unwrap();
            assert_eq!((page.value.clone(), page.next_link()), (items, next), "{body}");
        }
    }
}
