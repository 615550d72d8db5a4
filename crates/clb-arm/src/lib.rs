#![forbid(unsafe_code)]
#![doc = include_str!("../README.md")]

mod call;
mod client;
mod credential;
mod endpoint;
mod error;
mod error_body;
mod lro;
mod paging;
mod request;
mod resource_id;
mod retry_after;
mod transport;

pub use call::{CallContext, InvalidClientRequestId};
pub use client::{ArmClient, ArmClientBuilder};
pub use credential::{Anonymous, Credential, CredentialError, InvalidToken, StaticToken, Token};
pub use endpoint::{Cloud, Endpoint, EndpointError};
pub use error::{Error, ErrorKind, Result};
pub use http;
pub use lro::{PollSchedule, Polling, Step};
pub use paging::MAX_PAGES;
pub use request::Request;
pub use resource_id::{InvalidResourceId, ResourceId};
pub use retry_after::retry_after;
pub use transport::{HttpTransport, Transport, TransportError};
pub use url;
