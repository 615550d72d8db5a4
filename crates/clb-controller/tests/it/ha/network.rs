//! What is between a process and the servers: requests that travel, links that break, and a record of both.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use clb_arm::{Transport, TransportError};
use clb_sim::SimulatedTransport;
use clb_sim::kube::{Kind, KubeSimulation};
use futures::{StreamExt, stream};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// A way from one process to one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Up,
    /// Connections break, and nobody takes new ones.
    Refusing,
    /// Nothing arrives, and nobody says so. Connections are found to be dead when packets arrive again.
    Silent,
}

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sort {
    Read,
    /// Of anything but the Lease.
    Write,
    /// A write of the Lease.
    Claim,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) process: String,
    /// Method and path.
    pub(crate) what: String,
    pub(crate) is_azure: bool,
    pub(crate) sort: Sort,
    /// When it was sent, by the clock of whoever sent it, and whom the Lease named then.
    pub(crate) sent: (Duration, String),
    /// Whom the Lease named when it arrived, if it did.
    pub(crate) arrived: Option<String>,
    /// The status of its answer, whether anybody heard of it or not.
    pub(crate) status: Option<u16>,
}

impl Call {
    /// Whether it is one of these.
    pub(crate) fn is(&self, method: &str, part: &str) -> bool {
        let path = self.what.strip_prefix(method).and_then(|rest| rest.strip_prefix(' '));
        path.is_some_and(|path| path.to_ascii_lowercase().contains(&part.to_ascii_lowercase()))
    }

    fn is_done(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

/// The servers' side, and everything that was sent.
#[derive(Debug)]
pub(crate) struct Network {
    kube: KubeSimulation,
    servers: Handle,
    calls: Mutex<Vec<Call>>,
}

impl Network {
    pub(super) fn new(kube: KubeSimulation, servers: Handle) -> Self {
        Self { kube, servers, calls: Mutex::default() }
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// How many calls there were so far: those after these are `calls()[since..]`.
    pub(crate) fn mark(&self) -> usize {
        self.calls.lock().unwrap().len()
    }

    /// How many writes there were, of anything but the Lease.
    pub(super) fn writes(&self) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| call.sort == Sort::Write).count()
    }

    /// Whom the Lease names now; empty for nobody.
    pub(crate) fn holder(&self) -> String {
        // The servers' time is the one that counts there, whoever asks.
        let _inside = self.servers.enter();
        self.kube.with_cluster(|cluster| {
            let lease = cluster.objects(Kind::Lease).next();
            let holder = lease.and_then(|lease| lease["spec"]["holderIdentity"].as_str());
            holder.unwrap_or_default().to_owned()
        })
    }

    /// No two processes ever wrote at the same time: each write was sent and arrived while the Lease named its sender, and was
    /// sent sooner than `renew_deadline` after the sender had sent a claim that was granted.
    pub(super) fn check(&self, renew_deadline: Duration) {
        let calls = self.calls();
        for (at, call) in calls.iter().enumerate().filter(|(_, call)| call.sort == Sort::Write) {
            assert_eq!(call.sent.1, call.process, "sent by somebody else than the holder: {call:?}");
            if let Some(holder) = &call.arrived {
                assert_eq!(*holder, call.process, "arrived when somebody else was the holder: {call:?}");
            }
            let is_claim = |earlier: &&Call| {
                earlier.process == call.process && earlier.sort == Sort::Claim && earlier.is_done()
            };
            let claim = calls[..at].iter().rev().find(is_claim).expect("a claim comes before every write");
            assert!(call.sent.0 < claim.sent.0 + renew_deadline, "{call:?} is too late after {claim:?}");
        }
    }
}

/// One process's end of its link to one server.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) network: Arc<Network>,
    pub(super) process: String,
    pub(super) link: watch::Receiver<Link>,
    pub(super) is_azure: bool,
    /// When the process began, by its own clock and by everybody's.
    pub(super) began: (Instant, Duration),
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    NotSent,
    MaybeSent,
}

