//! Where Azure Resource Manager answers.

use url::{Host, Url};

/// Which Azure Resource Manager to talk to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cloud {
    /// The public cloud, `https://management.azure.com`.
    #[default]
    Public,
    /// Azure operated by 21Vianet in China, `https://management.chinacloudapi.cn`.
    China,
    /// Azure for US Government, `https://management.usgovcloudapi.net`.
    UsGov,
    /// Any other: an air-gapped cloud, Azure Stack, or a simulator on this machine.
    Custom {
        /// Its base URL: https, or http if the host is a loopback address. A path prefix is kept.
        endpoint: String,
        /// What tokens are asked for, without `/.default`.
        audience: String,
    },
}

/// A checked base URL with its token scope.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    base: Url,
    scope: String,
}

impl Endpoint {
    /// The endpoint of `cloud`.
    ///
    /// # Errors
    /// [`EndpointError`] when a custom endpoint is not a URL that tokens may be sent to.
    pub fn new(cloud: &Cloud) -> Result<Self, EndpointError> {
        // In all three clouds the resource manager's own URL is an accepted audience.
        let (base, audience) = match cloud {
            Cloud::Public => ("https://management.azure.com", "https://management.azure.com"),
            Cloud::China => ("https://management.chinacloudapi.cn", "https://management.chinacloudapi.cn"),
            Cloud::UsGov => ("https://management.usgovcloudapi.net", "https://management.usgovcloudapi.net"),
            Cloud::Custom { endpoint, audience } => (endpoint.as_str(), audience.as_str()),
        };
        let base = parse_base(base)?;
        match base.scheme() {
            "https" => {}
            "http" if is_loopback(&base) => {}
            "http" => {
                return Err(EndpointError::PlainHttp {
                    host: base.host_str().unwrap_or_default().to_owned(),
                });
            }
            other => return Err(EndpointError::Scheme { scheme: other.to_owned() }),
        }
        Ok(Self { base, scope: format!("{}/.default", audience.trim_end_matches('/')) })
    }

    /// What a token is asked for: the audience followed by `/.default`.
    #[must_use]
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// The URL of `path`, which starts with a slash, below this endpoint.
    pub(crate) fn url(&self, path: &str) -> Url {
        let mut url = self.base.clone();
        let prefix = self.base.path().trim_end_matches('/');
        url.set_path(&format!("{prefix}{path}"));
        url
    }

    /// The URL that an answer's `link` names, if it stays on this endpoint's scheme, host and port. Links come from
    /// response bodies and headers, and whatever is fetched from them carries the token.
    pub(crate) fn follow(&self, link: &str) -> Option<Url> {
        let url = self.base.join(link).ok()?;
        (url.origin() == self.base.origin() && url.username().is_empty() && url.password().is_none())
            .then_some(url)
    }
}

/// The https URL that `text` is, if it is one of a place and not of a thing there.
#[cfg(feature = "azure-identity")]
pub(crate) fn secure_base(text: &str) -> Result<Url, EndpointError> {
    let base = parse_base(text)?;
    if base.scheme() == "https" {
        Ok(base)
    } else {
        Err(EndpointError::Scheme { scheme: base.scheme().to_owned() })
    }
}

fn parse_base(text: &str) -> Result<Url, EndpointError> {
    let base = Url::parse(text).map_err(|source| EndpointError::Malformed { source })?;
    let is_bare = base.query().is_none()
        && base.fragment().is_none()
        && base.username().is_empty()
        && base.password().is_none();
    if is_bare { Ok(base) } else { Err(EndpointError::NotABase) }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

/// Why a URL is not an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// It is not a URL.
    #[error("the endpoint is not a URL: {source}")]
    Malformed {
        /// What is wrong with it.
        source: url::ParseError,
    },
    /// Tokens would cross a network unencrypted.
    #[error("plain http is for loopback addresses only, and {host} is not one")]
    PlainHttp {
        /// The host.
        host: String,
    },
    /// It is neither https nor http.
    #[error("the endpoint's scheme is {scheme}, not https")]
    Scheme {
        /// The scheme.
        scheme: String,
    },
    /// It has a query, a fragment or credentials.
    #[error("the endpoint must be a base URL without query, fragment or credentials")]
    NotABase,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn custom(endpoint: &str) -> Result<Endpoint, EndpointError> {
        Endpoint::new(&Cloud::Custom { endpoint: endpoint.into(), audience: "https://sim/".into() })
    }

    #[test]
    fn each_cloud_has_its_url_and_scope() {
        let of = |cloud| {
            let endpoint = Endpoint::new(&cloud).unwrap();
            (endpoint.url("/subscriptions").to_string(), endpoint.scope().to_owned())
        };
        assert_eq!(
            [of(Cloud::Public), of(Cloud::China), of(Cloud::UsGov)],
            [
                "https://management.azure.com",
                "https://management.chinacloudapi.cn",
                "https://management.usgovcloudapi.net"
            ]
            .map(|base| (format!("{base}/subscriptions"), format!("{base}/.default")))
        );
    }

    #[test]
    fn plain_http_is_accepted_for_loopback_only() {
        for loopback in ["http://127.0.0.1:8080", "http://[::1]:1", "http://localhost:9", "http://127.8.8.8"]
        {
            assert!(custom(loopback).is_ok(), "{loopback}");
        }
        for (remote, host) in [
            ("http://10.0.0.1", "10.0.0.1"),
            ("http://localhost.example", "localhost.example"),
            ("http://management.azure.com", "management.azure.com"),
        ] {
            assert_eq!(custom(remote), Err(EndpointError::PlainHttp { host: host.into() }));
        }
    }

    #[test]
    fn what_is_not_a_base_url_is_refused() {
        assert_eq!(custom("ftp://host"), Err(EndpointError::Scheme { scheme: "ftp".into() }));
        for odd in ["https://host/?a=b", "https://host/#x", "https://user@host", "https://u:p@host"] {
            assert_eq!(custom(odd), Err(EndpointError::NotABase), "{odd}");
        }
        assert!(matches!(custom("management"), Err(EndpointError::Malformed { .. })));
    }

    #[test]
    fn a_path_prefix_is_kept() {
        let endpoint = custom("https://host/arm/").unwrap();
        assert_eq!(endpoint.url("/subscriptions/a b?").as_str(), "https://host/arm/subscriptions/a%20b%3F");
    }

    #[test]
    fn links_are_followed_on_the_same_origin_only() {
        let endpoint = custom("https://host:444").unwrap();
        let followed = |link| endpoint.follow(link).map(String::from);
        assert_eq!(followed("https://HOST:444/next?t=1"), Some("https://host:444/next?t=1".into()));
        assert_eq!(followed("/next?t=1"), Some("https://host:444/next?t=1".into()));
        for foreign in [
            "https://host/next",
            "http://host:444/next",
            "https://evil:444/next",
            "//evil:444/next",
            "https://host:444@evil/next",
            "https://user@host:444/next",
            "https://",
        ] {
            assert_eq!(followed(foreign), None, "{foreign}");
        }
    }
}
