//! Who may send: of several replicas only the leader, and only for as long as it can be sure to be.

use std::future::{pending, poll_fn};
use std::task::{Poll, ready};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

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

/// Waits until this replica does not lead in `term` any more. Whoever polls this before anything else in the same task does
/// nothing after that moment, even where the process was stopped meanwhile: the clock is looked at in each poll.
pub(crate) async fn lost(leadership: watch::Receiver<Leadership>, term: u64) {
    let mut news = Box::pin(news(leadership.clone()));
    poll_fn(|cx| {
        loop {
            if leadership.borrow().term_at(Instant::now()) != Some(term) {
                return Poll::Ready(());
            }
            ready!(news.as_mut().poll(cx));
            news.set(self::news(leadership.clone()));
        }
    })
    .await;
}

/// Waits until something else is told, or what was told runs out.
async fn news(mut leadership: watch::Receiver<Leadership>) {
    let until = match *leadership.borrow_and_update() {
        Leadership::Leading { until, .. } => until,
        Leadership::Standby => None,
    };
    let runs_out = async {
        match until {
            Some(until) => sleep_until(until).await,
            None => pending().await,
        }
    };
    let told = async {
        // Nobody tells anything any more: the last word holds for as long as it said.
        if leadership.changed().await.is_err() {
            pending::<()>().await;
        }
    };
    tokio::select! {
        biased;
        () = told => {}
        () = runs_out => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::time::{advance, timeout};

    const SECOND: Duration = Duration::from_secs(1);

    fn leading(term: u64, seconds: u32) -> Leadership {
        Leadership::Leading { term, until: Some(Instant::now() + seconds * SECOND) }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_lost_when_it_runs_out_unless_it_is_prolonged() {
        let started = Instant::now();
        let (sender, receiver) = watch::channel(leading(1, 10));
        let lost = tokio::spawn(lost(receiver, 1));
        tokio::time::sleep(9 * SECOND).await;
        sender.send_replace(leading(1, 10));
        lost.await.unwrap();
        assert_eq!(started.elapsed(), 19 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn another_term_or_none_is_a_loss_and_silence_is_none() {
        for now in [Leadership::Standby, leading(2, 10)] {
            let (sender, receiver) = watch::channel(leading(1, 10));
            let lost = tokio::spawn(lost(receiver, 1));
            tokio::task::yield_now().await;
            sender.send_replace(now);
            timeout(SECOND / 1_000, lost).await.expect("at once").unwrap();
        }
        assert!(timeout(1_000 * SECOND, lost(Leadership::alone(), 1)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_was_stopped_looks_at_the_clock_first() {
        let (_sender, receiver) = watch::channel(leading(1, 10));
        let mut lost = Box::pin(lost(receiver, 1));
        assert!(futures_now(lost.as_mut()).await.is_pending());
        // The clock moves, and no timer has fired yet.
        let later = tokio::spawn(async move { futures_now(lost.as_mut()).await });
        advance(11 * SECOND).await;
        assert!(later.await.unwrap().is_ready());
    }

    async fn futures_now<F: Future>(mut future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
    }
}
