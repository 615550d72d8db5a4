//! Signals that ask the process to end.

use std::io;

use tokio::signal;

/// Hears of SIGTERM, which Kubernetes sends to a pod that is to end, and of SIGINT, which Ctrl-C sends. From when it is made
/// on, neither ends the process by itself any more, for as long as the process lives.
#[derive(Debug)]
pub struct Signals {
    #[cfg(unix)]
    terminate: signal::unix::Signal,
    #[cfg(unix)]
    interrupt: signal::unix::Signal,
}

impl Signals {
    /// Listens from now on.
    ///
    /// # Errors
    /// When the system does not let this process listen.
    #[cfg(unix)]
    pub fn listen() -> io::Result<Self> {
        use signal::unix::{SignalKind, signal};
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Listens from now on. Where there are no such signals, only Ctrl-C is heard.
    ///
    /// # Errors
    /// None.
    #[cfg(not(unix))]
    pub fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Waits for the next one. Cancellation-safe.
    #[cfg(unix)]
    pub async fn next(&mut self) {
        tokio::select! {
            biased;
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Waits for the next one.
    #[cfg(not(unix))]
    pub async fn next(&mut self) {
        if signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
