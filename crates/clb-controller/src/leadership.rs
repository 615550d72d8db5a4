//! Who may send: of several replicas only the leader, and only for as long as it can be sure to be.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Whether this replica may send anything, to Azure or to Kubernetes.
///
/// Whoever elects leaders tells the driver through a [`watch`] channel of these; a replica that is alone uses
/// [`Leadership::alone`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Another replica may be sending.
    Standby,
    /// Nobody else sends.
    Leading {
        /// Which time it is that this replica leads: another number means that somebody else may have sent in between.
        term: u64,
        /// From when on nothing may be sent any more, unless a later moment is told before; `None` is never. Whoever elects
        /// makes this early enough for what was sent just before to have arrived when another replica begins to lead.
        until: Option<Instant>,
    },
}

impl Leadership {
    /// For a replica that is the only one there ever is.
    #[must_use]
    pub fn alone() -> watch::Receiver<Self> {
        // A receiver without a sender keeps the last value.
        watch::channel(Self::Leading { term: 1, until: None }).1
    }

    /// The term in which this replica leads at this moment.
    #[must_use]
    pub fn term_at(self, now: Instant) -> Option<u64> {
        match self {
            Self::Leading { term, until } if until.is_none_or(|until| now < until) => Some(term),
            Self::Leading { .. } | Self::Standby => None,
        }
    }
}

/// Waits until this replica does not lead in `term` any more: until `over` is cancelled, or the clock says so. Whoever polls this
/// before anything else in the same task does nothing after that moment, even where the process was stopped meanwhile: the
/// clock is looked at in each poll.
pub(crate) async fn lost(leadership: watch::Receiver<Leadership>, term: u64, over: CancellationToken) {
    let mut over = pin!(over.cancelled_owned());
    poll_fn(|cx| {
        if leadership.borrow().term_at(Instant::now()) != Some(term) {
            return Poll::Ready(());
        }
        over.as_mut().poll(cx)
    })
    .await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::advance;

    const SECOND: Duration = Duration::from_secs(1);

    fn leading(term: u64, seconds: u32) -> Leadership {
        Leadership::Leading { term, until: Some(Instant::now() + seconds * SECOND) }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_lost_when_it_is_over_or_another_term_or_nobody_leads() {
        for now in [Leadership::Standby, leading(2, 10), leading(1, 0)] {
            let (_sender, receiver) = watch::channel(now);
            lost(receiver, 1, CancellationToken::new()).await;
        }
        let (over, alone) = (CancellationToken::new(), Leadership::alone());
        let mut lost = pin!(lost(alone, 1, over.clone()));
        assert!(poll_once(lost.as_mut()).await.is_pending());
        over.cancel();
        lost.await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_was_stopped_looks_at_the_clock_first() {
        let (_sender, receiver) = watch::channel(leading(1, 10));
        let mut lost = pin!(lost(receiver, 1, CancellationToken::new()));
        assert!(poll_once(lost.as_mut()).await.is_pending());
        advance(10 * SECOND).await;
        assert!(poll_once(lost.as_mut()).await.is_ready());
    }

    async fn poll_once<F: Future>(mut future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
    }
}