impl Wire {
    /// Sends a request to be served, by the servers and in their time, whatever becomes of whoever sent it.
    async fn carry<T: Send + 'static>(
        &self,
        what: String,
        sort: Sort,
        serve: impl Future<Output = T> + Send + 'static,
        status: impl FnOnce(&T) -> u16 + Send + 'static,
    ) -> Result<T, Lost> {
        let at = self.log(what, sort);
        let link = *self.link.borrow();
        if link != Link::Up {
            until_heard(self.link.clone()).await;
            return Err(if link == Link::Refusing { Lost::NotSent } else { Lost::MaybeSent });
        }
        let network = self.network.clone();
        let served = self.network.servers.spawn(async move {
            let holder = network.holder();
            network.calls.lock().unwrap()[at].arrived = Some(holder);
            let answer = serve.await;
            network.calls.lock().unwrap()[at].status = Some(status(&answer));
            answer
        });
        unless_broken(self.link.clone(), served).await.and_then(Result::ok).ok_or(Lost::MaybeSent)
    }

    fn log(&self, what: String, sort: Sort) -> usize {
        let (began, offset) = self.began;
        let sent = (offset + began.elapsed(), self.network.holder());
        let (process, is_azure) = (self.process.clone(), self.is_azure);
        let mut calls = self.network.calls.lock().unwrap();
        calls.push(Call { process, what, is_azure, sort, sent, arrived: None, status: None });
        calls.len() - 1
    }

    /// A body that comes over the link: the server writes it without waiting for whoever reads it.
    fn download(&self, response: Response) -> Response {
        let (parts, body) = response.into_parts();
        let (sender, receiver) = mpsc::unbounded_channel();
        self.network.servers.spawn(async move {
            let mut chunks = body.into_data_stream();
            loop {
                tokio::select! {
                    biased;
                    () = sender.closed() => return,
                    chunk = chunks.next() => {
                        let Some(chunk) = chunk else { return };
                        // Whoever read it may have gone.
                        let _ = sender.send(chunk);
                    }
                }
            }
        });
        let link = self.link.clone();
        let chunks = stream::unfold(Some(receiver), move |receiver| {
            let link = link.clone();
            async move {
                let mut receiver = receiver?;
                match unless_broken(link, receiver.recv()).await {
                    Some(chunk) => Some((chunk?, Some(receiver))),
                    None => Some((Err(axum::Error::new(reset())), None)),
                }
            }
        });
        Response::from_parts(parts, Body::from_stream(chunks))
    }

    /// A Kubernetes API with this between it and whoever asks.
    pub(super) fn in_front_of(self, router: Router) -> Router {
        router.layer(from_fn_with_state(Arc::new(self), carry_to_kubernetes))
    }
}

async fn carry_to_kubernetes(
    State(wire): State<Arc<Wire>>,
    request: axum::extract::Request,
    next: Next,
) -> Response {
    let what = format!("{} {}", request.method(), request.uri().path());
    let sort = match request.method().as_str() {
        "GET" => Sort::Read,
        _ if what.contains("/leases") => Sort::Claim,
        _ => Sort::Write,
    };
    match wire.carry(what, sort, next.run(request), |answer| answer.status().as_u16()).await {
        Ok(response) => wire.download(response),
        // There is no other way to fail in here; whoever reads the answer finds that there is none.
        Err(_) => Response::new(Body::from_stream(stream::iter([Err::<Bytes, _>(reset())]))),
    }
}

/// An Azure at the other end.
#[derive(Debug)]
pub(super) struct ToAzure {
    pub(super) wire: Wire,
    pub(super) azure: SimulatedTransport,
}

#[async_trait]
impl Transport for ToAzure {
    async fn send(&self, request: http::Request<Vec<u8>>) -> Result<http::Response<Vec<u8>>, TransportError> {
        let what = format!("{} {}", request.method(), request.uri().path());
        let sort = if request.method() == http::Method::GET { Sort::Read } else { Sort::Write };
        let azure = self.azure.clone();
        let serve = async move { azure.send(request).await };
        let status = |answer: &Result<http::Response<_>, _>| match answer {
            Ok(answer) => answer.status().as_u16(),
            Err(_) => 0,
        };
        self.wire.carry(what, sort, serve, status).await.unwrap_or_else(|lost| {
            Err(match lost {
                Lost::NotSent => TransportError::NotSent(reset().into()),
                Lost::MaybeSent => TransportError::MaybeSent(reset().into()),
            })
        })
    }
}

fn reset() -> io::Error {
    io::ErrorKind::ConnectionReset.into()
}

/// What comes over a link that is up; `None` if it breaks, as soon as that is known.
async fn unless_broken<T>(link: watch::Receiver<Link>, coming: impl Future<Output = T>) -> Option<T> {
    let mut breaks = link.clone();
    let breaks: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(async move {
        // A process whose links are gone is itself.
        let _ = breaks.wait_for(|now| *now != Link::Up).await;
    });
    tokio::select! {
        biased;
        () = breaks => {}
        come = coming => return Some(come),
    }
    until_heard(link).await;
    None
}

/// Waits until a link says that it is broken.
async fn until_heard(mut link: watch::Receiver<Link>) {
    let _ = link.wait_for(|now| *now != Link::Silent).await;
}
