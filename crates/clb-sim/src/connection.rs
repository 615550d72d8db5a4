//! Connections that can be cut: what a client sees when a server dies in the middle of an exchange.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// A listener whose connections can be cut, all of them by cancelling the token.
#[derive(Debug)]
pub(crate) struct CuttableListener(pub(crate) TcpListener, pub(crate) CancellationToken);

/// Cuts the connection that a request came by.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scissors(Arc<AtomicBool>);

impl Scissors {
    /// Nothing more is written.
    pub(crate) fn cut(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Cuttable {
    stream: TcpStream,
    scissors: Scissors,
    all_cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Cuttable {
    fn check(&self) -> io::Result<()> {
        if self.scissors.0.load(Ordering::Relaxed) {
            // Closed at once, so that the client sees a reset and not an orderly end.
            self.stream.set_zero_linger()?;
            return Err(io::Error::new(io::ErrorKind::ConnectionReset, "an injected fault"));
        }
        Ok(())
    }
}

impl Listener for CuttableListener {
    type Io = Cuttable;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Cuttable, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        let all_cut = Box::pin(self.1.clone().cancelled_owned());
        (Cuttable { stream, scissors: Scissors::default(), all_cut }, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

impl Connected<IncomingStream<'_, CuttableListener>> for Scissors {
    fn connect_info(incoming: IncomingStream<'_, CuttableListener>) -> Self {
        incoming.io().scissors.clone()
    }
}

impl AsyncRead for Cuttable {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Whoever answers for long also listens, to hear that nobody waits for it any more.
        if self.all_cut.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Cuttable {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
