#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

#[cfg(feature = "azure-identity")]
mod azure;
mod call;
#[cfg(feature = "azure-identity")]
mod certificate;
mod client;
mod credential;
mod deadline;
mod endpoint;
mod error;
mod error_body;
mod limiter;
pub mod lro;
mod paging;
mod request;
mod resource_id;
pub mod retry;
mod retry_after;
mod token_cache;
mod transport;

#[cfg(feature = "azure-identity")]
pub use azure::{AzureIdentity, Identity};
pub use call::{CallContext, InvalidClientRequestId};
#[cfg(feature = "azure-identity")]
pub use certificate::{ClientCertificate, InvalidCertificate};
pub use client::{ArmClient, ArmClientBuilder};
pub use credential::{Anonymous, Credential, CredentialError, InvalidToken, StaticToken, Token};
pub use endpoint::{Cloud, Endpoint, EndpointError};
pub use error::{Error, ErrorKind, Result};
pub use http;
pub use limiter::Limiter;
pub use lro::{PollSchedule, Polling, SavedOperation, Step};
pub use paging::{MAX_PAGES, Pages};
pub use request::Request;
pub use resource_id::{InvalidResourceId, ResourceId};
pub use retry::RetryPolicy;
pub use retry_after::retry_after;
pub use token_cache::{CachedCredential, FreshToken, TokenSource};
pub use transport::{HttpTransport, Transport, TransportError};
pub use url;
