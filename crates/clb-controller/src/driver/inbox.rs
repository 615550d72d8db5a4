//! The way in: what the driver is told and asked.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clb_difftracker::{Change, Observation, Stats};
use clb_vmss::NodeEvent;
use tokio::sync::{mpsc, oneshot, watch};

use crate::watched::Watched;

/// Where changes go in: the coalescing trigger.
///
/// However many changes come while the driver is busy, it wakes once, takes all of them in, and only then looks for what to
/// do about them together. Cloning gives another handle on the same driver, which stops when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Inbox {
    messages: mpsc::Sender<Message>,
    relists: Relists,
}

/// The driver has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the driver has stopped")]
pub struct Stopped;

/// Those who are asked to list everything once more. Each has a channel of its own, so that they are woken in a fixed order.
#[derive(Clone, Debug, Default)]
pub(super) struct Relists(Arc<Mutex<Vec<watch::Sender<u64>>>>);

impl Relists {
    fn subscribe(&self) -> watch::Receiver<u64> {
        let (sender, receiver) = watch::channel(0);
        self.senders().push(sender);
        receiver
    }

    /// Asks all that still listen.
    pub(super) fn ask(&self) {
        let mut senders = self.senders();
        senders.retain(|sender| !sender.is_closed());
        senders.iter().for_each(|sender| sender.send_modify(|asked| *asked += 1));
    }

    fn senders(&self) -> MutexGuard<'_, Vec<watch::Sender<u64>>> {
        // Every change of it is whole, so a panic elsewhere leaves it so.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
pub(super) enum Message {
    Change(Change),
    Observation(Observation),
    Watched(Watched),
    Machine(NodeEvent),
    WhenSynced(oneshot::Sender<()>),
    Stats(oneshot::Sender<Stats>),
}

impl Inbox {
    pub(super) fn new(capacity: usize) -> (Self, mpsc::Receiver<Message>, Relists) {
        let (messages, receiver) = mpsc::channel(capacity.max(1));
        let relists = Relists::default();
        (Self { messages, relists: relists.clone() }, receiver, relists)
    }

    /// Hands in a change, and waits while the inbox is full.
    ///
    /// # Errors
    /// [`Stopped`] when the driver has.
    pub async fn change(&self, change: Change) -> Result<(), Stopped> {
        self.send(Message::Change(change)).await
    }

    /// Hands in a part of a reading of what Azure holds, and waits while the inbox is full.
    ///
    /// # Errors
    /// [`Stopped`] when the driver has.
    pub async fn observation(&self, observation: Observation) -> Result<(), Stopped> {
        self.send(Message::Observation(observation)).await
    }

    /// Hands in what was watched, and waits while the inbox is full.
    ///
    /// # Errors
    /// [`Stopped`] when the driver has.
    pub async fn watched(&self, watched: Watched) -> Result<(), Stopped> {
        self.send(Message::Watched(watched)).await
    }

    /// Hands in what happened in a scale set, and waits while the inbox is full.
    ///
    /// # Errors
    /// [`Stopped`] when the driver has.
    pub async fn machine(&self, event: NodeEvent) -> Result<(), Stopped> {
        self.send(Message::Machine(event)).await
    }

    /// Changes whenever everything should be listed once more, independently of what was listed before: so much would be
    /// deleted that one list is not believed.
    #[must_use]
    pub fn relists(&self) -> watch::Receiver<u64> {
        self.relists.subscribe()
    }

    /// Waits until Azure is known to hold exactly what the cluster asks for, all changes handed in before included. While
    /// something is refused for ever, that is never.
    ///
    /// # Errors
    /// [`Stopped`] when the driver has.
    pub async fn synced(&self) -> Result<(), Stopped> {
        self.ask(Message::WhenSynced).await
    }

    /// How much there is of everything.
    ///
    /// # Errors
    /// [`Stopped`] when the driver has.
    pub async fn stats(&self) -> Result<Stats, Stopped> {
        self.ask(Message::Stats).await
    }

    async fn send(&self, message: Message) -> Result<(), Stopped> {
        self.messages.send(message).await.map_err(|_| Stopped)
    }

    async fn ask<T>(&self, question: impl FnOnce(oneshot::Sender<T>) -> Message) -> Result<T, Stopped> {
        let (sender, answer) = oneshot::channel();
        self.send(question(sender)).await?;
        answer.await.map_err(|_| Stopped)
    }
}
