//! Azure over HTTP.

use std::io;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{ConnectInfo, State};
use futures::StreamExt;
use http::{HeaderValue, header};
use tokio::sync::broadcast;
use tracing::debug;

use crate::azure::{Azure, AzureConfig};
use crate::budget::Budgets;
use crate::connection::Scissors;
use crate::fault::{FaultPlan, Injected};
use crate::front::{Ending, Front, Reply};
use crate::serving::{Port, Serving};
use crate::traffic::{CallCounts, CallRecord};
use crate::transport::SimulatedTransport;

/// How much of a body is read, in bytes: a client that is answered while it still sends may miss the answer.
const MAX_READ: usize = 64 * 1024 * 1024;
/// How far a subscriber may fall behind before it misses records.
const SUBSCRIBER_LAG: usize = 4_096;

/// Settings of a [`Simulator`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SimulatorConfig {
    /// The port on 127.0.0.1; 0, the default, takes a free one.
    pub port: u16,
    /// How long every answer takes. A request has its effect before the wait, as with a real service of which one hears
    /// late.
    pub latency: Duration,
    /// Azure's settings.
    pub azure: AzureConfig,
    /// Whether requests are refused with 401 that carry no bearer token, or one that has been made to expire. Which token
    /// it is does not matter. Default: none is asked for.
    pub requires_token: bool,
    /// The budgets beyond which requests are refused with 429. Default: there are none, and the headers that say what is
    /// left say what recorded traffic says.
    pub budgets: Option<Budgets>,
    /// The faults that happen. Default: none.
    pub faults: FaultPlan,
}

/// A simulated Azure, wherever its requests come from. Cloning is cheap, and clones are the same Azure.
///
/// Its clock is tokio's, so that under `tokio::time::pause` it stands still until somebody waits. Everything that it does
/// follows from its settings and the requests: the same requests at the same times have the same answers, byte for byte.
#[derive(Clone, Debug)]
pub struct Simulation(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    subscribers: broadcast::Sender<CallRecord>,
    front: Mutex<Front>,
}

impl Simulation {
    /// An Azure in this process, to which [`Simulation::transport`] leads. Its clock starts now.
    #[must_use]
    pub fn new(config: SimulatorConfig) -> Self {
        let subscribers = broadcast::Sender::new(SUBSCRIBER_LAG);
        Self(Arc::new(Shared { subscribers, front: Mutex::new(Front::new(config)) }))
    }

    fn lock(&self) -> MutexGuard<'_, Front> {
        // Whoever panicked while holding it was a test that looked: requests are answered without panics.
        self.0.front.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers a request, when its answer is due. `base` is what paths become absolute with.
    pub(crate) async fn handle(&self, request: &http::Request<Vec<u8>>, base: &str) -> Ending {
        let Reply { delay, ending, record } = {
            let mut front = self.lock();
            let now = front.clock.elapsed();
            front.handle(request, base, now, &self.0.subscribers)
        };
        debug!(?record, "answered");
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        ending
    }

    /// How long it has been there.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.lock().clock.elapsed()
    }

    /// Sets its clock forward, a thousand years at most: what takes time and is due is done. Whoever waits still waits as long.
    pub fn advance(&self, by: Duration) {
        let mut front = self.lock();
        front.clock.advance(by);
        let now = front.clock.elapsed();
        front.azure.advance_to(now);
    }

    /// A transport for `clb-arm` that leads here without a socket.
    #[must_use]
    pub fn transport(&self) -> SimulatedTransport {
        SimulatedTransport::new(self.clone())
    }

    /// Takes another plan of faults from now on. Those that were injected stay known.
    pub fn set_faults(&self, plan: FaultPlan) {
        self.lock().injector.set(plan);
    }

    /// The plan of faults.
    #[must_use]
    pub fn faults(&self) -> FaultPlan {
        self.lock().injector.plan().clone()
    }

    /// The faults that have happened, in order; [`replay`](crate::fault::replay) makes a plan of them.
    #[must_use]
    pub fn injected(&self) -> Vec<Injected> {
        self.lock().injector.injected().to_vec()
    }

    /// Lets a token expire: from now on it is refused, if tokens are asked for at all.
    pub fn expire_token(&self, token: &str) {
        self.lock().expired_tokens.insert(token.to_owned());
    }

    /// How many requests there were.
    #[must_use]
    pub fn counts(&self) -> CallCounts {
        self.lock().counts
    }

    /// Every request since the last time this was asked, the last 100,000 of them, in the order in which they took effect.
    #[must_use]
    pub fn take_records(&self) -> Vec<CallRecord> {
        std::mem::take(&mut self.lock().records).into()
    }

    /// Hears of every request from now on, as it takes effect. Whoever falls 4,096 behind misses the oldest.
    #[must_use]
    pub fn subscribe(&self) -> broadcast::Receiver<CallRecord> {
        self.0.subscribers.subscribe()
    }

    /// Looks at Azure's state, or changes it behind everybody's back. No request is answered meanwhile.
    pub fn with_azure<T>(&self, look: impl FnOnce(&mut Azure) -> T) -> T {
        let mut front = self.lock();
        let now = front.clock.elapsed();
        front.azure.advance_to(now);
        look(&mut front.azure)
    }
}

/// A [`Simulation`] that answers on 127.0.0.1 until it is shut down or dropped.
#[derive(Debug)]
pub struct Simulator {
    simulation: Simulation,
    serving: Serving,
}

impl Deref for Simulator {
    type Target = Simulation;

    fn deref(&self) -> &Simulation {
        &self.simulation
    }
}

impl Simulator {
    /// Starts to answer.
    ///
    /// # Errors
    /// When the port cannot be had; the message names it.
    pub async fn start(config: SimulatorConfig) -> io::Result<Self> {
        let port = Port::bind(config.port).await?;
        let simulation = Simulation::new(config);
        let served = Served { base: port.endpoint(), simulation: simulation.clone() };
        let serving = port.serve(Router::new().fallback(answer).with_state(Arc::new(served)));
        Ok(Self { simulation, serving })
    }

    /// Where it answers, such as `http://127.0.0.1:40123`.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.serving.endpoint()
    }

    /// Stops, when the requests that are being answered are.
    pub async fn shutdown(self) {
        self.serving.finish().await;
    }
}

struct Served {
    base: String,
    simulation: Simulation,
}

async fn answer(
    State(served): State<Arc<Served>>,
    ConnectInfo(scissors): ConnectInfo<Scissors>,
    request: axum::extract::Request,
) -> axum::response::Response {
    let (parts, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_READ).await else {
        // It is larger than anything that could be answered, or was cut off.
        scissors.cut();
        return axum::response::Response::default();
    };
    let request = http::Request::from_parts(parts, body.into());
    match served.simulation.handle(&request, &served.base).await {
        Ending::Answer(response) => response.map(Body::from),
        Ending::Truncated(response, bytes) => {
            let (mut parts, body) = response.into_parts();
            parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
            let kept = body[..bytes.min(body.len())].to_vec();
            let error = io::Error::new(io::ErrorKind::ConnectionReset, "an injected fault");
            // Whatever is written must have left before the connection breaks.
            let breaking = async {
                tokio::task::yield_now().await;
                Err(error)
            };
            let chunks = futures::stream::iter([Ok(kept)]).chain(futures::stream::once(breaking));
            axum::response::Response::from_parts(parts, Body::from_stream(chunks))
        }
        Ending::Cut => {
            scissors.cut();
            axum::response::Response::default()
        }
    }
}
