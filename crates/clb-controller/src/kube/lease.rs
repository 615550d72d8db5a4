//! Leader election over `kube`.

use std::future::pending;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, PostParams};
use kube::{Client, Error};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use tracing::{Span, info, info_span, warn};

use crate::lease::{
    Action, Answer, Election, LeaseConfig, LeaseConfigError, Notice, Request, RequestId, Step,
};
use crate::{Leadership, WallClock};

/// Takes part in the election of a leader, by a Lease of the API server. The rules are [`Election`]'s.
///
/// Its identity needs `get`, `create` and `update` on `leases` of `coordination.k8s.io` in the Lease's namespace.
pub struct Elector {
    leases: Api<Lease>,
    name: String,
    election: Election,
    clock: WallClock,
    leadership: watch::Sender<Leadership>,
    span: Span,
}

impl Elector {
    /// One that takes part once it [runs](Self::run), and what it tells then: from the beginning, that it does not lead.
    ///
    /// # Errors
    /// When a setting makes no sense; the error names it and what it should be.
    pub fn new(
        client: Client,
        config: LeaseConfig,
        clock: WallClock,
    ) -> Result<(Self, watch::Receiver<Leadership>), LeaseConfigError> {
        let span = info_span!("election", lease = %format_args!("{}/{}", config.namespace, config.name),
            identity = %config.identity);
        let (leadership, receiver) = watch::channel(Leadership::Standby);
        let leases = Api::namespaced(client, &config.namespace);
        let name = config.name.clone();
        let election = Election::new(config, Instant::now())?;
        Ok((Self { leases, name, election, clock, leadership, span }, receiver))
    }

    /// Takes part until `shutdown`, then says that it does not lead, lets go of the Lease if it holds it, and returns; within
    /// [`RELEASE_WITHIN`](crate::lease::RELEASE_WITHIN).
    ///
    /// Another replica leads at once then, without the pause that follows a death. So cancel only when whoever sends has
    /// stopped and what it sent has been answered.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let mut call = None;
        let mut is_stopping = false;
        loop {
            if let Some(request) = self.election.poll_request(Instant::now(), self.clock.now()) {
                call = Some(Box::pin(perform(self.leases.clone(), self.name.clone(), request)));
            }
            self.tell();
            if self.election.is_over() {
                return;
            }
            let timeout = self.election.poll_timeout();
            tokio::select! {
                biased;
                () = shutdown.cancelled(), if !is_stopping => {
                    is_stopping = true;
                    call = None;
                    self.election.handle_shutdown(Instant::now());
                }
                (id, answer) = async { match &mut call { Some(call) => call.await, None => pending().await } } => {
                    call = None;
                    self.election.handle_answer(id, answer, Instant::now());
                }
                () = async { match timeout { Some((at, _)) => sleep_until(at).await, None => pending().await } } => {
                    self.election.handle_timeout(Instant::now());
                }
            }
        }
    }

    fn tell(&mut self) {
        let leadership = self.election.leadership();
        self.leadership.send_if_modified(|told| std::mem::replace(told, leadership) != leadership);
        let _entered = self.span.enter();
        while let Some(notice) = self.election.poll_notice() {
            match notice {
                Notice::Gained { term } => info!(term, "this replica leads"),
                Notice::Lost { term, why } => info!(term, %why, "this replica does not lead any more"),
                Notice::HeldBy(holder) => info!(holder, "another replica holds the Lease"),
                Notice::Odd(what) => warn!("there is something wrong with the Lease: {what}"),
                Notice::Failing { step: Step::Read, error } => {
                    warn!(error, "the Lease cannot be read; tried again until it can");
                }
                Notice::Failing { step: Step::Claim | Step::Release, error } => {
                    warn!(error, "the Lease cannot be written; tried again until it can");
                }
                Notice::Released => info!("the Lease is released"),
                Notice::NotReleased => {
                    warn!("the Lease could not be released; others wait until it has run out");
                }
            }
        }
    }
}

async fn perform(leases: Api<Lease>, name: String, request: Request) -> (RequestId, Answer) {
    let call = async {
        let write = PostParams::default();
        match request.action {
            Action::Read => (leases.get(&name).await, true),
            Action::Create(lease) => (leases.create(&write, &lease).await, false),
            Action::Replace(lease) => (leases.replace(&name, &write, &lease).await, true),
        }
    };
    let answer = match timeout_at(request.deadline, call).await {
        Err(_) => Answer::Failed("there was no answer in time".to_owned()),
        Ok((Ok(lease), _)) => Answer::Lease(Box::new(lease)),
        Ok((Err(Error::Api(status)), may_be_missing)) => match status.code {
            404 if may_be_missing => Answer::Missing,
            409 => Answer::Conflict,
            code => Answer::Failed(format!("{code} {}: {}", status.reason, status.message)),
        },
        Ok((Err(error), _)) => Answer::Failed(error.to_string()),
    };
    (request.id, answer)
}
