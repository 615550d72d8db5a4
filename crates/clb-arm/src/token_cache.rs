//! Tokens that are kept until they are nearly used up.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, timeout};

use crate::{Credential, CredentialError, Token};

/// A token service, asked anew each time.
#[async_trait]
pub trait TokenSource: fmt::Debug + Send + Sync + 'static {
    /// A new token for `scope`.
    ///
    /// # Errors
    /// Whatever keeps a token from being had. It must not print a secret.
    async fn fetch(&self, scope: &str) -> Result<FreshToken, CredentialError>;
}

/// A token, and how long it is good for from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FreshToken {
    /// The token.
    pub token: Token,
    /// How long it is good for.
    pub lifetime: Duration,
}

/// A [`Credential`] that asks its source as rarely as possible:
///
/// - a token is used until five minutes before its end (or until the middle of a life shorter than ten); then **one** caller
///   asks for the next one, while all others go on with the old one;
/// - if that fails, the old one is used for as long as it is good, and the source is asked again after half a minute;
/// - where there is no token, one caller asks and all others wait for what it gets, be it a token or an error;
/// - a source that does not answer in ten seconds has failed;
/// - a token that was not accepted is dropped, once, however many callers had it.
pub struct CachedCredential<S> {
    source: S,
    scopes: Mutex<BTreeMap<String, Arc<Entry>>>,
}

/// How long before its end a token is replaced. Longer than any request takes, so that none ends on the way.
const EARLY: Duration = Duration::from_secs(5 * 60);

/// How long after an early refresh that failed the next one is tried.
const REFRESH_AGAIN: Duration = Duration::from_secs(30);

/// How long the source may take. A login takes a second or two; one that hangs must not hold up all callers.
const DEADLINE: Duration = Duration::from_secs(10);

#[derive(Default)]
struct Entry {
    state: Mutex<State>,
    /// Held by the caller that asks the source.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    held: Option<Held>,
    failure: Option<Failure>,
}

struct Held {
    token: Token,
    refresh_at: Instant,
    ends_at: Instant,
}

#[derive(Clone)]
struct Failure {
    at: Instant,
    cause: SharedError,
}

/// An error that all who waited for the same token get.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
struct SharedError(Arc<dyn std::error::Error + Send + Sync>);

enum Look {
    /// Good for now.
    Good(Token),
    /// Good, but to be replaced.
    Old(Token),
    Nothing,
}

impl<S: TokenSource> CachedCredential<S> {
    /// Keeps what `source` hands out.
    #[must_use]
    pub fn new(source: S) -> Self {
        Self { source, scopes: Mutex::default() }
    }

    fn entry(&self, scope: &str) -> Arc<Entry> {
        let mut scopes = lock(&self.scopes);
        match scopes.get(scope) {
            Some(entry) => entry.clone(),
            None => scopes.entry(scope.to_owned()).or_default().clone(),
        }
    }

    /// Asks the source; the caller holds `entry.asking`.
    async fn ask(&self, entry: &Entry, scope: &str) -> Result<Token, SharedError> {
        let result = match timeout(DEADLINE, self.source.fetch(scope)).await {
            Ok(result) => result,
            Err(_) => Err(format!("the token service did not answer in {DEADLINE:?}").into()),
        };
        let now = Instant::now();
        let mut state = lock(&entry.state);
        match result {
            Ok(FreshToken { token, lifetime }) => {
                let refresh_after = lifetime.saturating_sub(EARLY).max(lifetime / 2);
                state.held = Some(Held {
                    token: token.clone(),
                    refresh_at: now + refresh_after,
                    ends_at: now + lifetime,
                });
                state.failure = None;
                Ok(token)
            }
            Err(cause) => {
                let cause = SharedError(cause.into());
                state.failure = Some(Failure { at: now, cause: cause.clone() });
                if let Some(held) = &mut state.held {
                    held.refresh_at = now + REFRESH_AGAIN;
                }
                Err(cause)
            }
        }
    }
}

impl Entry {
    fn look(&self) -> Look {
        let now = Instant::now();
        match &lock(&self.state).held {
            Some(held) if now < held.refresh_at.min(held.ends_at) => Look::Good(held.token.clone()),
            Some(held) if now < held.ends_at => Look::Old(held.token.clone()),
            Some(_) | None => Look::Nothing,
        }
    }
}

#[async_trait]
impl<S: TokenSource> Credential for CachedCredential<S> {
    async fn token(&self, scope: &str) -> Result<Option<Token>, CredentialError> {
        let asked = Instant::now();
        let entry = self.entry(scope);
        match entry.look() {
            Look::Good(token) => Ok(Some(token)),
            Look::Old(old) => {
                let Ok(_asking) = entry.asking.try_lock() else { return Ok(Some(old)) };
                match self.ask(&entry, scope).await {
                    Ok(token) => Ok(Some(token)),
                    Err(error) => {
                        tracing::warn!(%error, "the access token could not be replaced early; the old one is used on");
                        Ok(Some(old))
                    }
                }
            }
            Look::Nothing => {
                let _asking = entry.asking.lock().await;
                if let Look::Good(token) | Look::Old(token) = entry.look() {
                    return Ok(Some(token));
                }
                let failure = lock(&entry.state).failure.clone();
                // Whoever waited while the source failed gets that failure, or they would all fail one after the other.
                if let Some(failure) = failure.filter(|failure| failure.at > asked) {
                    return Err(failure.cause.into());
                }
                Ok(Some(self.ask(&entry, scope).await?))
            }
        }
    }

    fn reject(&self, scope: &str, token: &Token) -> bool {
        let entry = self.entry(scope);
        let mut state = lock(&entry.state);
        // If another one is held by now, somebody else has been faster.
        if state.held.as_ref().is_some_and(|held| held.token == *token) {
            state.held = None;
        }
        true
    }
}

impl<S: TokenSource> fmt::Debug for CachedCredential<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CachedCredential").field("source", &self.source).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that is done under these locks can leave half a change behind.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
