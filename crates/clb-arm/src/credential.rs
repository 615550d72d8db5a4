//! Who the caller is.

use std::fmt;

use async_trait::async_trait;
use http::HeaderValue;

/// Where access tokens come from.
///
/// Asked before every request, so an implementation that talks to a token service caches.
#[async_trait]
pub trait Credential: fmt::Debug + Send + Sync + 'static {
    /// A token for `scope`, or `None` to send the request without one.
    ///
    /// # Errors
    /// Whatever keeps a token from being had; the request is then not sent.
    async fn token(&self, scope: &str) -> Result<Option<Token>, CredentialError>;

    /// Says that `token`, which was handed out for `scope`, was not accepted (401), and asks whether it is worth asking for
    /// another one. By default it is not.
    fn reject(&self, scope: &str, token: &Token) -> bool {
        let _ = (scope, token);
        false
    }
}

/// Why there is no token. It must not print a secret.
pub type CredentialError = Box<dyn std::error::Error + Send + Sync>;

/// A bearer token. Neither `Debug` nor anything else prints it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    authorization: HeaderValue,
}

impl Token {
    /// The token `secret`, without `Bearer`.
    ///
    /// # Errors
    /// [`InvalidToken`] when it could not travel in a header.
    pub fn new(secret: &str) -> Result<Self, InvalidToken> {
        let mut authorization =
            HeaderValue::from_str(&format!("Bearer {secret}")).map_err(|_| InvalidToken)?;
        authorization.set_sensitive(true);
        Ok(Self { authorization })
    }

    pub(crate) fn into_authorization(self) -> HeaderValue {
        self.authorization
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// A token holds a character that a header cannot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the token holds a character that cannot stand in a header")]
pub struct InvalidToken;

/// No credential at all, for a simulator on this machine.
#[derive(Clone, Copy, Debug)]
pub struct Anonymous;

#[async_trait]
impl Credential for Anonymous {
    async fn token(&self, _scope: &str) -> Result<Option<Token>, CredentialError> {
        Ok(None)
    }
}

/// One token that never changes, for tools and tests.
#[derive(Clone, Debug)]
pub struct StaticToken(Token);

impl StaticToken {
    /// Always hands out `token`.
    #[must_use]
    pub fn new(token: Token) -> Self {
        Self(token)
    }
}

#[async_trait]
impl Credential for StaticToken {
    async fn token(&self, _scope: &str) -> Result<Option<Token>, CredentialError> {
        Ok(Some(self.0.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_prints_the_secret() {
        let token = Token::new("s3cret").unwrap();
        assert_eq!(format!("{token:?}"), "Token(..)");
        assert_eq!(format!("{:?}", StaticToken::new(token.clone())), "StaticToken(Token(..))");
        assert_eq!(format!("{:?}", token.into_authorization()), "Sensitive");
    }

    #[test]
    fn a_token_that_would_break_the_header_is_refused() {
        assert_eq!(Token::new("a\r\nx-evil: 1"), Err(InvalidToken));
    }
}
